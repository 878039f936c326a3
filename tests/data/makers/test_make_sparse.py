"""Few labels: as many as asked for, anywhere or in each class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.makers.sparse import keep_labels, keep_labels_per_class
from potluck.errors import PotluckError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(0, 200), st.floats(0, 1), st.integers(0, 3))
def test_a_fraction_of_the_labels_is_kept(samples, fraction, seed):
    kept = keep_labels(samples, seeded(seed), fraction=fraction)
    assert kept.shape == (samples,)
    assert kept.sum() == round(samples * fraction)
    assert keep_labels(samples, seeded(seed), count=samples // 2).sum() == samples // 2


def test_a_tenth_of_mnist_is_the_4800_labels_of_fedavg_10_percent():
    assert keep_labels(48_000, seeded(), fraction=0.1).sum() == 4800


def test_every_sample_is_as_likely_to_keep_its_label():
    kept = sum(keep_labels(10, seeded(seed), count=3).double() for seed in range(2000)) / 2000
    assert kept.tolist() == pytest.approx([0.3] * 10, abs=0.045)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=150), st.floats(0, 1), st.integers(0, 3))
def test_each_class_keeps_its_fraction_and_at_least_one(drawn, fraction, seed):
    classes = torch.tensor(drawn)
    totals = torch.bincount(classes)
    kept = torch.bincount(
        classes[keep_labels_per_class(classes, seeded(seed), fraction=fraction)],
        minlength=len(totals),
    )
    expected = [max(round(n * fraction), min(n, 1) if fraction else 0) for n in totals.tolist()]
    assert kept.tolist() == expected


def test_a_count_per_class_is_kept_in_every_class():
    classes = torch.arange(100).repeat(500)  # FedMT's server: n = 25 images of each class
    kept = keep_labels_per_class(classes, seeded(), count=25)
    assert torch.equal(torch.bincount(classes[kept]), torch.full((100,), 25))


def test_the_seed_decides_which_labels_are_kept():
    classes = torch.arange(5).repeat(20)
    for keep in (
        lambda g: keep_labels(100, g, fraction=0.3),
        lambda g: keep_labels_per_class(classes, g, fraction=0.3),
    ):
        assert torch.equal(keep(seeded(1)), keep(seeded(1)))
        assert not torch.equal(keep(seeded(1)), keep(seeded(2)))


@pytest.mark.parametrize("keep", [keep_labels, keep_labels_per_class])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"as a fraction or as a count \(not both\)"),
        ({"fraction": 0.5, "count": 2}, r"as a fraction or as a count \(not both\)"),
        ({"fraction": 1.1}, "the fraction kept must be from 0 to 1, not 1.1"),
        ({"count": -1}, "the number kept must be at least 0, not -1"),
    ],
)
def test_impossible_amounts_are_explained(keep, options, message):
    given_samples = 4 if keep is keep_labels else torch.tensor([0, 0, 1, 1])
    with pytest.raises(PotluckError, match=message):
        keep(given_samples, seeded(), **options)


def test_more_labels_than_samples_is_an_error():
    with pytest.raises(PotluckError, match="cannot keep 5 labels of 4 samples"):
        keep_labels(4, seeded(), count=5)
    with pytest.raises(PotluckError, match="3 labels of class 1, which has 2 samples"):
        keep_labels_per_class(torch.tensor([0, 0, 0, 1, 1]), seeded(), count=3)
