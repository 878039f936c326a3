"""Learning rate over the rounds."""

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    """The share of the base learning rate in a round."""

    def factor(self, round_number: int, rounds: int) -> float:
        """The factor in round 0 … rounds − 1."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate in every round."""

    def factor(self, round_number: int, rounds: int) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 towards `floor` at the end of the run.

    Args:
      floor: the factor that the last round approaches.
    """

    floor: float = 0.0

    def factor(self, round_number: int, rounds: int) -> float:
        """1 in the first round, `floor` after the last."""
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * round_number / rounds))


@dataclass(frozen=True)
class Step:
    """Multiply by `gamma` at each milestone.

    Args:
      milestones: rounds from which on the factor applies.
      gamma:      the factor.
    """

    milestones: tuple[int, ...] = ()
    gamma: float = 0.1

    def factor(self, round_number: int, rounds: int) -> float:
        """Gamma to the number of milestones reached."""
        return self.gamma ** sum(round_number >= milestone for milestone in self.milestones)


SCHEDULES: dict[str, type[Constant] | type[Cosine] | type[Step]] = {
    "constant": Constant,
    "cosine": Cosine,
    "step": Step,
}
