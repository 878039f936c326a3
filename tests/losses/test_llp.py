"""The proportion loss: worked by hand, least where the mean prediction is right, and stable."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.losses.llp import proportion_loss


def test_two_samples_by_hand():
    logits = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]]).log()
    # the mean prediction is (0.4, 0.4, 0.2)
    loss = proportion_loss(logits, torch.tensor([0.5, 0.25, 0.25]))
    wanted = -(0.5 * torch.tensor(0.4).log() + 0.25 * torch.tensor([0.4, 0.2]).log().sum())
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)


@given(st.integers(0, 50))
def test_the_least_value_is_the_entropy_of_the_proportions(seed):
    generator = torch.Generator().manual_seed(seed)
    proportions = torch.rand(4, generator=generator).softmax(0)
    entropy = -(proportions * proportions.log()).sum()
    right = proportions.log().repeat(7, 1)
    assert torch.isclose(proportion_loss(right, proportions), entropy)
    assert proportion_loss(torch.randn(7, 4, generator=generator), proportions) >= entropy - 1e-6


def test_which_sample_is_which_does_not_matter():
    logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    half = torch.tensor([0.5, 0.5])
    assert torch.isclose(proportion_loss(logits, half), proportion_loss(0 * logits, half))


def test_certain_and_wrong_predictions_give_finite_gradients():
    logits = torch.tensor([[900.0, 0.0, -900.0]]).repeat(3, 1).requires_grad_()
    loss = proportion_loss(logits, torch.tensor([0.0, 0.4, 0.6]))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().max() > 0
