"""SCAFFOLD: correct the drift of local steps with control variates.

Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging (option II):

    step:    g − c_s + c
    finish:  c_s⁺ = mean of this round's g
    server:  θ ← θ + η · mean change;   c ← c + (share of sites) · mean(c_s⁺ − c_s)

For plain SGD that mean is the paper's c_s − c + (θ_received − θ_s) / (steps · lr). Unlike that
expression it stays a gradient with momentum, Adam or clipping, whose steps have other lengths.

Means use the sites' weights, so that c stays the mean of all c_s under the same weights as
the objective.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from potluck.federated.average import Mean
from potluck.federated.fedavg import FedAvg
from potluck.federated.optimiser import Progress, Report
from potluck.messages import Tensors
from potluck.models.network import Layout


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg with control variates c (server) and c_s (site)."""

    needs_gradients: ClassVar[bool] = True

    def start(self, theta: Tensor) -> Tensors:
        """No correction yet: c = 0."""
        return {"control": torch.zeros_like(theta)}

    def share(self, server: Tensors) -> Tensors:
        """The control variate c goes out with θ."""
        return {"control": server["control"]}

    def site_start(self, theta: Tensor, layout: Layout, private: bool) -> Tensors:
        """No correction yet: c_s = 0."""
        return {"control": torch.zeros_like(theta)}

    def correct(
        self, gradient: Tensor, theta: Tensor, received: Tensor, shared: Tensors, site: Tensors
    ) -> Tensor:
        """The corrected gradient g − c_s + c."""
        return gradient - site["control"] + shared["control"]

    def finish(self, progress: Progress, shared: Tensors, site: Tensors) -> Report:
        """Send the change of θ and of c_s; keep c_s."""
        control = progress.gradients["sum"] / progress.steps
        delta = progress.change
        return Report(delta, {"control": control - site["control"]}, {}, {"control": control})

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """Move θ and c."""
        control = server["control"] + share * mean.aligned["control"]
        return theta + self.server_lr * mean.delta, {"control": control}
