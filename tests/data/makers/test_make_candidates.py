"""Candidate sets: the truth is in them, and their sizes are the papers'."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.makers.candidates import (
    class_dependent,
    confusable,
    drop_truth,
    pick_one,
    reveal,
    uniform,
)
from potluck.errors import PotluckError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def has_truth(mask, classes):
    return mask[torch.arange(len(classes)), classes]


@given(
    st.integers(2, 12),
    st.lists(st.integers(0, 11), max_size=60),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 5),
)
def test_every_set_has_the_truth_and_another_class(num_classes, drawn, rho, seed):
    classes = torch.tensor(drawn, dtype=torch.long) % num_classes
    mask = uniform(classes, num_classes, rho, seeded(seed))
    assert mask.shape == (len(classes), num_classes)
    assert mask.dtype == torch.bool
    assert has_truth(mask, classes).all()
    assert (mask.sum(1) >= 2).all()


@pytest.mark.parametrize(
    ("num_classes", "rho", "size"),
    [
        (10, 0.1, 2.29),
        (10, 0.3, 3.74),
        (10, 0.5, 5.50),
        (100, 0.01, 2.36),
        (100, 0.05, 5.96),
        (100, 0.1, 10.9),
    ],
)
def test_mean_set_sizes_are_those_of_fedpll(num_classes, rho, size):
    classes = torch.arange(num_classes).repeat(40_000 // num_classes)
    mask = uniform(classes, num_classes, rho, seeded())
    assert mask.sum(1).double().mean().item() == pytest.approx(size, abs=0.06)


def test_wrong_classes_are_equally_likely_also_in_sets_that_needed_one():
    classes = torch.full((60_000,), 2)
    for rho, expected in ((0.0, 1 / 4), (0.3, 0.3 + 0.7**4 / 4)):
        share = uniform(classes, 5, rho, seeded()).double().mean(0)
        assert share.tolist() == pytest.approx(
            [expected, expected, 1, expected, expected], abs=0.01
        )


def test_class_dependent_sets_follow_the_table():
    flips = torch.tensor([[0.0, 0.3, 0.9], [0.5, 0.2, 0.0], [1.0, 0.1, 0.7]])
    classes = torch.arange(3).repeat_interleave(20_000)
    found = class_dependent(classes, flips, seeded()).view(3, 20_000, 3).double().mean(1)
    expected = flips.double().fill_diagonal_(1)  # the truth is always in the set
    assert torch.allclose(found, expected, atol=0.015)
    assert found[1, 2] == 0
    assert found[2, 0] == 1


def test_truths_are_dropped_at_the_rate_and_nothing_else_changes():
    classes = torch.arange(10).repeat(2000)
    mask = uniform(classes, 10, 0.3, seeded())
    noisy = drop_truth(mask, classes, 0.2, seeded(1))
    assert has_truth(noisy, classes).double().mean().item() == pytest.approx(0.8, abs=0.015)
    assert has_truth(mask, classes).all()  # the mask given is left as it was
    others = torch.ones_like(mask).scatter_(1, classes.unsqueeze(1), False)
    assert torch.equal(noisy & others, mask & others)


def test_no_set_becomes_empty_when_truths_are_dropped():
    classes = torch.tensor([0, 1, 2])
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, False]])
    noisy = drop_truth(mask, classes, 1.0, seeded())
    # the third set had lost its truth already
    expected = [[True, False, False], [True, False, False], [True, True, False]]
    assert noisy.tolist() == expected


@pytest.mark.parametrize(
    ("num_classes", "rho", "noise"),
    [
        (10, 0.1, 0.54),
        (10, 0.3, 0.70),
        (10, 0.5, 0.80),
        (100, 0.01, 0.55),
        (100, 0.05, 0.80),
        (100, 0.1, 0.90),
    ],
)
def test_one_random_candidate_is_wrong_as_often_as_fedpll_baselines_see(num_classes, rho, noise):
    classes = torch.arange(num_classes).repeat(40_000 // num_classes)
    mask = uniform(classes, num_classes, rho, seeded())
    picked = pick_one(mask, seeded(1))
    assert has_truth(mask, picked).all()
    assert (picked != classes).double().mean().item() == pytest.approx(noise, abs=0.015)


def test_the_seed_decides_the_sets():
    classes, flips = torch.arange(10).repeat(10), torch.full((10, 10), 0.3)
    mask = uniform(classes, 10, 0.3, seeded())
    for make in (
        lambda g: uniform(classes, 10, 0.3, g),
        lambda g: class_dependent(classes, flips, g),
        lambda g: drop_truth(mask, classes, 0.5, g),
        lambda g: pick_one(mask, g),
    ):
        assert torch.equal(make(seeded(1)), make(seeded(1)))
        assert not torch.equal(make(seeded(1)), make(seeded(2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda y, g: uniform(y, 4, 1.0, g), "rho must be at least 0 and below 1, not 1.0"),
        (lambda y, g: uniform(y, 4, -0.1, g), "rho must be at least 0 and below 1, not -0.1"),
        (lambda y, g: uniform(y, 1, 0.1, g), "sets need at least 2 classes, not 1"),
        (lambda y, g: uniform(y, 3, 0.1, g), "samples of class 3, but only 3 classes"),
        (lambda y, g: class_dependent(y, torch.zeros(3, 4), g), "form a square, not 3 × 4"),
        (lambda y, g: class_dependent(y, torch.full((4, 4), 1.1), g), "must be from 0 to 1"),
        (lambda y, g: class_dependent(y, torch.zeros(3, 3), g), "samples of class 3, but only 3"),
        (lambda y, g: drop_truth(torch.ones(4, 4).bool(), y, 1.5, g), "from 0 to 1, not 1.5"),
        (lambda y, g: drop_truth(torch.ones(4, 3).bool(), y, 0.5, g), "samples of class 3"),
        (lambda y, g: pick_one(torch.eye(4, 3).bool(), g), "sample 3 has no candidates to pick"),
    ],
)
def test_impossible_candidates_are_explained(make, message):
    with pytest.raises(PotluckError, match=message):
        make(torch.tensor([0, 1, 2, 3]), seeded())


def test_only_classes_of_the_same_group_are_confused():
    classes = torch.arange(5).repeat(2000)
    flips = confusable([[0, 3], [1, 2]], 5, 0.25)
    mask = class_dependent(classes, flips, torch.Generator().manual_seed(0))
    rates = torch.stack([mask[classes == k].float().mean(0) for k in range(5)])
    expected = torch.eye(5)
    for k, j in ((0, 3), (3, 0), (1, 2), (2, 1)):
        expected[k, j] = 0.25
    torch.testing.assert_close(rates, expected, atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("groups", "message"),
    [([[0, 5]], "no class 5"), ([[0, 1], [1, 2]], "class 1 is in two groups")],
)
def test_impossible_groups_are_explained(groups, message):
    with pytest.raises(PotluckError, match=message):
        confusable(groups, 5, 0.25)


def test_revealed_samples_have_their_class_alone_and_others_are_unchanged():
    classes = torch.arange(10).repeat(500)
    generator = torch.Generator().manual_seed(0)
    mask = uniform(classes, 10, 0.3, generator)
    shown = reveal(mask, classes, 0.4, generator)
    exact = shown.sum(1) == 1
    assert exact.float().mean().item() == pytest.approx(0.4, abs=0.03)
    assert shown[exact].nonzero()[:, 1].equal(classes[exact])
    assert shown[~exact].equal(mask[~exact])
    assert reveal(mask, classes, 0.0, generator).equal(mask)
    with pytest.raises(PotluckError, match="share of exact labels is from 0 to 1, not 2"):
        reveal(mask, classes, 2, generator)
