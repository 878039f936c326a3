"""Dropout by a seed: what is dropped, how often, and that nothing else decides it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap

from potluck.models.dropout import SeededDropout, with_seeded_dropout


def seed(number):
    return torch.tensor(number, dtype=torch.int32)


def dropped(rate, number, shape, channels=False):
    """Which entries of ones become 0."""
    layer = SeededDropout(rate, channels)
    layer.seed = seed(number)
    return layer(torch.ones(shape)) == 0


def test_the_hash_of_a_position_is_as_worked_by_hand():
    layer, number = SeededDropout(0.5, False), 123_456_789
    layer.seed = seed(number)

    def hashed(position):
        value = (position * (2 * number + 1) + number) % 2**32
        value = (value ^ (value >> 16)) * 0x21F0AAAD % 2**32
        value = (value ^ (value >> 15)) * 0x735A2D97 % 2**32
        value ^= value >> 15
        return value - 2**32 if value >= 2**31 else value

    expected = [2.0 if hashed(position) >= 0 else 0.0 for position in range(200)]
    assert layer(torch.ones(10, 20)).flatten().tolist() == expected


@given(
    rate=st.floats(0.05, 0.95),
    first=st.integers(0, 2**31 - 2),
    second=st.integers(0, 2**31 - 2),
)
def test_about_as_many_are_dropped_as_the_rate_says_and_by_other_seeds_others(rate, first, second):
    size = 20_000
    noise = 6 * (rate * (1 - rate) / size) ** 0.5  # six standard deviations
    one = dropped(rate, first, (100, 200))
    assert abs(float(one.float().mean()) - rate) < noise
    if first != second:
        other = dropped(rate, second, (100, 200))
        both = float((one & other).float().mean())
        assert abs(both - rate**2) < 6 * (rate**2 * (1 - rate**2) / size) ** 0.5


def test_neighbours_are_dropped_independently_of_each_other():
    masks = torch.stack([dropped(0.3, number, (2000,)) for number in range(1000)]).double() - 0.3
    for apart in (1, 2, 16, 1024):
        along = (masks[:, apart:] * masks[:, :-apart]).mean() / 0.21
        assert abs(float(along)) < 6 / (1000 * (2000 - apart)) ** 0.5
    assert abs(float((masks[1:] * masks[:-1]).mean() / 0.21)) < 6 / 2e6**0.5


def test_what_stays_is_scaled_so_that_the_mean_stays():
    layer = SeededDropout(0.2, False)
    values = layer(torch.ones(100, 100))
    assert set(values.flatten().tolist()) == {0.0, 1.25}


def test_gradients_pass_through_what_stays():
    layer, inputs = SeededDropout(0.5, False), torch.randn(4, 6, requires_grad=True)
    outputs = layer(inputs)
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    assert torch.equal(gradient, torch.where(outputs != 0, 2.0, 0.0))


def test_channels_are_dropped_as_a_whole():
    gone = dropped(0.5, 7, (8, 16, 3, 3), channels=True)
    assert torch.equal(gone.any(-1).any(-1), gone.all(-1).all(-1))
    assert 0.3 < float(gone.float().mean()) < 0.7


def test_a_rate_of_one_drops_all_and_has_a_gradient_of_zero():
    layer, inputs = SeededDropout(1.0, False), torch.randn(50, 50, requires_grad=True)
    outputs = layer(inputs)
    assert not outputs.any()
    assert not torch.autograd.grad(outputs.sum(), inputs)[0].any()


def test_in_evaluation_nothing_is_dropped():
    inputs = torch.randn(3, 4)
    assert torch.equal(SeededDropout(0.5, False).eval()(inputs), inputs)


def test_sites_that_are_stacked_drop_what_each_would_by_itself():
    def one(number, inputs):
        return torch.func.functional_call(layer, {"seed": number}, (inputs,))

    layer, inputs = SeededDropout(0.5, False), torch.randn(3, 5, 7)
    numbers = torch.tensor([1, 2, 3], dtype=torch.int32)
    alone = [one(number, values) for number, values in zip(numbers, inputs, strict=True)]
    assert torch.equal(vmap(one)(numbers, inputs), torch.stack(alone))


class Tripled(nn.Dropout):
    """Not dropout, although derived from it."""

    def forward(self, inputs):
        return 3 * inputs


@pytest.mark.parametrize(
    ("layer", "replaced"),
    [
        (nn.Dropout(0.5), True),
        (nn.Dropout1d(0.5), True),
        (nn.Dropout2d(0.5), True),
        (nn.Dropout3d(0.5), True),
        (nn.Dropout(0.0), False),
        (nn.AlphaDropout(0.5), False),
        (Tripled(0.5), False),
    ],
)
def test_layers_of_pytorch_are_replaced_and_others_stay(layer, replaced):
    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer))
    for _ in range(2):  # a second time, they are there
        assert with_seeded_dropout(module) == (["1.0"] if replaced else [])
    assert isinstance(module[1][0], SeededDropout) == replaced
    assert list(module.state_dict()) == ["0.weight", "0.bias"]
