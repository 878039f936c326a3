"""The interface of a federated optimiser: how the sites' updates become a new model.

It acts on the parameter vector θ, at a site (`begin`, `correct`, `finish`) and at the server
(`start`, `share`, `apply`). A subclass overrides what its paper changes; the defaults are
FedAvg. The weighted mean of the updates is taken before `apply` (see `average.py`).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.federated.average import Mean
from potluck.local import LocalTraining
from potluck.messages import Tensors, Update
from potluck.models.network import Layout

Weights = Literal["samples", "uniform"]


@dataclass(frozen=True, eq=False)
class Progress:
    """What a site did in a round.

    Args:
      received:  (P_s,) θ as the server sent it.
      change:    (P_s,) how far the local steps took it.
      gradients: {"sum": (P_s,) of the local gradients, before `correct`}, where the optimiser
                 `needs_gradients`.
      steps:     how many there were.
      local:     how they were taken.
    """

    received: Tensor
    change: Tensor
    gradients: Tensors
    steps: int
    local: LocalTraining


@dataclass(frozen=True, eq=False)
class Report:
    """What a site sends of its progress, and its own new state.

    Args:
      delta:   (P_s,) change of θ.
      aligned: further vectors like θ, averaged like it.
      extras:  further small tensors, averaged with the sites' weights.
      state:   what the site keeps.
    """

    delta: Tensor
    aligned: Tensors
    extras: Tensors
    state: Tensors


@dataclass(frozen=True)
class FederatedOptimiser:
    """FedAvg's behaviour, for subclasses to change.

    Args:
      weights: sites count by their number of samples, or all the same.
    """

    weights: Weights = "samples"
    needs_gradients: ClassVar[bool] = False
    """Whether `finish` looks at the sum of a site's gradients, which costs a pass each step."""

    def check(self, local: LocalTraining) -> None:
        """Raise a clear error where a setting is unknown or local training does not suit."""
        if self.weights not in get_args(Weights):
            raise PotluckError(one_of("federated.weights", self.weights, get_args(Weights)))

    def start(self, theta: Tensor) -> Tensors:
        """The server's state before the first round."""
        return {}

    def share(self, server: Tensors) -> Tensors:
        """Vectors (P,) that go out with θ; a private site gets only its own entries."""
        return {}

    def site_start(self, theta: Tensor, layout: Layout, private: bool) -> Tensors:
        """The state of a site that takes part for the first time."""
        return {}

    def begin(self, received: Tensor, site: Tensors) -> Tensor:
        """Where a site starts from: the received θ."""
        return received

    def correct(
        self, gradient: Tensor, theta: Tensor, received: Tensor, shared: Tensors, site: Tensors
    ) -> Tensor:
        """The gradient that a local step follows."""
        return gradient

    def finish(self, progress: Progress, shared: Tensors, site: Tensors) -> Report:
        """What the site sends at the end of a round."""
        return Report(progress.change, {}, {}, site)

    def change(self, update: Update) -> Tensor:
        """The change of θ at the site (P_s,), from what it sent."""
        return update.delta

    def apply(
        self, theta: Tensor, server: Tensors, mean: Mean, share: float
    ) -> tuple[Tensor, Tensors]:
        """The new θ and server state.

        Args:
          theta:  (P,) the global parameters.
          server: the server's state.
          mean:   the weighted mean of the updates.
          share:  the part of all sites that took part.
        """
        return theta + mean.delta, server
