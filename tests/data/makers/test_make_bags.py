"""Bags: disjoint, equal, all data used; and the quirks of FedUL's code where asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.makers.bags import (
    draw_priors,
    identifiable_bags,
    make_bags,
    official_bags,
    official_iid_priors,
    perturb,
)
from potluck.data.partitions import majority_classes
from potluck.errors import PotluckError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def with_counts(counts):
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return classes[torch.randperm(len(classes), generator=seeded(99))]


def assert_says_what_is_in_it(bags, classes):
    """Compare a Bags with what is counted bag by bag."""
    bag_count, num_classes = bags.priors.shape
    inside = [classes[bags.index[bags.bag == m]] for m in range(bag_count)]
    assert bags.sizes.tolist() == [len(i) for i in inside]
    found = torch.stack([torch.bincount(i, minlength=num_classes) / len(i) for i in inside])
    assert torch.allclose(bags.priors, found)


# --- priors


def test_priors_favour_one_class_in_turn():
    priors = draw_priors(24, 10, seeded())
    assert torch.allclose(priors.sum(1), torch.ones(24))
    rows = torch.arange(24)
    # before normalising: U[0.1, 1], ten times that for the favourite
    others = torch.ones(24, 10, dtype=torch.bool)
    others[rows, rows % 10] = False
    ratio = priors[others].view(24, 9).amax(1) / priors[others].view(24, 9).amin(1)
    assert (ratio <= 10).all()
    many = draw_priors(5000, 10, seeded())
    favourite = many[torch.arange(5000), torch.arange(5000) % 10].mean().item()
    assert favourite == pytest.approx(0.5, abs=0.03)  # about 5.5 of 5.5 + 9·0.55


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
def test_official_iid_priors_sum_to_one_over_the_bags(bags, num_classes, seed):
    priors = official_iid_priors(5, bags, num_classes, seeded(seed))
    assert torch.allclose(priors.sum(0), torch.ones(num_classes))


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.8, 1.6])
def test_perturbed_priors_stay_priors_and_vary_with_epsilon(epsilon):
    priors = draw_priors(4000, 10, seeded())
    noisy = perturb(priors, epsilon, seeded(1))
    assert torch.allclose(noisy.sum(1), torch.ones(4000), atol=1e-5)
    assert (noisy >= 0).all()
    # relative to one another, entries vary by factors from 1 − ε to 1 + ε
    factor = noisy / priors
    smallest = (factor.amin(1) / factor.amax(1)).min().item()
    assert smallest == pytest.approx(max(0, (1 - epsilon) / (1 + epsilon)), abs=0.02)


def test_a_row_that_would_be_clipped_away_is_drawn_again():
    priors = torch.tensor([[1.0, 0.0]]).repeat(2000, 1)
    assert torch.equal(perturb(priors, 5.0, seeded()), priors)


# --- fair bags


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=7),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_bags_hold_each_sample_once_and_know_their_proportions(counts, bags, seed):
    classes = with_counts([c + 5 for c in counts])
    made = make_bags(classes, draw_priors(bags, len(counts), seeded(seed)), seeded(seed))
    assert torch.equal(made.index, torch.arange(len(classes)))
    assert ((made.bag >= 0) & (made.bag < bags)).all()
    assert_says_what_is_in_it(made, classes)
    assert (made.sizes - len(classes) / bags).abs().max() < 1.5


def test_priors_that_fit_the_samples_are_met_exactly():
    wanted = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    made = make_bags(with_counts([10, 10, 10]), wanted, seeded())
    assert made.sizes.tolist() == [10, 10, 10]
    assert torch.allclose(made.priors, wanted)


def test_priors_that_do_not_fit_keep_their_odds_ratios():
    wanted = draw_priors(4, 3, seeded())
    made = make_bags(with_counts([300_000, 30_000, 90_000]), wanted, seeded())

    def odds_ratios(table):
        logs = table.double().log()
        return logs - logs[:1] - logs[:, :1] + logs[:1, :1]

    assert made.sizes.tolist() == [105_000] * 4
    assert torch.allclose(odds_ratios(made.priors), odds_ratios(wanted), atol=0.01)


def test_pure_bags_of_unequal_classes_still_use_every_sample():
    made = make_bags(with_counts([10, 20, 30]), torch.eye(3), seeded())
    assert made.sizes.tolist() == [10, 20, 30]
    assert torch.equal(made.priors, torch.eye(3))


def test_a_class_the_site_has_not_is_in_no_bag():
    classes = torch.tensor([0, 2]).repeat(30)
    made = make_bags(classes, draw_priors(3, 4, seeded()), seeded())
    assert (made.priors[:, [1, 3]] == 0).all()
    assert_says_what_is_in_it(made, classes)


# --- identifiable bags


@pytest.mark.parametrize("seed", range(20))
def test_200_samples_of_10_classes_make_12_bags_that_tell_all_classes_apart(seed):
    classes = torch.randint(10, (200,), generator=seeded(seed))
    made = identifiable_bags(classes, 12, 10, seeded(seed))
    assert torch.linalg.matrix_rank(made.priors, rtol=1e-3) == 10
    assert made.sizes.sum() == 200
    assert made.sizes.min() >= 14
    assert made.sizes.max() <= 19
    assert_says_what_is_in_it(made, classes)


def test_bags_of_a_site_without_some_classes_tell_its_own_apart():
    classes = torch.tensor([0, 3, 7, 8]).repeat_interleave(torch.tensor([3, 100, 40, 57]))
    made = identifiable_bags(classes, 6, 10, seeded())
    assert made.priors.shape == (6, 10)
    assert torch.linalg.matrix_rank(made.priors, rtol=1e-3) == 4


def test_the_seed_decides_the_bags():
    classes = torch.arange(5).repeat(20)
    priors = draw_priors(6, 5, seeded())
    for make in (
        lambda g: make_bags(classes, priors, g).bag,
        lambda g: identifiable_bags(classes, 6, 5, g).bag,
        lambda g: official_bags(classes, priors, g).index,
        lambda g: draw_priors(6, 5, g),
        lambda g: official_iid_priors(2, 6, 5, g),
        lambda g: perturb(priors, 0.5, g),
    ):
        assert torch.equal(make(seeded(1)), make(seeded(1)))
        assert not torch.equal(make(seeded(1)), make(seeded(2)))


# --- FedUL's public code


def fedul_iid_priors_of_seed_0(bags):
    """The table FedUL's code draws from numpy's old generator for 5 clients."""
    old = np.random.RandomState(0)
    summed = np.zeros((bags, 10))
    for _ in range(5):
        weights = old.random_sample((bags, 10)) * 0.9 + 0.1
        weights[np.arange(bags), np.arange(bags) % 10] *= 10
        summed += weights / weights.sum(1, keepdims=True)
    return torch.from_numpy(summed / summed.sum(0))


@pytest.mark.parametrize(("bags", "used"), [(10, 9550), (20, 4699), (40, 2197)])
def test_official_iid_bags_use_the_data_fedul_uses(bags, used):
    classes = torch.arange(10).repeat(960)
    made = official_bags(classes, fedul_iid_priors_of_seed_0(bags), seeded())
    assert made.sizes.sum() == used
    drawn = official_bags(classes, official_iid_priors(5, bags, 10, seeded()), seeded())
    assert drawn.sizes.sum().item() == pytest.approx(used, abs=15)  # what rounding down leaves
    assert_says_what_is_in_it(drawn, classes)


@pytest.mark.parametrize("bags", [10, 20, 40])
def test_official_cifar_bags_use_7900_samples_at_any_number_of_bags(bags):
    classes = torch.arange(10).repeat(800)
    made = official_bags(classes, draw_priors(bags, 10, seeded()), seeded())
    assert made.sizes.sum().item() == pytest.approx(8000 - 5 * bags, abs=25)


def test_official_bags_overlap_but_repeat_no_sample_within_a_bag():
    classes = torch.arange(10).repeat(960)
    made = official_bags(classes, draw_priors(10, 10, seeded()), seeded())
    assert len(made.index.unique()) < 0.8 * len(made.index)
    for m in range(10):
        inside = made.index[made.bag == m]
        assert len(inside.unique()) == len(inside)


def test_official_non_iid_bags_take_all_of_a_class_too_small_for_its_bag():
    classes = with_counts([4800] * 10)
    site = classes[majority_classes(classes, 5, seeded())[0]]
    made = official_bags(site, draw_priors(10, 10, seeded()), seeded())
    have = torch.bincount(site)
    in_bag = (made.priors * made.sizes.unsqueeze(1)).round().long()
    assert (in_bag <= have).all()
    minority = torch.arange(2, 10)
    assert torch.equal(in_bag[minority, minority], have[minority])  # wanted half of 960
    assert_says_what_is_in_it(made, site)


# --- errors

FOUR = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: draw_priors(0, 3, g), "need at least 1 bag and 1 class, not 0 and 3"),
        (lambda g: draw_priors(3, 0, g), "need at least 1 bag and 1 class, not 3 and 0"),
        (lambda g: draw_priors(3, 3, g, low=0.0), "need 0 < low <= high and boost > 0, not low=0"),
        (lambda g: draw_priors(3, 3, g, low=2.0), "not low=2.0, high=1.0, boost=10.0"),
        (lambda g: draw_priors(3, 3, g, boost=0.0), "boost > 0, not low=0.1, high=1.0, boost=0.0"),
        (lambda g: make_bags(FOUR, torch.tensor([[0.5, 0.4]]), g), "bag 0 sum to 0.9, not 1"),
        (lambda g: make_bags(FOUR, torch.tensor([[1.5, -0.5]]), g), "negative priors"),
        (lambda g: make_bags(FOUR, torch.tensor([[1.0]]), g), "class 1, but priors for only 1"),
        (
            lambda g: make_bags(FOUR, torch.tensor([[1.0, 0.0]]), g),
            "class 1 has samples, but its prior is 0 in every bag",
        ),
        (
            lambda g: make_bags(FOUR, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), g),
            "bag 1 would be empty, as too few samples are of the classes it favours",
        ),
        (lambda g: make_bags(FOUR, draw_priors(5, 2, g), g), "cannot fill 5 bags with 4 samples"),
        (lambda g: identifiable_bags(FOUR, 1, 2, g), "1 bags cannot tell 2 classes apart"),
        (lambda g: identifiable_bags(FOUR, 2, 1, g), "class 1, but priors for only 1 classes"),
        (
            lambda g: identifiable_bags(FOUR, 2, 2, g, separation=1.1),
            "none of 100 draws of 2 bags from 4 samples told the 2 classes apart",
        ),
        (lambda g: official_iid_priors(0, 3, 3, g), "number of sites must be at least 1, not 0"),
        (lambda g: official_bags(FOUR, draw_priors(5, 2, g), g), "bag 0 would be empty"),
        (lambda g: perturb(torch.eye(2), -0.1, g), "epsilon must be at least 0, not -0.1"),
    ],
)
def test_impossible_bags_are_explained(make, message):
    with pytest.raises(PotluckError, match=message):
        make(seeded())
