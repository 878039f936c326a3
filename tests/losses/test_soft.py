"""Soft-target cross-entropy: against arithmetic by hand, and as PyTorch defines it."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.autograd import gradcheck

from potluck.losses import soft_cross_entropy

numbers = st.integers(2, 8).flatmap(
    lambda classes: st.tuples(
        hnp.arrays(np.float64, (3, classes), elements=st.floats(-20, 20, width=32)),
        hnp.arrays(np.float64, (3, classes), elements=st.floats(-2, 2, width=32)),
    )
)


@given(numbers)
def test_it_is_minus_the_weighted_log_softmax_even_for_negative_weights(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    logits, target = drawn
    expected = []
    for row, weights in zip(logits, target, strict=True):
        total = sum(math.exp(f) for f in row)
        expected.append(-sum(t * (f - math.log(total)) for f, t in zip(row, weights, strict=True)))
    found = soft_cross_entropy(torch.from_numpy(logits.copy()), torch.from_numpy(target.copy()))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@given(numbers)
def test_its_gradient_is_total_weight_times_softmax_minus_target(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    logits, target = (torch.from_numpy(array.copy()) for array in drawn)
    logits.requires_grad_()
    soft_cross_entropy(logits, target).sum().backward()
    expected = target.sum(1, keepdim=True) * logits.detach().softmax(1) - target
    torch.testing.assert_close(logits.grad, expected)
    assert gradcheck(lambda f: soft_cross_entropy(f, target), logits)


def test_a_one_hot_target_gives_cross_entropy() -> None:
    logits = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    classes = torch.arange(10).view(2, 5) % 7
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), classes.flatten(), reduction="none"
    )
    found = soft_cross_entropy(logits, torch.nn.functional.one_hot(classes, 7))
    torch.testing.assert_close(found, expected.view(2, 5))


def test_huge_logits_stay_finite_where_the_target_is_zero() -> None:
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = soft_cross_entropy(logits, torch.tensor([[1.0, 0.0]]))
    loss.sum().backward()
    assert loss.item() == 0
    assert logits.grad.tolist() == [[0.0, 0.0]]
