"""FedAvgM: server momentum on the mean change.

Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification:  v ← β v + mean change;  θ ← θ + η v.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.federated.average import Mean
from potluck.federated.fedavg import FedAvg
from potluck.messages import Tensors


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with server momentum.

    Args:
      momentum: β.
    """

    momentum: float = 0.9

    def start(self, theta: Tensor) -> Tensors:
        """No velocity."""
        return {"velocity": torch.zeros_like(theta)}

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """θ + η v."""
        velocity = self.momentum * server["velocity"] + mean.delta
        return theta + self.server_lr * velocity, {"velocity": velocity}
