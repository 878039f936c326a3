"""FedAdam: adaptive server step with v ← β₂ v + (1 − β₂) Δ² (Reddi et al. 2021)."""

from dataclasses import dataclass

from torch import Tensor

from potluck.federated.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """Adaptive server step; see `adaptive.py`.

    Args:
      beta2: β₂, decay of the squared change.
    """

    beta2: float = 0.99

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The rule v ← β₂ v + (1 − β₂) Δ²."""
        return self.beta2 * v + (1 - self.beta2) * square
