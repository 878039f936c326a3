"""Noisy labels: transition matrices by hand, and flips that follow them."""

import pytest
import torch

from potluck.data.makers.noise import flip, pair, symmetric
from potluck.errors import PotluckError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_symmetric_noise_by_hand():
    expected = [[0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]]
    assert torch.allclose(symmetric(3, 0.3), torch.tensor(expected))


def test_symmetric_noise_has_the_inverse_that_fedmt_gives():
    k, rate = 10, 0.4
    scale = k - 1 - k * rate
    inverse = (k - 1) / scale * torch.eye(k) - rate / scale * torch.ones(k, k)
    assert torch.allclose(symmetric(k, rate) @ inverse, torch.eye(k), atol=1e-5)


def test_pair_noise_moves_a_class_to_the_next_one():
    # columns are the true class: class 0 is seen as 1, class 2 as 0
    expected = [[0.8, 0.0, 0.2], [0.2, 0.8, 0.0], [0.0, 0.2, 0.8]]
    assert torch.allclose(pair(3, 0.2), torch.tensor(expected))


@pytest.mark.parametrize("make", [symmetric, pair])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_columns_sum_to_one_and_flips_have_the_rate(make, rate):
    transition = make(10, rate)
    assert torch.allclose(transition.sum(0), torch.ones(10))
    classes = torch.arange(10).repeat(4000)
    seen = flip(classes, transition, seeded())
    assert (seen != classes).float().mean().item() == pytest.approx(rate, abs=0.01)
    found = torch.zeros(10, 10).index_put_((seen, classes), torch.tensor(1 / 4000), accumulate=True)
    assert torch.allclose(found, transition, atol=0.035)


def test_the_seed_decides_the_flips():
    classes, transition = torch.arange(10).repeat(20), symmetric(10, 0.5)
    assert torch.equal(flip(classes, transition, seeded(1)), flip(classes, transition, seeded(1)))
    assert (flip(classes, transition, seeded(1)) != flip(classes, transition, seeded(2))).any()


@pytest.mark.parametrize("make", [symmetric, pair])
def test_impossible_noise_is_explained(make):
    with pytest.raises(PotluckError, match=r"rate must be at least 0 and below 1, not 1\.0"):
        make(10, 1.0)
    with pytest.raises(PotluckError, match=r"rate must be at least 0 and below 1, not -0\.1"):
        make(10, -0.1)
    with pytest.raises(PotluckError, match="wrong labels need at least 2 classes, not 1"):
        make(1, 0.1)


def test_a_wrong_transition_matrix_is_explained():
    classes = torch.tensor([0, 1])
    with pytest.raises(PotluckError, match="a transition matrix is square, not 3 × 2"):
        flip(classes, torch.full((3, 2), 1 / 3), seeded())
    rows_sum_to_one = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    with pytest.raises(PotluckError, match=r"column of class 0 sums to 1\.2, not 1"):
        flip(classes, rows_sum_to_one, seeded())
