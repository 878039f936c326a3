"""FedAdagrad: adaptive server step with v ← v + Δ² (Reddi et al. 2021)."""

from dataclasses import dataclass

from torch import Tensor

from potluck.federated.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """Adaptive server step without momentum; see `adaptive.py`."""

    beta1: float = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The rule v ← v + Δ²."""
        return v + square
