"""A limit to the time that training takes, for machines that are lent for minutes.

A run that is under way when time is up stops after a checkpoint, from which it can be resumed.
"""

from math import inf
from time import monotonic

from potluck.history import Record
from potluck.study.schema import Study
from potluck.study.sweep import OnRound


class TimeIsUpError(Exception):
    """A run was stopped before its last round; what it has a checkpoint of is kept."""


class Limit:
    """How long training may go on, from now.

    Args:
      minutes: None for as long as it takes.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self._whole = inf if minutes is None else 60 * minutes
        self._end = monotonic() + self._whole

    @property
    def left(self) -> float:
        """Seconds until time is up."""
        return self._end - monotonic()

    @property
    def reached(self) -> bool:
        """Whether time is up."""
        return self.left <= 0

    def allows(self, seconds: float) -> bool:
        """Whether to start something that takes so long.

        What could be finished within the whole limit, but not in what is left of it, waits for
        the next time. What is longer than that can only be done in parts.
        """
        return not self.reached and (seconds <= self.left or seconds > self._whole)

    def kept(self, on_round: OnRound) -> OnRound:
        """A run's `on_round` that stops it in time: where the next checkpoint would come too late.

        Checkpoints are taken to be as far apart as the last two. Time is up then, for others too.
        """
        last = monotonic()

        def told(study: Study, record: Record) -> None:
            nonlocal last
            on_round(study, record)
            if record["round"] == study.rounds:
                return
            safe, now = record["round"] % study.run.checkpoint_every == 0, monotonic()
            if self.reached or (safe and now - last > self.left):
                self._end = now
                raise TimeIsUpError
            last = now if safe else last

        return told
