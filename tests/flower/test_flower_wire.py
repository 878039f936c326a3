"""Messages as Flower records, and back."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from potluck.errors import PotluckError
from potluck.flower.wire import (
    facts_of,
    pack,
    pack_broadcast,
    pack_tensors,
    pack_update,
    payload,
    unpack,
    unpack_broadcast,
    unpack_tensors,
    unpack_update,
)
from potluck.messages import Broadcast, Update

TYPES = [torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    seed = draw(st.integers(0, 2**31))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 50
    special = draw(st.sampled_from([None, float("nan"), float("inf"), -0.0]))
    kind = draw(st.sampled_from(TYPES))
    if special is not None and kind.is_floating_point and values.numel():
        values.view(-1)[0] = special
    tensor = values.to(kind) if kind.is_floating_point else values.abs().to(kind)
    # A view that is not contiguous must arrive like any other.
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


named = st.dictionaries(st.text(min_size=1, max_size=12), tensors(), max_size=4)
vectors = tensors().map(lambda tensor: tensor.flatten().float())


def bits(tensor):
    return (tensor.dtype, tuple(tensor.shape), tensor.contiguous().numpy().tobytes())


def same(one, two):
    return {name: bits(value) for name, value in one.items()} == {
        name: bits(value) for name, value in two.items()
    }


@given(named)
def test_tensors_arrive_bit_for_bit(given_tensors):
    assert same(unpack_tensors(pack_tensors(given_tensors)), given_tensors)


@given(st.integers(0, 10**6), st.floats(1e-9, 1e9), vectors, named, named, named)
def test_a_broadcast_arrives_as_it_was_sent(number, lr, theta, buffers, aligned, shared):
    sent = Broadcast(number, lr, theta, buffers, aligned, shared)
    got, facts = unpack_broadcast(pack_broadcast(sent, {"terms": {"run": "é"}}))
    assert facts == {"terms": {"run": "é"}}
    assert (got.round, got.lr) == (number, lr)
    assert bits(got.theta) == bits(theta)
    assert same(got.buffers, buffers)
    assert same(got.aligned, aligned)
    assert same(got.shared, shared)


@given(
    st.integers(1, 10**9),
    vectors,
    named,
    named,
    named,
    st.dictionaries(st.text(min_size=1, max_size=8), st.floats(), max_size=3),
    st.none() | vectors,
)
def test_an_update_arrives_as_it_was_sent(
    samples, delta, buffers, aligned, extras, metrics, weights
):
    sent = Update("ward", samples, delta, buffers, aligned, extras, metrics, weights)
    got = unpack_update(pack_update(sent), "ward")
    assert (got.site, got.samples) == ("ward", samples)
    assert bits(got.delta) == bits(delta)
    assert same(got.buffers, buffers)
    assert same(got.aligned, aligned)
    assert same(got.extras, extras)
    assert str(got.metrics) == str(metrics)  # NaN too
    assert (got.weights is None) == (weights is None)


def test_the_name_of_a_site_is_not_sent():
    content = pack_update(Update("ward 3", 1, torch.zeros(2), {}))
    texts = list(content["facts"].values())
    assert not any("ward" in text for text in texts)


def test_the_payload_counts_arrays_texts_and_metrics():
    content = pack_update(Update("a", 7, torch.zeros(100), {}, metrics={"loss": 1.0}))
    text = len(content["facts"]["json"])
    assert payload(content) == len(content["delta"]["delta"].data) + text + 8
    assert payload(content) >= 400


class Trap:
    """Would make a file if it were ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_in_an_array_is_refused_and_not_loaded(tmp_path):
    mark = tmp_path / "mark"
    trap = np.empty(1, dtype=object)
    trap[0] = Trap(mark)
    data = pickle.dumps(trap)
    for content in (data, b"\x93NUMPY" + data, b"", b"nonsense"):
        record = ArrayRecord({"x": Array("float32", (1,), "numpy.ndarray", content)})
        with pytest.raises(PotluckError, match='"x" is no'):
            unpack_tensors(record)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"facts": ConfigRecord({"json": "{"})}),
        RecordDict({"facts": ConfigRecord({"json": "[1]"})}),
        RecordDict({"facts": ConfigRecord({"json": 3})}),
        RecordDict({"facts": MetricRecord({"json": 3})}),
    ],
)
def test_a_message_without_readable_facts_is_refused(content):
    with pytest.raises(PotluckError, match="no readable facts"):
        facts_of(content)


def test_parts_that_a_message_does_not_have_are_refused():
    content = pack({}, {"sums": {"a": torch.zeros(1)}})
    with pytest.raises(PotluckError, match='a part "sums"'):
        unpack(content)
    wrong = RecordDict({"facts": ConfigRecord({"json": "{}"}), "sums": ConfigRecord({"a": 1})})
    with pytest.raises(PotluckError, match='"sums" of the message holds no arrays'):
        unpack(wrong, ["sums"])


@pytest.mark.parametrize("samples", ["7", 7.0, True, None])
def test_an_update_without_a_number_of_samples_is_refused(samples):
    content = pack_update(Update("a", 1, torch.zeros(2), {}))
    content["facts"] = ConfigRecord({"json": json.dumps({"samples": samples})})
    with pytest.raises(PotluckError, match="no update"):
        unpack_update(content, "a")


def test_a_type_that_cannot_be_sent_is_named():
    with pytest.raises(PotluckError, match=r'"x" is a tensor of type torch\.bfloat16'):
        pack_tensors({"x": torch.zeros(2, dtype=torch.bfloat16)})
