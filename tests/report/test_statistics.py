"""Paired tests and their correction, against formulas and enumeration."""

from itertools import product
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from potluck.errors import PotluckError
from potluck.report.statistics import deviation, holm, paired_p

FIRST, SECOND = [91.0, 92.5, 90.0, 93.0, 92.0, 94.0], [89.0, 91.0, 90.6, 90.0, 91.5, 92.9]


def test_the_paired_t_test_is_that_of_the_differences():
    differences = [a - b for a, b in zip(FIRST, SECOND, strict=True)]
    statistic = mean(differences) / (stdev(differences) / len(differences) ** 0.5)
    expected = 2 * student.sf(abs(statistic), len(differences) - 1)
    assert paired_p(FIRST, SECOND) == pytest.approx(expected)
    assert paired_p(SECOND, FIRST) == pytest.approx(expected)


def test_the_wilcoxon_test_counts_the_signs_that_are_as_extreme():
    differences = sorted((a - b for a, b in zip(FIRST, SECOND, strict=True)), key=abs)
    ranks = range(1, len(differences) + 1)
    seen = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    middle = sum(ranks) / 2
    sums = [
        sum(rank for rank, positive in zip(ranks, signs, strict=True) if positive)
        for signs in product([False, True], repeat=len(differences))
    ]
    expected = mean(abs(s - middle) >= abs(seen - middle) for s in sums)
    assert paired_p(FIRST, SECOND, "wilcoxon") == pytest.approx(expected)


def test_one_pair_is_no_test():
    assert paired_p([1.0], [2.0]) is None


def test_equal_results_do_not_differ_and_constant_differences_do():
    assert paired_p([1.0, 2.0], [1.0, 2.0]) == 1
    assert paired_p([2.0, 3.0], [1.0, 2.0]) == 0


def test_an_unknown_test_is_refused():
    with pytest.raises(PotluckError, match='unknown test "tt"'):
        paired_p([1.0, 2.0], [2.0, 3.0], "tt")


def test_holm_by_hand():
    """Sorted: 0.01 · 3, 0.02 · 2, 0.03 · 1, each at least the one before."""
    assert holm([0.03, None, 0.01, 0.02]) == pytest.approx([0.04, None, 0.03, 0.04])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_makes_a_p_value_smaller_nor_changes_their_order(values):
    adjusted = holm(values)
    assert all(after >= before for before, after in zip(values, adjusted, strict=True))
    assert sorted(adjusted) == [
        adjusted[i] for i in sorted(range(len(values)), key=values.__getitem__)
    ]


def test_a_single_value_has_no_deviation():
    assert deviation([3.0]) == 0
    assert deviation([1.0, 3.0]) == pytest.approx(2**0.5)
