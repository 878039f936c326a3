"""Means, deviations and paired tests over seeds."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from scipy import stats

from potluck.errors import PotluckError, one_of

Test = Literal["t", "wilcoxon"]

TESTS: dict[Test, str] = {"t": "paired t-test", "wilcoxon": "Wilcoxon signed-rank test"}


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n − 1); 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def paired_p(first: Sequence[float], second: Sequence[float], test: Test = "t") -> float | None:
    """The two-sided p-value of a paired test that two settings do equally well.

    Args:
      first:  one value per seed.
      second: the other setting's values, for the same seeds.
      test:   "t" assumes differences that are about normal; "wilcoxon" does not, and needs at
              least six seeds to find anything at 5 %.

    Returns:
      the p-value; None with fewer than two pairs.
    """
    if test not in get_args(Test):
        raise PotluckError(one_of("test", test, get_args(Test)))
    differences = np.subtract(first, second)
    if len(differences) < 2:
        return None
    if not differences.any():
        return 1.0
    if test == "wilcoxon":
        return float(stats.wilcoxon(differences).pvalue)
    if np.ptp(differences) <= 1e-9 * np.abs(differences).max():  # t is infinite, but for rounding
        return 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for their number after Holm (1979); None stays None."""
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = largest
    return adjusted
