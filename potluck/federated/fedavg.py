"""FedAvg: move by the weighted mean of the sites' changes.

McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.

    θ ← θ + η Σ_s p_s (θ_s − θ)

The papers in Potluck write this sum with a minus sign; see METHODS §2 row 1.
"""

from dataclasses import dataclass

from torch import Tensor

from potluck.federated.average import Mean
from potluck.federated.optimiser import FederatedOptimiser
from potluck.messages import Tensors


@dataclass(frozen=True)
class FedAvg(FederatedOptimiser):
    """Federated averaging.

    Args:
      server_lr: η, the server's step along the mean change.
    """

    server_lr: float = 1.0

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """θ + η · mean change."""
        return theta + self.server_lr * mean.delta, server
