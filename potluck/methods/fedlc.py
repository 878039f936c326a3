"""`fedlc`: logits calibrated by how often each class occurs (Zhang et al. 2022, FedLC, ICML).

    logits_c = f_c(x) − τ n_c^(−1/4)

in local training, with n_c the site's samples of class c: rare classes get larger margins. A class
that the site lacks has an infinite margin, so that its row is at rest; a site need not know it, and
private sites take part. Predictions use f alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.method import Here, Plan, Step
from potluck.methods.named_classes import check_named, class_counts, classes_of


@dataclass(frozen=True)
class FedLC(Augmented):
    """Cross-entropy with margins for rare classes.

    Args:
      augment: how training images are varied.
      tau:     τ, the size of the margins; 0 leaves only that missing classes are at rest.
    """

    tau: float = 1.0

    def check(self, federation: Federation) -> None:
        """Sites must know the class of each sample."""
        super().check(federation)
        if self.tau < 0:
            raise PotluckError(f"method.tau is {self.tau}; it must be at least 0.")
        check_named("FedLC", federation)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples; the margin of each class."""
        plan = super().plan(here, generator)
        counts = class_counts(here.site)
        margins = self.tau * counts.clamp_min(1) ** -0.25
        plan.tensors["margins"] = torch.where(counts > 0, margins, torch.inf)
        return plan

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean cross-entropy of the calibrated logits."""
        logits = step.model(self.inputs(step)) - step.plan.tensors["margins"]
        return cross_entropy(logits, classes_of(step.site)[step.batch.index]), step.state
