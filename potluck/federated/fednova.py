"""FedNova: sites that took more steps do not pull the model their way.

Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization. With a_s the total weight of site s's gradients in its own update,

    θ ← θ + η (Σ_s p_s a_s) · Σ_s p_s (θ_s − θ) / a_s
"""

from dataclasses import dataclass

from torch import Tensor

from potluck.errors import PotluckError
from potluck.federated.average import Mean
from potluck.federated.fedavg import FedAvg
from potluck.federated.optimiser import Progress, Report
from potluck.local import SGD, LocalTraining
from potluck.messages import Tensors, Update


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedAvg with normalised local progress."""

    def check(self, local: LocalTraining) -> None:
        """FedNova counts SGD steps from rest; others have no such count."""
        super().check(local)
        if not isinstance(local.optimiser, SGD):
            raise PotluckError(
                "federated.name is fednova, which normalises the progress of SGD, but "
                f"local.optimiser is {type(local.optimiser).__name__.lower()}; use sgd, or "
                "another federated optimiser."
            )
        if local.optimiser.momentum and local.optimiser_state == "keep":
            raise PotluckError(
                "federated.name is fednova, which counts the progress that each round makes from "
                'rest, but local.optimiser_state is "keep"; set it to "reset".'
            )

    def finish(self, progress: Progress, shared: Tensors, site: Tensors) -> Report:
        """Send the change per unit of progress, and the progress a_s."""
        assert isinstance(progress.local.optimiser, SGD)
        accumulated = progress.local.optimiser.accumulated(progress.steps)
        delta = progress.change / accumulated
        return Report(delta, {}, {"accumulated": delta.new_tensor(accumulated)}, site)

    def change(self, update: Update) -> Tensor:
        """The normalised change times the progress."""
        return update.delta * update.extras["accumulated"]

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """Scale the mean normalised change back by the mean progress."""
        return theta + self.server_lr * mean.extras["accumulated"] * mean.delta, server
