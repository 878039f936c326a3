"""`threaded`: each core trains its own sites.

Small batches give two cores little to share: the parts of a layer are done before the second core
has begun. So each of some threads trains sites by itself, on one core, with a copy of the network:
one after another as `sequential` does, or a few stacked and compiled as `stacked` does. PyTorch
lets other threads go on while it computes. Sites go to threads in turn, by their order alone, so
that results do not depend on which thread is quicker.

Dropout is no hindrance, since a step brings its seed. Layers that draw for themselves share one
stream, which threads would race for: such models are trained on one thread.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from potluck.engines.compiled import compiled
from potluck.engines.engine import Finished, Orders
from potluck.engines.parts import PartedProgram
from potluck.engines.program import Program, Programs, Run
from potluck.engines.sequential import train_alone
from potluck.engines.stacked import groups, train_together
from potluck.errors import PotluckError
from potluck.federation import Site
from potluck.models.network import Network

AHEAD = 2
"""Groups that each thread is given before the results of the first are taken."""


@dataclass
class Threaded:
    """A thread for each core.

    Args:
      threads: how many; None for as many as PyTorch would use (`run.threads`). No more than sites
               take part in a round; they share the cores that PyTorch would use.
      group:   sites that a thread trains at once; more than one pays for small models.
      compile: compile the step: some seconds at the start, quicker rounds afterwards.
    """

    threads: int | None = None
    group: int = 1
    compile: bool = False
    remarks: list[str] = field(default_factory=list, init=False, repr=False)
    _crews: dict[int, list["_Worker"]] = field(default_factory=dict, init=False, repr=False)
    _compiled: dict[Any, Run] = field(default_factory=dict, init=False, repr=False)
    _compiling: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise PotluckError(f"engine threaded: threads is {self.threads}; at least 1 is needed.")
        if self.group > 1 and not self.compile:
            raise PotluckError(
                f"engine threaded: group is {self.group}, but only compiled steps take several "
                'sites at once; set compile = true, or use the engine "stacked".'
            )

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort, group by group, the largest sites first."""
        crew = self._workers(orders)
        waiting: deque[tuple[_Worker, Future[list[Finished]]]] = deque()

        def first() -> Iterator[list[Finished]]:
            yield waiting[0][1].result()
            waiting.popleft()

        with one_core():
            try:
                for number, sites in enumerate(groups(orders.cohort, self.group)):
                    if len(waiting) == AHEAD * len(crew):
                        yield from first()
                    worker = crew[number % len(crew)]
                    waiting.append((worker, worker.start(orders, sites)))
                while waiting:
                    yield from first()
            finally:  # what is left if the user stops, or after a site's error
                for worker, future in waiting:
                    if not future.cancel() and not future.done():
                        worker.interrupt()

    def _workers(self, orders: Orders) -> list["_Worker"]:
        """The threads, made in the first round; one for a server that trains by itself."""
        cores = torch.get_num_threads()
        count = min(self.threads or cores, len(orders.cohort))
        if count > 1 and orders.draws_for_itself:
            count = 1
            remark = (
                "engine threaded: layers of the model draw random numbers for themselves, so "
                "that it is trained on one thread."
            )
            if remark not in self.remarks:
                self.remarks.append(remark)
        if count not in self._crews:
            share = max(cores // count, 1)
            self._crews[count] = [self._worker(orders.network, share) for _ in range(count)]
        return self._crews[count]

    def _worker(self, network: Network, cores: int) -> "_Worker":
        programs = Programs[Program](PartedProgram, self._prepare) if self.compile else None
        if programs is not None:
            programs.remarks = self.remarks
        # Convolutions of stacked sites are grouped, for which the order of channels means little.
        ordered = network.channels_last if self.group == 1 else network
        return _Worker(ordered.twin(), programs, cores)

    def _prepare(self, program: Program) -> Run:
        """Compile, once for all threads with memory of the same shapes, one after another."""
        with self._compiling:
            if program.step_key not in self._compiled:
                self._compiled[program.step_key] = compiled(program)
            return self._compiled[program.step_key]


class _InterruptedError(Exception):
    """Raised in a thread whose work nobody waits for any more."""


class _Worker:
    """A thread that trains.

    Args:
      network:  its own copy.
      programs: compiled steps; None to take steps as they are.
      cores:    how many it uses.
    """

    def __init__(self, network: Network, programs: Programs[Program] | None, cores: int) -> None:
        self._network, self._programs, self._cores = network, programs, cores
        self._thread = ThreadPoolExecutor(1, initializer=self._begin)
        self._ident = 0

    def _begin(self) -> None:
        torch.set_num_threads(self._cores)
        self._ident = threading.get_ident()

    def interrupt(self) -> None:
        """End what it does after the operation that it is in: a site's round can take long."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._ident), ctypes.py_object(_InterruptedError)
        )

    def start(self, orders: Orders, sites: Sequence[Site]) -> Future[list[Finished]]:
        """Train some sites after those that were started before."""
        return self._thread.submit(self._train, replace(orders, network=self._network), sites)

    def _train(self, orders: Orders, sites: Sequence[Site]) -> list[Finished]:
        if self._programs is None:
            return [train_alone(orders, site) for site in sites]
        return train_together(orders, sites, self._programs)


@contextmanager
def one_core() -> Iterator[None]:
    """What this thread does takes one core; threads that start meanwhile find the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
