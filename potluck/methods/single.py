"""`single`: only those whose own labels tell the target classes apart train; the baseline.

That is the server with its own samples, and any site with exact labels (or noisy ones of known
noise). All other sites sit every round out.
"""

from dataclasses import dataclass

import torch

from potluck.federation import Federation
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import AtServer, Here, Plan
from potluck.methods.target_labels import check_target_labels, separates


@dataclass(frozen=True)
class Single(Likelihood):
    """The view likelihood, where labels are of the target classes.

    Args:
      augment: how training images are varied.
    """

    def check(self, federation: Federation) -> None:
        """Somebody needs labels of the target classes."""
        super().check(federation)
        check_target_labels("single", federation)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples, or none."""
        site = here.site
        pool = torch.arange(len(site) if separates(site) else 0, device=site.inputs.device)
        return Plan(pool)

    def at_server(self) -> AtServer:
        """The server trains on its own samples."""
        return AtServer(Likelihood(augment=self.augment))
