"""Batches of a round, clipping, and settings that cannot train."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import potluck as pl
from potluck.errors import PotluckError
from potluck.local import clipped


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


sizes = st.integers(1, 70)


@given(count=sizes, batch=st.integers(1, 40), epochs=st.integers(1, 4))
def test_every_sample_comes_once_in_every_epoch(count, batch, epochs):
    pool = torch.arange(count) * 3 + 1  # a pool is any set of samples, not 0 … n − 1
    local = pl.LocalTraining(batch_size=batch, epochs=epochs)
    batches = local.batches(pool, seeded())
    per_epoch = -(-count // batch)
    assert len(batches) == epochs * per_epoch
    for epoch in range(epochs):
        part = torch.cat(batches[epoch * per_epoch : (epoch + 1) * per_epoch])
        assert torch.equal(part.sort().values, pool)
    assert [len(b) for b in batches[:per_epoch]][:-1] == [batch] * (per_epoch - 1)


@given(count=sizes, batch=st.integers(1, 40), steps=st.integers(1, 30))
def test_a_number_of_steps_is_kept_exactly_and_samples_are_used_evenly(count, batch, steps):
    local = pl.LocalTraining(batch_size=batch, steps=steps, epochs=9)
    batches = local.batches(torch.arange(count), seeded())
    assert len(batches) == steps
    uses = Counter(torch.cat(batches).tolist())
    assert max(uses.values()) - min(uses.get(i, 0) for i in range(count)) <= 1


@given(count=sizes, batch=st.integers(1, 40))
def test_drop_leaves_full_batches_only_unless_there_is_none(count, batch):
    local = pl.LocalTraining(batch_size=batch, last_batch="drop", epochs=2)
    lengths = [len(b) for b in local.batches(torch.arange(count), seeded())]
    assert lengths == ([batch] * (2 * (count // batch)) if count >= batch else [count] * 2)


def test_epochs_are_shuffled_differently_and_repeatably():
    local, pool = pl.LocalTraining(batch_size=50, epochs=2), torch.arange(50)
    first, second = local.batches(pool, seeded())
    assert not torch.equal(first, second)
    assert not torch.equal(first, pool)
    again = local.batches(pool, seeded())
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, local.batches(pool, seeded(1))[0])


def test_batches_leave_the_global_stream_alone():
    before = torch.get_rng_state()
    pl.LocalTraining().batches(torch.arange(100), seeded())
    assert torch.equal(before, torch.get_rng_state())


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.floats(0.1, 10))
def test_clipping_equals_torch(values, limit):
    gradient = torch.tensor(values, dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([parameter], limit)
    assert torch.allclose(clipped(gradient, limit), parameter.grad, rtol=1e-9, atol=1e-12)


def test_a_short_gradient_is_not_clipped_and_a_long_one_keeps_its_direction():
    gradient = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert torch.equal(clipped(gradient, None), gradient)
    assert torch.equal(clipped(gradient, 6.0), gradient)
    assert torch.allclose(clipped(gradient, 1.0), torch.tensor([0.6, 0.8]).double(), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.0}, "local.lr is 0.0; it must be above 0"),
        ({"lr": -1.0}, "local.lr is -1.0"),
        ({"lr": float("nan")}, "local.lr is nan"),
        ({"batch_size": 0}, "local.batch_size is 0"),
        ({"epochs": 0}, "local.epochs is 0"),
        ({"steps": 0}, "local.steps is 0; a round needs at least one step"),
        ({"clip": 0.0}, "local.clip is 0.0; a gradient norm limit is above 0"),
        ({"last_batch": "dorp"}, 'unknown local.last_batch "dorp"; did you mean "drop"'),
        ({"optimiser_state": "kept"}, 'unknown local.optimiser_state "kept"; did you mean "keep"'),
    ],
)
def test_settings_that_cannot_train_are_refused(settings, message):
    with pytest.raises(PotluckError, match=message):
        pl.LocalTraining(**settings).check()


def test_the_defaults_can_train():
    pl.LocalTraining().check()
