"""`fedrs`: restricted softmax (Li and Zhan 2021, FedRS, KDD).

A site without a class should not push its head row away. In local training the scores of rare
and missing classes are damped,

    logits_c = s_c · (w_c · h(x)),     s_c = α + (1 − α) p_c / max p,

with p the site's class shares: s_c = α for a class that the site lacks. Scores have no bias, here
as in the public code, and the bias of the model's head stays 0. Predictions use s = 1.

A site must know all classes to damp those that it lacks, so private sites cannot take part.
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
from potluck.models.network import Layout


@dataclass(frozen=True)
class FedRS(Augmented):
    """Cross-entropy over all classes, with damped scores for those that a site lacks.

    Args:
      augment: how training images are varied.
      alpha:   the factor on the scores of missing classes; 1 is plain training, 0 ignores them.
    """

    alpha: float = 0.5

    def check(self, federation: Federation) -> None:
        """Sites must know all classes, and the class of each sample."""
        super().check(federation)
        if not 0 <= self.alpha <= 1:
            raise PotluckError(f"method.alpha is {self.alpha}; it must be from 0 to 1.")
        for site in federation.sites:
            if site.view.private:
                raise PotluckError(
                    f'site "{site.name}" keeps its classes private, but FedRS damps the scores of '
                    "the classes that a site lacks, so every site must know all of them. Use the "
                    "method likelihood, tuning, fixed-head or ridge-head, or a view that is not "
                    "private."
                )
        check_named("FedRS", federation)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples; the damping of each class."""
        plan = super().plan(here, generator)
        counts = class_counts(here.site)
        plan.tensors["scale"] = self.alpha + (1 - self.alpha) * counts / counts.max()
        return plan

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean cross-entropy of the damped scores."""
        model = step.model
        logits = model(self.inputs(step))
        bias = model.network.layout.unflatten(model.theta).get("head.bias")
        if bias is not None:
            logits = logits - bias  # so that its gradient is 0, too
        classes = classes_of(step.site)[step.batch.index]
        return cross_entropy(step.plan.tensors["scale"] * logits, classes), step.state

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """A head without bias."""
        return theta.masked_fill(layout.mask(lambda name: name == "head.bias").to(theta.device), 0)
