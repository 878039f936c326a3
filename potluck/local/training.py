"""How a site trains within a round: how long, in what batches, with which optimiser."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.local.optimisers import SGD, LocalOptimiser
from potluck.local.schedules import Constant, Schedule

LastBatch = Literal["keep", "drop"]
OptimiserState = Literal["reset", "keep"]


@dataclass(frozen=True)
class LocalTraining:
    """A site's training within one round.

    Args:
      lr:              base learning rate.
      optimiser:       what turns gradients into steps.
      schedule:        learning rate over the rounds.
      epochs:          passes over the site's samples in a round.
      steps:           a fixed number of steps in a round instead of epochs.
      batch_size:      samples per step.
      last_batch:      keep or drop the last batch of an epoch when it is not full.
      l1:              weight of Σ|θ| in the loss.
      clip:            largest gradient norm; longer gradients are scaled down to it.
      optimiser_state: start each round afresh, or keep momentum at the site between rounds.
    """

    lr: float = 0.1
    optimiser: LocalOptimiser = field(default_factory=SGD)
    schedule: Schedule = field(default_factory=Constant)
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 32
    last_batch: LastBatch = "keep"
    l1: float = 0.0
    clip: float | None = None
    optimiser_state: OptimiserState = "reset"

    def check(self) -> None:
        """Raise a clear error for settings that cannot train."""
        for name in ("lr", "batch_size", "epochs"):
            if not getattr(self, name) > 0:
                raise PotluckError(f"local.{name} is {getattr(self, name)}; it must be above 0.")
        if self.steps is not None and self.steps < 1:
            raise PotluckError(f"local.steps is {self.steps}; a round needs at least one step.")
        if self.clip is not None and self.clip <= 0:
            raise PotluckError(f"local.clip is {self.clip}; a gradient norm limit is above 0.")
        for name, known in (("last_batch", LastBatch), ("optimiser_state", OptimiserState)):
            if getattr(self, name) not in get_args(known):
                raise PotluckError(one_of(f"local.{name}", getattr(self, name), get_args(known)))
        self.optimiser.check()

    def batches(self, pool: Tensor, generator: torch.Generator) -> list[Tensor]:
        """The samples of each step of a round.

        Args:
          pool:      (n,) indices of the samples to train on.
          generator: shuffles each epoch.

        Returns:
          one index tensor per step, each of at most `batch_size` samples.
        """
        batches: list[Tensor] = []
        while len(batches) < self.steps if self.steps else not batches:
            for _ in range(1 if self.steps else self.epochs):
                order = pool[torch.randperm(len(pool), generator=generator).to(pool.device)]
                epoch = list(order.split(self.batch_size))
                # A site smaller than one batch still trains.
                if self.last_batch == "drop" and len(epoch) > 1:
                    epoch = [batch for batch in epoch if len(batch) == self.batch_size]
                batches += epoch
        return batches[: self.steps]


def clipped(gradient: Tensor, limit: float | None) -> Tensor:
    """The gradient (P,), scaled down to norm `limit` where it is longer."""
    if limit is None:
        return gradient
    return gradient * (limit / (gradient.norm() + 1e-6)).clamp(max=1.0)
