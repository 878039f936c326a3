"""FedLLP-VAT: FedLLP with consistency under adversarial disturbance, a baseline of FedUL.

Lu et al. 2022 (appendix D.2), after LLP-VAT (Tsai and Lin 2020):

    L = L_m + α w(r) mean_i KL( p(x_i) ‖ p(x_i + r_adv,i) ),   ‖r_adv,i‖ = ε

The weight rises over the first R rounds, w(r) = exp(−5 (1 − r/R)²) for r < R and 1 after. The
public code computes w from the step within an epoch, which keeps it near 1 % for good: there, the
consistency term is practically switched off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses.vat import adversarial_divergence
from potluck.messages import Tensors
from potluck.methods.fedllp import FedLLP
from potluck.methods.method import Here, Plan, SiteData, Step


@dataclass(frozen=True)
class FedLLPVAT(FedLLP):
    """FedLLP with virtual adversarial training.

    Args:
      augment: how training images are varied.
      alpha:   α, weight of the consistency term once it is fully on.
      epsilon: ε, length of the disturbance of inputs in [0, 1].
      ramp:    R, the rounds over which the weight rises.
    """

    alpha: float = 0.05
    epsilon: float = 6.0
    ramp: int = 20

    def check(self, federation: Federation) -> None:
        """As every method for sets, with options that make sense."""
        super().check(federation)
        for name in ("alpha", "epsilon", "ramp"):
            if not getattr(self, name) >= 0:
                raise PotluckError(
                    f"method.{name} is {getattr(self, name)}; it must be at least 0."
                )

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples, and the weight of the consistency term in this round."""
        plan = super().plan(here, generator)
        weight = self.alpha * ramp_up(here.model.round, self.ramp)
        tensors = {"consistency": torch.tensor(weight, device=here.site.inputs.device)}
        return replace(plan, tensors=tensors, metrics={"consistency_weight": weight})

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """Besides the augmentation: where the search for the worst disturbance starts."""
        varied = super().draw(site, plan, batches, generator)
        shape = site.inputs.shape[1:]
        return [
            {
                **varied[step],
                "noise": torch.randn(len(batch), *shape, generator=generator).to(batch.device),
            }
            for step, batch in enumerate(batches)
        ]

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """The proportion loss of one set, and the consistency of its predictions."""
        model = step.model
        value, state = super().loss(step)

        def undisturbed(inputs: Tensor) -> Tensor:
            # Batch-norm statistics are those of real samples: only copies of them may move.
            copies = {name: buffer.clone() for name, buffer in model.buffers.items()}
            return replace(model, buffers=copies)(inputs)

        divergence = adversarial_divergence(
            undisturbed, self.inputs(step), step.batch.draws["noise"], self.epsilon
        )
        return value + step.plan.tensors["consistency"] * divergence.mean(), state


def ramp_up(round_number: int, rounds: int) -> float:
    """Share of the full weight in a round: exp(−5 (1 − r/R)²), and 1 from round R on."""
    if round_number >= rounds:
        return 1.0
    return math.exp(-5 * (1 - round_number / rounds) ** 2)
