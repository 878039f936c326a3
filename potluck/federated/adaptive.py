"""Adaptive server steps: the part that FedAdam, FedYogi and FedAdagrad share.

Reddi et al. 2021, Adaptive Federated Optimization, Alg. 2. With Δ the mean change,

    m ← β₁ m + (1 − β₁) Δ;   v by each optimiser's rule, from v = τ²;   θ ← θ + η m / (√v + τ)
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.federated.average import Mean
from potluck.federated.optimiser import FederatedOptimiser
from potluck.messages import Tensors


@dataclass(frozen=True)
class Adaptive(FederatedOptimiser):
    """A server step scaled entry by entry.

    Args:
      server_lr: η.
      beta1:     decay of the mean change.
      tau:       degree of adaptivity; larger is closer to FedAvg with momentum.
    """

    server_lr: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The optimiser's rule for v, given Δ² (P,)."""

    def start(self, theta: Tensor) -> Tensors:
        """At first m = 0, v = τ²."""
        return {"m": torch.zeros_like(theta), "v": torch.full_like(theta, self.tau**2)}

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """θ + η m / (√v + τ)."""
        m = self.beta1 * server["m"] + (1 - self.beta1) * mean.delta
        v = self.second(server["v"], mean.delta**2)
        return theta + self.server_lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}
