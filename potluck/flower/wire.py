"""Messages as Flower records, and back: pure functions, and no pickle.

A record of arrays has one array per tensor, in NumPy's own format without objects; a record of
metrics has numbers for the history; everything else is JSON in a record of one text. What a peer
sent may be anything, so reading it raises `PotluckError` unless it is what it should be.
"""

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from potluck.errors import PotluckError
from potluck.messages import Broadcast, Tensors, Update

_STYPE = "numpy.ndarray"
_FACTS = "facts"
_TEXT = "json"
_METRICS = "metrics"

# Types of tensors that cross; others (complex, quantised, bfloat16) no method sends.
_TYPES = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}


def pack_tensors(tensors: Tensors) -> ArrayRecord:
    """Named tensors, on any device, as a record."""
    return ArrayRecord({name: _packed(name, tensor) for name, tensor in tensors.items()})


def unpack_tensors(record: ArrayRecord) -> Tensors:
    """The tensors of a record, in memory of their own."""
    return {name: _unpacked(name, array) for name, array in record.items()}


def pack(facts: Mapping[str, Any], groups: Mapping[str, Tensors] | None = None) -> RecordDict:
    """Facts and groups of named tensors as the content of a message.

    Args:
      facts:  JSON values; numbers must be finite.
      groups: named tensors, by the name of their group; empty ones are left out.
    """
    content: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        _FACTS: ConfigRecord({_TEXT: json.dumps(facts, allow_nan=False)})
    }
    for name, tensors in (groups or {}).items():
        if tensors:
            content[name] = pack_tensors(tensors)
    return RecordDict(content)


def unpack(content: RecordDict, groups: Iterable[str] = ()) -> tuple[dict[str, Any], list[Tensors]]:
    """The inverse of `pack`.

    Args:
      content: what a peer sent.
      groups:  the groups to read; one that is not there is empty, and others are an error.
    """
    wanted = list(groups)
    if odd := sorted(set(content) - {_FACTS, *wanted}):
        raise PotluckError(
            f'the message has a part "{odd[0]}", which is none of a message\'s parts'
        )
    return facts_of(content), [_group(content, name) for name in wanted]


def facts_of(content: RecordDict) -> dict[str, Any]:
    """The facts of a message, whatever else it holds."""
    record = content.get(_FACTS)
    text = record.get(_TEXT) if isinstance(record, ConfigRecord) else None
    try:
        facts = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise PotluckError("the message does not say what it is: it has no readable facts")
    return facts


def pack_broadcast(broadcast: Broadcast, facts: Mapping[str, Any]) -> RecordDict:
    """What the server sends to a site, with further facts for it (its terms)."""
    numbers = {"round": broadcast.round, "lr": float(broadcast.lr)}
    groups = {
        "theta": {"theta": broadcast.theta},
        "buffers": broadcast.buffers,
        "aligned": broadcast.aligned,
        "shared": broadcast.shared,
    }
    return pack({**facts, **numbers}, groups)


def unpack_broadcast(content: RecordDict) -> tuple[Broadcast, dict[str, Any]]:
    """The inverse of `pack_broadcast`."""
    facts, (theta, *others) = unpack(content, ["theta", "buffers", "aligned", "shared"])
    number, lr = facts.pop("round"), facts.pop("lr")
    return Broadcast(number, lr, theta["theta"], *others), facts


def pack_update(update: Update) -> RecordDict:
    """What a site sends at the end of a round. Its name is left out: the key says who it is."""
    groups = {
        "delta": {"delta": update.delta},
        "weights": {} if update.weights is None else {"weights": update.weights},
        "buffers": update.buffers,
        "aligned": update.aligned,
        "extras": update.extras,
    }
    content = pack({"samples": update.samples}, groups)
    content[_METRICS] = MetricRecord({name: float(value) for name, value in update.metrics.items()})
    return content


def unpack_update(content: RecordDict, site: str) -> Update:
    """The inverse of `pack_update`.

    Args:
      content: what was sent.
      site:    who sent it.
    """
    metrics = content.get(_METRICS)
    groups = ["delta", "weights", "buffers", "aligned", "extras"]
    others = RecordDict({name: part for name, part in content.items() if name != _METRICS})
    facts, (delta, weights, buffers, aligned, extras) = unpack(others, groups)
    samples = facts.get("samples")
    if "delta" not in delta or type(samples) is not int or not isinstance(metrics, MetricRecord):
        raise PotluckError("the message is no update: it lacks the change, samples or metrics")
    return Update(
        site=site,
        samples=samples,
        delta=delta["delta"],
        buffers=buffers,
        aligned=aligned,
        extras=extras,
        metrics={name: _number(name, value) for name, value in metrics.items()},
        weights=weights.get("weights"),
    )


def payload(content: RecordDict) -> int:
    """How many bytes a message's content has, without Flower's framing and without encryption."""
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in record.values())
        elif isinstance(record, ConfigRecord):
            total += sum(len(value) for value in record.values() if isinstance(value, str | bytes))
        else:
            total += 8 * len(record)
    return total


def _packed(name: str, tensor: Tensor) -> Array:
    values = tensor.detach().to("cpu").contiguous()
    if values.dtype not in _TYPES.values():
        raise PotluckError(f'"{name}" is a tensor of type {values.dtype}, which cannot be sent.')
    array = values.numpy()
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return Array(str(array.dtype), tuple(array.shape), _STYPE, buffer.getvalue())


def _unpacked(name: str, array: Array) -> Tensor:
    try:
        values = np.load(BytesIO(array.data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise PotluckError(f'"{name}" is no array: {error}') from None
    if not isinstance(values, np.ndarray) or str(values.dtype) not in _TYPES:
        raise PotluckError(f'"{name}" is not an array of plain numbers')
    # A copy in memory that torch allocated: results may depend on the alignment.
    return torch.from_numpy(values).clone()


def _group(content: RecordDict, name: str) -> Tensors:
    record = content.get(name)
    if record is None:
        return {}
    if not isinstance(record, ArrayRecord):
        raise PotluckError(f'the part "{name}" of the message holds no arrays')
    return unpack_tensors(record)


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise PotluckError(f'the metric "{name}" is no single number')
    return float(value)
