"""The public code's loss: what it computes, and what is wrong with it."""

import math

import pytest
import torch

from potluck.losses.double_softmax import double_softmax_nll

# Ten sets that are one class each: q is η itself.
PURE = torch.eye(10).log()


def test_it_is_bounded_however_certain_the_model():
    sure = 50 * torch.eye(10)[[0]]
    right, wrong = (double_softmax_nll(sure, torch.tensor([m]), PURE).item() for m in (0, 1))
    assert right == pytest.approx(math.log(9 + math.e) - 1)  # 1.461
    assert wrong == pytest.approx(math.log(9 + math.e))  # 2.461


def test_one_sample_by_hand():
    priors = torch.tensor([[0.8, 0.2], [0.4, 0.6]])
    shares = torch.tensor([0.25, 0.75])
    log_a = (shares.unsqueeze(1) * priors / 0.5).log()
    logits = torch.tensor([[0.7, 0.3]]).log()
    joint = shares * (priors @ torch.tensor([0.7, 0.3]))
    q = joint / joint.sum()
    wanted = q.exp().sum().log() - q[1]
    assert torch.isclose(double_softmax_nll(logits, torch.tensor([1]), log_a)[0], wanted)


def test_its_minimiser_is_not_the_truth():
    truth = torch.tensor([0.6, 0.4])
    pure = torch.eye(2).log()
    grid = torch.linspace(0.01, 0.99, 99)
    logits = torch.stack([grid, 1 - grid], 1).log()
    risks = [double_softmax_nll(logits, torch.full((99,), m), pure) for m in (0, 1)]
    risk = truth[0] * risks[0] + truth[1] * risks[1]
    assert grid[risk.argmin()].item() > 0.65
