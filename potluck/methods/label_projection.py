"""`label-projection`: FedMT (L), soft labels by the inverse of the correspondence.

    loss = mean_i −Σ_k (A⁺ e_zi)_k log softmax(f(x_i))_k,   A⁺ the pseudo-inverse of the codebook

(Zhang et al. 2023, eq. 4, after Patrini et al. 2017, backward correction.) For nested label
spaces A⁺ spreads a coarse label evenly over its classes; for noisy labels it is T⁻¹, whose
negative entries undo the noise in expectation; for exact labels it changes nothing. FedMT (P),
which projects the probabilities instead, is `likelihood`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import soft_cross_entropy
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.method import AtServer, Here, Plan, Step


@dataclass(frozen=True)
class LabelProjection(Augmented):
    """Cross-entropy against projected labels.

    Args:
      augment: how training images are varied.
    """

    def check(self, federation: Federation) -> None:
        """Every site needs labels that follow from the class with known probabilities."""
        super().check(federation)
        for site in federation.everyone:
            codebook = site.view.codebook
            columns = torch.allclose(codebook.sum(0), torch.ones_like(codebook[0]))
            if not columns or len(codebook) == 1:
                raise PotluckError(
                    f'site "{site.name}": label projection inverts P(label | class), which a view '
                    f"of kind {site.view.kind} does not have; use it with exact, coarse and noisy "
                    'labels, or set method.name = "likelihood", which takes every view.'
                )

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples; and the projection of each label."""
        site = here.site
        projected = projected_labels(site.log_a.exp())
        return Plan(torch.arange(len(site), device=site.inputs.device), {"targets": projected})

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean cross-entropy against the batch's projected labels."""
        site, plan, batch = step.site, step.plan, step.batch
        targets = plan.tensors["targets"][site.symbols[batch.index]]
        return soft_cross_entropy(step.model(self.inputs(step)), targets).mean(), step.state

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)


def projected_labels(codebook: Tensor) -> Tensor:
    """The soft label of each symbol: the columns of the codebook's pseudo-inverse.

    Args:
      codebook: (Z, K) P(z | y).

    Returns:
      (Z, K) weights of the classes; rows may have negative entries.
    """
    return torch.linalg.pinv(codebook.double()).T.to(codebook.dtype)
