"""What runs are compared by: one number of a run's history each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from potluck.history import Record, best_round


@dataclass(frozen=True)
class Metric:
    """A number by which runs are compared.

    Args:
      title:   what it is, with its unit.
      factor:  by which values are multiplied for people.
      rising:  whether larger is better.
      of:      the number of a run's history; None where the history lacks it.
      digits:  after the decimal point.
    """

    title: str
    factor: float
    rising: bool
    of: Callable[[Sequence[Record]], float | None]
    digits: int = 1


def _test(history: Sequence[Record]) -> Record | None:
    """The last test of a run."""
    return next((record["test"] for record in reversed(history) if "test" in record), None)


def _accuracy(history: Sequence[Record]) -> float | None:
    test = _test(history)
    return None if test is None else test["accuracy"]


def _loss(history: Sequence[Record]) -> float | None:
    test = _test(history)
    return None if test is None else test["loss"]


def _validated(history: Sequence[Record]) -> float | None:
    best = best_round([record for record in history if "test" in record])
    return None if best is None else best["test"]["accuracy"]


def _error(history: Sequence[Record]) -> float | None:
    accuracy = _accuracy(history)
    return None if accuracy is None else 1 - accuracy


def _validated_error(history: Sequence[Record]) -> float | None:
    accuracy = _validated(history)
    return None if accuracy is None else 1 - accuracy


def _worst(history: Sequence[Record]) -> float | None:
    test = _test(history)
    known = [] if test is None else [value for value in test["per_class"] if value is not None]
    return min(known, default=None)


def _seconds(history: Sequence[Record]) -> float | None:
    return sum(record.get("seconds", 0.0) for record in history)


def _correspondence(history: Sequence[Record]) -> float | None:
    if not history:
        return None
    key = "correspondence_error"
    found = [site.get(key) for site in history[-1]["sites"].values()]
    errors = [error for error in found if error is not None]
    return mean(errors) if errors else None


METRICS = {
    "accuracy": Metric("test accuracy in %", 100, True, _accuracy),
    "validated": Metric("test accuracy in %, best round in validation", 100, True, _validated),
    "error": Metric("test error in %", 100, False, _error),
    "validated-error": Metric(
        "test error in %, best round in validation", 100, False, _validated_error
    ),
    "loss": Metric("test loss", 1, False, _loss, digits=3),
    "worst-class": Metric("accuracy of the worst class in %", 100, True, _worst),
    "correspondence-error": Metric(
        "error of the estimated correspondence, ‖M̂ − M‖, mean over sites",
        1,
        False,
        _correspondence,
        digits=3,
    ),
    "seconds": Metric("seconds in all", 1, False, _seconds),
}
"""The numbers that `potluck compare` knows."""
