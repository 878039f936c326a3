"""What each site was of a round's average update: against sums written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.engines.contribution import KEPT, WIDTH, contributions, keeper, part, sketch
from potluck.federated import RunningMean, Weighed
from potluck.messages import Update


def gathered(updates, size, keep=lambda vectors: vectors):
    """(contributions, average) of (name, delta, weight, entry weights, entries)."""
    mean, parts = RunningMean(size), []
    for name, delta, weight, own, entries in updates:
        weighed = Weighed(Update(name, 1, delta, {}), weight, entries, own)
        mean.add(weighed)
        parts.append(part([weighed], size, keep))
    average = mean.mean()
    return contributions(parts, average.delta, average.holders, keep), average.delta


def test_two_sites_by_hand():
    """Δ = ¾ (2, 0) + ¼ (0, 4) = (1.5, 1); ‖Δ‖² = 3.25."""
    found, average = gathered(
        [
            ("a", torch.tensor([2.0, 0.0]), 3.0, None, None),
            ("b", torch.tensor([0.0, 4.0]), 1.0, None, None),
        ],
        2,
    )
    assert average.tolist() == [1.5, 1.0]
    assert found["a"] == {
        "weight": 0.75,
        "contribution": pytest.approx(0.75 * 2 * 1.5 / 3.25, abs=1e-6),
        "agreement": pytest.approx(1.5 / 3.25**0.5, abs=1e-6),
    }
    assert found["b"]["contribution"] == pytest.approx(0.25 * 4 / 3.25, abs=1e-6)


def test_a_site_that_pulls_against_the_others_contributes_less_than_nothing():
    ahead, back = torch.tensor([1.0, 0.0]), torch.tensor([-0.5, 0.1])
    found, _ = gathered([("a", ahead, 2.0, None, None), ("b", back, 1.0, None, None)], 2)
    assert found["b"]["contribution"] < 0
    assert found["b"]["agreement"] < 0
    assert found["a"]["contribution"] > 1


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_contributions_sum_to_one_whoever_holds_and_weighs_what(seed, sites):
    generator = torch.Generator().manual_seed(seed)
    size, updates = 12, []
    for number in range(sites):
        entries = torch.randperm(size, generator=generator)[: 4 + number]
        entries = None if number == 0 else entries
        count = size if entries is None else len(entries)
        delta = torch.randn(count, generator=generator)
        own = torch.rand(count, generator=generator) + 0.1 if number % 2 else None
        updates.append((f"site {number}", delta, 1.0 + number, own, entries))
    found, _ = gathered(updates, size)
    assert sum(one["contribution"] for one in found.values()) == pytest.approx(1, abs=1e-4)
    assert sum(one["weight"] for one in found.values()) == pytest.approx(1, abs=1e-4)


def test_agreement_is_the_cosine_over_what_a_site_holds():
    whole, own = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([4.0, -1.0])
    entries = torch.tensor([3, 1])
    found, average = gathered([("a", whole, 1.0, None, None), ("b", own, 1.0, None, entries)], 4)
    expected = torch.cosine_similarity(own, average[entries], dim=0)
    assert found["b"]["agreement"] == pytest.approx(float(expected), abs=1e-6)


def test_a_round_in_which_nobody_moved_has_no_contributions():
    still = torch.zeros(3)
    found, _ = gathered([("a", still, 1.0, None, None), ("b", still, 1.0, None, None)], 3)
    assert found["a"] == {"weight": 0.5, "contribution": 0.0, "agreement": 0.0}


def test_sketches_give_the_same_numbers_to_a_few_per_cent():
    generator = torch.Generator().manual_seed(3)
    common, *own = torch.randn(4, 100_000, generator=generator)
    entries = torch.randperm(100_000, generator=generator)[:60_000]
    updates = [
        ("a", common + own[0], 3.0, None, None),
        ("b", common - own[1], 1.0, None, None),
        ("c", (common + own[2])[entries], 2.0, None, entries),
    ]
    exact, _ = gathered(updates, 100_000)
    estimated, _ = gathered(updates, 100_000, sketch)
    for name, numbers in exact.items():
        assert estimated[name] == pytest.approx(numbers, abs=4 / WIDTH**0.5)


def test_memory_for_updates_is_bounded():
    vectors = torch.ones(2, 10)
    assert keeper(10, KEPT // 10)(vectors) is vectors
    assert keeper(KEPT // 10 + 1, 10) is sketch


def test_sketches_of_large_models_keep_scalar_products_to_a_few_per_cent():
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(300_000, generator=generator)
    second = 0.5 * first + torch.randn(300_000, generator=generator)
    length = float(first.norm() * second.norm())
    sketches = sketch(torch.stack([first, second]))
    error = float(sketches[0] @ sketches[1] - first @ second) / length
    assert sketches.shape == (2, WIDTH)
    assert abs(error) < 4 / WIDTH**0.5


def test_sketches_of_small_models_are_exact():
    generator = torch.Generator().manual_seed(2)
    first, second = vectors = torch.randn(2, WIDTH, generator=generator)
    one, other = sketch(vectors)
    assert float(one @ other) == pytest.approx(float(first @ second), rel=1e-4)


def test_updates_that_trained_together_are_what_they_are_one_by_one():
    """Rows of one matrix, as stacked sites send them; and vectors from anywhere."""
    generator = torch.Generator().manual_seed(4)
    matrix = torch.randn(5, 40_000, generator=generator)
    for deltas in (list(matrix), [row.clone() for row in matrix]):
        weighed = [
            Weighed(Update(f"site {number}", 1, delta, {}), 1.0 + number)
            for number, delta in enumerate(deltas)
        ]
        average = torch.stack([one.weight * one.update.delta for one in weighed]).sum(0) / 15
        holders = torch.tensor(15.0)
        for keep in (lambda vectors: vectors, sketch):
            alone = [part([one], 40_000, keep) for one in weighed]
            together = [part(weighed[:2], 40_000, keep), part(weighed[2:], 40_000, keep)]
            expected = contributions(alone, average, holders, keep)
            found = contributions(together, average, holders, keep)
            assert list(found) == list(expected)
            for name, numbers in expected.items():
                assert found[name] == pytest.approx(numbers, abs=3e-6)
