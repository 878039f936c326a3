"""`auto`: choose the engine from the device, the model and how much there is to train.

The choice depends on the study alone, never on a clock, so that a study gives the same result
each time. On a GPU, steps are compiled and captured; small models are stacked as well. On a CPU,
compiling takes some seconds and saves a part of each step (the calling of operations, and about
a fifth of the arithmetic): it is done where it pays back within the run. Without it, one site
after another is as quick as any other way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.utils.flop_counter import FlopCounterMode

from potluck.engines.engine import Engine, Finished, Orders
from potluck.engines.graphed import Graphed
from potluck.engines.sequential import Sequential
from potluck.engines.stacked import Stacked

SMALL = 3_000_000
"""Parameters up to which several sites share one stream of a GPU."""

# What two cores of a CPU were measured to do (benchmarks/PERFORMANCE.md).
COMPILING = 40.0  # seconds to compile
CALLS = 3e-4  # seconds that a compiled step saves by calling fewer operations
ARITHMETIC = 3e10  # floating-point operations in a second
FUSED = 0.2  # share of their time that fusing saves


@dataclass
class Auto:
    """The engine that suits the study; it says which, and why."""

    _engine: Engine | None = field(default=None, init=False, repr=False)
    _reason: str = field(default="", init=False, repr=False)

    @property
    def remarks(self) -> list[str]:
        """Which engine was chosen, and what that one has to say."""
        return [] if self._engine is None else [self._reason, *self._engine.remarks]

    def run(self, orders: Orders) -> Iterator[Finished]:
        """Train the cohort with the chosen engine; the first round decides."""
        if self._engine is None:
            self._engine, self._reason = choose_engine(orders)
        return self._engine.run(orders)


def choose_engine(orders: Orders) -> tuple[Engine, str]:
    """The engine for a study, from the orders of its first round; and the reason."""
    sites, size = len(orders.cohort), len(orders.network.layout)
    if orders.cohort[0].inputs.device.type == "cuda":
        if sites > 1 and size <= SMALL:
            streams = 1 if orders.network.stochastic else 4
            group = min(-(-sites // streams), 64)
            return Graphed(streams, group), (
                f"engine graphed: {streams} CUDA graphs of {group} stacked sites, since the model "
                f"has only {size:,} parameters."
            )
        streams = 1 if orders.network.stochastic else min(sites, 5)
        return Graphed(streams), f"engine graphed: {streams} sites at once as CUDA graphs."
    if sites == 1:
        return Sequential(), "engine sequential: one site at a time takes part."
    saved = _saved_by_compiling(orders)
    if saved > COMPILING:
        return Stacked(compile=True), (
            f"engine stacked, compiled: compiling takes about {COMPILING:.0f} s once and saves "
            f"about {saved:,.0f} s over the run."
        )
    return Sequential(), "engine sequential: the run is too short for compiling to pay back."


def _saved_by_compiling(orders: Orders) -> float:
    """About how many seconds compiled steps save in a whole run on a CPU."""
    local, recipe = orders.recipe.local, orders.recipe
    samples = [len(site) for site in orders.cohort]
    steps = [local.steps or local.epochs * -(-count // local.batch_size) for count in samples]
    batch = min(local.batch_size, max(samples))
    # A forward pass, and about twice as much for the gradients.
    arithmetic = 3 * batch * _operations(orders)
    return recipe.rounds * sum(steps) * (CALLS + FUSED * arithmetic / ARITHMETIC)


def _operations(orders: Orders) -> float:
    """Floating-point operations of the forward pass of one sample."""
    theta, buffers = orders.network.initial()
    sample = orders.cohort[0].inputs[:1]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        orders.network.infer(theta, buffers, sample)
    return counter.get_total_flops()
