"""The running mean of updates against brute force."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.federated import RunningMean, Weighed
from potluck.messages import Update


@given(st.data())
def test_each_entry_is_averaged_over_its_holders(data):
    size, count = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    mean = RunningMean(size)
    top, bottom, aligned = np.zeros(size), np.zeros(size), np.zeros(size)
    for s in range(count):
        held = rng.permutation(size)[: rng.integers(1, size + 1)]
        weight, delta = float(rng.integers(1, 100)), rng.normal(size=len(held))
        update = Update(str(s), 1, torch.tensor(delta), {}, {"control": torch.tensor(-2 * delta)})
        mean.add(Weighed(update, weight, torch.tensor(held)))
        for position, value in zip(held, delta, strict=True):
            top[position] += weight * value
            bottom[position] += weight
            aligned[position] += weight * -2 * value
    result = mean.mean()
    holders = np.where(bottom > 0, bottom, 1)
    assert np.allclose(result.delta, top / holders)
    assert np.allclose(result.aligned["control"], aligned / holders)
    assert np.array_equal(result.covered, bottom > 0)
    assert (result.delta[~result.covered] == 0).all()


def test_none_means_all_entries():
    one, other = RunningMean(3), RunningMean(3)
    update = Update("s", 1, torch.tensor([1.0, 2.0, 3.0]), {})
    one.add(Weighed(update, 2.0))
    other.add(Weighed(update, 2.0, torch.arange(3)))
    assert torch.equal(one.mean().delta, other.mean().delta)


def test_buffers_are_weighted_means_and_counters_the_largest():
    mean = RunningMean(1)
    for weight, value, count in ((1.0, 4.0, 7), (3.0, 8.0, 5)):
        buffers = {"running_mean": torch.tensor([value]), "batches": torch.tensor(count)}
        mean.add(Weighed(Update("s", 1, torch.zeros(1), buffers), weight))
    assert mean.mean().buffers["running_mean"].item() == 7.0
    assert mean.mean().buffers["batches"].item() == 7


def test_a_buffer_that_all_sites_share_stays_bit_for_bit_the_same():
    shared = torch.tensor([0.1307, 0.3081, 1 / 3])
    mean = RunningMean(1)
    for weight in (37.0, 41.0, 3.0, 113.0):
        mean.add(Weighed(Update("s", 1, torch.zeros(1), {"scale": shared.clone()}), weight))
    assert torch.equal(mean.mean().buffers["scale"], shared)


def test_extras_are_averaged_over_the_sites_that_sent_them():
    mean = RunningMean(1)
    mean.add(Weighed(Update("a", 1, torch.zeros(1), {}, {}, {"m": torch.tensor(2.0)}), 1.0))
    mean.add(Weighed(Update("b", 1, torch.zeros(1), {}), 5.0))
    mean.add(Weighed(Update("c", 1, torch.zeros(1), {}, {}, {"m": torch.tensor(6.0)}), 3.0))
    assert mean.mean().extras["m"].item() == 5.0
