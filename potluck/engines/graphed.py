"""`graphed`: each site's steps as replays of a CUDA graph, several sites at once on streams.

A worker has a stream, fixed memory for one site, and one captured step that reads its batch
number from a counter on the device: a step costs the host one launch, whatever the model. Sites
are copied into workers in waves. Batches of the usual length are replayed; others (a short
last batch) run eagerly in the same memory. Results agree with `sequential` to rounding.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from potluck.engines.engine import Finished, Orders
from potluck.engines.site_round import (
    Fixed,
    Moving,
    Ready,
    autograd,
    finish,
    seeded,
    step,
)
from potluck.engines.trees import (
    Tree,
    as_fixed,
    fixed_tree,
    moving_tree,
    own,
    signature,
    stack,
)
from potluck.methods import Batch

WARM_UP = 3
"""Eager steps before a capture, as CUDA graphs ask for."""


@dataclass
class Graphed:
    """CUDA graphs on streams.

    Args:
      streams:   how many sites train at once.
      precision: of the forward and backward passes: "float32", "tf32" (float32 with tensor
                 cores) or "bfloat16" (autocast; parameters stay float32).
    """

    streams: int = 10
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    _workers: dict[Any, list["_Worker"]] = field(default_factory=dict, init=False, repr=False)

    def run(self, orders: Orders) -> Iterator[Finished]:
        """Train the cohort, wave by wave, in order."""
        # Graphs share one random stream: layers that draw for themselves take turns.
        at_once = 1 if orders.network.stochastic else self.streams
        with _matrix_precision(self.precision):
            for first in range(0, len(orders.cohort), at_once):
                sites = orders.cohort[first : first + at_once]
                prepared = [orders.made_ready(site) for site in sites]
                moved = self._wave([ready for ready, _ in prepared if ready is not None])
                for site, (ready, state) in zip(sites, prepared, strict=True):
                    if ready is None:
                        yield Finished(site, None, state)
                        continue
                    moving, losses = moved[site.name]
                    update, kept = finish(ready, own(moving, ready), losses / len(ready.batches))
                    yield Finished(site, update, kept)

    def _wave(self, sites: Sequence[Ready]) -> dict[str, tuple[Tree, Tensor]]:
        """Train as many sites as there are streams, all at once."""
        taken: Counter[Any] = Counter()
        results = {}
        torch.cuda.synchronize()
        for ready in sites:
            shape = (signature(ready), _capacity(ready), ready.fixed.recipe)
            workers = self._workers.setdefault(shape, [])
            if taken[shape] == len(workers):
                workers.append(_Worker(ready, self.precision))
            worker = workers[taken[shape]]
            taken[shape] += 1
            results[ready.site.name] = worker.train(ready)
        torch.cuda.synchronize()
        return results


class _Worker:
    """A stream, memory for one site, and a captured step."""

    def __init__(self, ready: Ready, precision: str) -> None:
        self.precision = precision
        self.stream = torch.cuda.Stream()
        self.length = _usual_length(ready)
        self.sample: Fixed = ready.fixed
        self.fixed = _copy(fixed_tree(ready))
        self.moving = _copy(moving_tree(ready.moving))
        device = ready.moving.vector.device
        # float64, like the Python number it stands for; 0-d tensors do not promote others.
        self.lr = torch.zeros((), dtype=torch.float64, device=device)
        self.losses = torch.zeros((), device=device)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.batches: Tree = _usual(ready, self.length)
        self.graph: torch.cuda.CUDAGraph | None = None

    def train(self, ready: Ready) -> tuple[Tree, Tensor]:
        """Take all steps of a site; asynchronous on the worker's stream."""
        with torch.cuda.stream(self.stream), seeded_on(ready):
            self._load(ready)
            if self.graph is None:
                self._capture()
                self._load(ready)
            assert self.graph is not None
            for batch in ready.batches:
                if len(batch.index) == self.length:
                    self.graph.replay()
                else:
                    self._step(batch)
            return _copy(self.moving), self.losses.clone()

    def _load(self, ready: Ready) -> None:
        self.sample = ready.fixed
        _fill(self.fixed, fixed_tree(ready))
        _fill(self.moving, moving_tree(ready.moving))
        _fill(self.batches, _usual(ready, self.length))
        self.lr.fill_(ready.fixed.broadcast.lr)
        self.losses.zero_()
        self.number.zero_()

    def _capture(self) -> None:
        for _ in range(WARM_UP):
            self._usual_step()
        self.stream.synchronize()
        self.number.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._usual_step()
        self.graph = graph

    def _usual_step(self) -> None:
        self._step(Batch(**_row(self.batches, self.number)))
        self.number += 1

    def _step(self, batch: Batch) -> None:
        broadcast = replace(self.sample.broadcast, lr=self.lr)
        fixed = as_fixed(replace(self.sample, broadcast=broadcast), self.fixed)
        with _autocast(self.precision):
            moved, loss = step(fixed, Moving(**self.moving), batch, autograd)
        _fill(self.moving, moving_tree(moved))
        self.losses += loss


def seeded_on(ready: Ready) -> AbstractContextManager[None]:
    """The site's stream for layers that draw for themselves."""
    fixed = ready.fixed
    return seeded(fixed.recipe, fixed.broadcast.round, ready.site)


def _autocast(precision: str) -> AbstractContextManager[Any]:
    if precision == "bfloat16":
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)
    return nullcontext()


@contextmanager
def _matrix_precision(precision: str) -> Iterator[None]:
    """Tensor cores for float32 products where asked for, and as before afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    wanted = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _usual_length(ready: Ready) -> int:
    """The most common batch length."""
    return Counter(len(batch.index) for batch in ready.batches).most_common(1)[0][0]


def _usual(ready: Ready, length: int) -> Tree:
    """The site's batches of the usual length, stacked: each tensor (steps, ...)."""
    usual = [batch for batch in ready.batches if len(batch.index) == length]
    return stack([{"index": batch.index, "draws": batch.draws} for batch in usual])


def _capacity(ready: Ready) -> Any:
    """What a worker's memory is made for: samples, symbols, pool, batch length and their number."""
    length = _usual_length(ready)
    count = sum(len(batch.index) == length for batch in ready.batches)
    return (
        len(ready.fixed.data),
        len(ready.fixed.data.log_a),
        len(ready.fixed.plan.pool),
        length,
        count,
    )


def _copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return tree.clone()


def _row(tree: Any, number: Tensor) -> Any:
    """One row of every tensor; the number stays on the device (indexing would fetch it)."""
    if isinstance(tree, dict):
        return {key: _row(value, number) for key, value in tree.items()}
    return tree.index_select(0, number.reshape(1))[0]


def _fill(tree: Any, new: Any) -> None:
    """Copy the values of one tree into the memory of another of the same shapes."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            _fill(value, new[key])
    elif tree.data_ptr() != new.data_ptr():
        tree.copy_(new)
