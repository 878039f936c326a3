"""FedProx: keep local models near the global one.

Li et al. 2020, Federated Optimization in Heterogeneous Networks. Each local loss gets

    + μ/2 ‖θ − θ_received‖²

At a private site the head is left out: its rows are held by few sites and must move freely
(Private label sets, §3).
"""

from dataclasses import dataclass

from torch import Tensor

from potluck.federated.fedavg import FedAvg
from potluck.messages import Tensors
from potluck.models.network import HEAD, Layout


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term.

    Args:
      mu: its weight.
    """

    mu: float = 0.01

    def site_start(self, theta: Tensor, layout: Layout, private: bool) -> Tensors:
        """The pull on each entry: μ, and 0 on a private site's head."""
        if not private:
            return {"pull": theta.new_full((1,), self.mu)}
        body = layout.mask(lambda name: name not in HEAD).to(theta.device)
        return {"pull": self.mu * body.to(theta.dtype)}

    def correct(
        self, gradient: Tensor, theta: Tensor, received: Tensor, shared: Tensors, site: Tensors
    ) -> Tensor:
        """The gradient g + μ (θ − θ_received)."""
        return gradient + site["pull"] * (theta - received)
