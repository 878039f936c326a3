"""`graphed`: steps as replays of CUDA graphs, several sites at once on streams.

A worker is a program (`program.py`) for one site, or for a few stacked ones, with a stream and a
captured, compiled step: a step costs the host one launch, whatever the model. Sites go to
workers in waves. The host makes one wave ready and launches it before it looks at the results of
the wave before, so that the GPU does not wait. Results agree with `sequential` to rounding.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from potluck.engines.compiled import compiled
from potluck.engines.engine import Finished, Orders
from potluck.engines.program import Prepare, Program, Programs, Room, Run, alike, as_it_is
from potluck.engines.site_round import Moved, Ready, finish, layers_seeded
from potluck.engines.stacked import groups
from potluck.federation import Site
from potluck.messages import SiteState

Precision = Literal["float32", "tf32", "bfloat16"]

WARM_UP = 3
"""Runs before a capture, as CUDA graphs ask for."""


@dataclass
class Graphed:
    """CUDA graphs on streams.

    Args:
      streams:   how many workers train at once.
      group:     how many sites a worker stacks; more than one pays for small models and
                 batches.
      precision: of the forward and backward passes: "float32", "tf32" (float32 with tensor
                 cores) or "bfloat16" (autocast; parameters stay float32; cuDNN tries its
                 algorithms and takes the quickest, so that runs may differ by rounding).
      compile:   compile the step before it is captured: up to some minutes at the start.
    """

    streams: int = 5
    group: int = 1
    precision: Precision = "float32"
    compile: bool = True
    _workers: Programs["_Worker"] = field(init=False, repr=False)
    _compiled: dict[Any, Run] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._workers = Programs(_Worker, self._prepare, most=4 * self.streams)

    @property
    def remarks(self) -> list[str]:
        """What a user should know about how rounds were run."""
        return self._workers.remarks

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort, wave by wave, the largest sites first."""
        # Graphs share one random stream: layers that draw for themselves take turns.
        workers = 1 if orders.draws_for_itself else self.streams
        if self.group == 1:  # convolutions of stacked sites are grouped, which gain nothing
            orders = replace(orders, network=orders.network.channels_last)
        with _matrix_precision(self.precision):
            before: list[_Launched] = []
            for sites in groups(orders.cohort, workers * self.group):
                wave = self._launch(orders, sites)
                yield from _finished(before)
                before = wave
            yield from _finished(before)

    def _launch(self, orders: Orders, sites: Sequence[Site]) -> list["_Launched"]:
        """Make some sites ready and start their steps; nothing is waited for."""
        launched: list[_Launched] = []
        taken: list[_Worker] = []
        # Sites that train alone start as soon as they are ready; others wait for their group.
        for together in [sites] if self.group > 1 else [[site] for site in sites]:
            prepared = [orders.made_ready(site) for site in together]
            for site, (ready, state) in zip(together, prepared, strict=True):
                if ready is None:
                    launched.append(_Launched([], [(site, state)]))
            kinds = alike([ready for ready, _ in prepared if ready is not None])
            for kind, bucket in kinds.items():
                for first in range(0, len(bucket), self.group):
                    chunk = bucket[first : first + self.group]
                    with _autocast(self.precision):
                        worker = self._workers.of(kind, chunk, taken)
                        launched.append(worker.launch(chunk))
                    taken.append(worker)
        return launched

    def _prepare(self, worker: Program) -> Run:
        """Compile, once for all workers with memory of the same shapes, and capture."""
        memory, key = worker.memory, worker.step_key
        if key not in self._compiled:
            self._compiled[key] = compiled(worker) if self.compile else as_it_is(worker)
        quick = self._compiled[key]
        stream = torch.cuda.current_stream()
        for _ in range(WARM_UP):
            memory["number"].zero_()
            quick.step(memory)
        memory["number"].zero_()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, stream=stream):
            quick.step(memory)
        return replace(quick, step=lambda memory: graph.replay())


@dataclass(frozen=True, eq=False)
class _Launched:
    """Sites whose steps are under way, and sites that sit the round out."""

    sites: Sequence[Ready]
    idle: Sequence[tuple[Site, SiteState]] = ()
    results: tuple[Sequence[Moved], Tensor] | None = None
    done: torch.cuda.Event | None = None


class _Worker(Program):
    """A program with a stream of its own."""

    def __init__(self, group: Sequence[Ready], length: int, room: Room, prepare: Prepare) -> None:
        self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            super().__init__(group, length, room, prepare)

    def launch(self, group: Sequence[Ready]) -> _Launched:
        """Start all steps of some sites, after what the current stream has been given so far.

        Waiting for the current stream also keeps memory that was freed there, or is still read
        there, from being written too early.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), layers_seeded(group):
            results = self.train(group)
        return _Launched(group, (), results, self.stream.record_event())


def _finished(wave: Sequence[_Launched]) -> Iterator[Sequence[Finished]]:
    for part in wave:
        if part.idle:
            yield [Finished(site, None, state) for site, state in part.idle]
        if part.results is not None:
            assert part.done is not None
            torch.cuda.current_stream().wait_event(part.done)
            finished = finish(part.sites, *part.results)
            yield [
                Finished(ready.site, *result)
                for ready, result in zip(part.sites, finished, strict=True)
            ]


def _autocast(precision: Precision) -> AbstractContextManager[Any]:
    if precision == "bfloat16":
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)
    return nullcontext()


@contextmanager
def _no_collection() -> Iterator[None]:
    """CUDA lets no graph, of an earlier engine say, be ended while another one is captured."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def _matrix_precision(precision: Precision) -> Iterator[None]:
    """Tensor cores and quick algorithms where asked for, and as before afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "float32"
    cudnn.benchmark = precision == "bfloat16"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
