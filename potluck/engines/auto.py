"""`auto`: choose the engine from the device, the model and how much there is to train.

The choice depends on the study and the machine alone, never on a clock, so that a study gives
the same result each time. On a GPU, steps are captured as graphs that run at once; sites with
small steps are stacked as well. On a CPU, each core trains its own sites. Compiling takes some
seconds and saves a part of each step (the calling of operations, and passes through memory): it
is done where it pays back within the run. Compiled steps without convolutions are few large
matrix products, which all cores of a CPU can share: sites of such models are stacked.

A server that trains on its own data is a cohort of one site; it has an engine of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from potluck.engines.engine import Engine, Finished, Orders
from potluck.engines.graphed import Graphed
from potluck.engines.recipe import Recipe
from potluck.engines.sequential import Sequential
from potluck.engines.stacked import Stacked
from potluck.engines.threaded import Threaded
from potluck.models.network import Network

# On a GPU, from trials on an H200 (benchmarks/PERFORMANCE.md).
SMALL = 3_000_000  # parameters up to which sites are stacked, or many train at once
ALONE = 4e8  # floating-point operations of a step above which convolutions are not stacked
GPU_COMPILING = 25.0  # seconds to compile, rather more for deep models
GPU_CALLS = 1e-3  # seconds that a compiled step in a graph saves, rather more for deep models

# About what two cores of a CPU do, from trials with the models of benchmarks/models.py.
COMPILING = 10.0  # seconds to compile
CALLS = 3e-4  # seconds that a compiled step saves by calling fewer operations
ARITHMETIC = 1.5e11  # floating-point operations in a second
FUSED = 0.1  # share of their time that fusing saves
TOGETHER = 2_000_000  # parameters of the sites that are stacked: more do not stay in the caches
LEAST = 2  # sites that a core takes at once, however large: fewer calls count for more


@dataclass(frozen=True)
class Choice:
    """An engine, the rounds that it was chosen for, and why.

    Args:
      recipe: what the parties of these rounds agreed on.
      sites:  how many take part.
      engine: the engine.
      reason: in words.
    """

    recipe: Recipe
    sites: int
    engine: Engine
    reason: str


@dataclass
class Auto:
    """The engine that suits the study, and one for the server's own training; it says why."""

    _choices: list[Choice] = field(default_factory=list, init=False, repr=False)

    @property
    def remarks(self) -> list[str]:
        """Which engine was chosen for the sites, and what the engines have to say."""
        reasons = [choice.reason for choice in self._choices[:1]]  # sites train before the server
        return reasons + [remark for choice in self._choices for remark in choice.engine.remarks]

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train with the engine for such a recipe and so many sites; the first round decides."""
        recipe, sites = orders.recipe, len(orders.cohort)
        for choice in self._choices:
            if choice.sites == sites and choice.recipe == recipe:
                return choice.engine.run(orders)
        engine, reason = choose_engine(orders)
        self._choices.append(Choice(recipe, sites, engine, reason))
        return engine.run(orders)


def choose_engine(orders: Orders) -> tuple[Engine, str]:
    """The engine for a study, from the orders of its first round; and the reason."""
    on_gpu = orders.cohort[0].inputs.device.type == "cuda"
    return for_gpu(orders) if on_gpu else for_cpu(orders)


def for_gpu(orders: Orders) -> tuple[Engine, str]:
    """Graphs on streams: of stacked sites where steps are small, compiled in runs that are long."""
    sites, size = len(orders.cohort), len(orders.network.layout)
    saved = _steps(orders) * GPU_CALLS
    pays = saved > GPU_COMPILING
    short = "" if pays else " The run is too short for compiling to pay back."
    if sites > 1 and size <= SMALL and _stackable(orders):
        streams = 1 if orders.draws_for_itself else 4
        group = min(-(-sites // streams), 64)
        return Graphed(streams, group, compile=pays), (
            f"engine graphed: {streams} CUDA graphs of {group} stacked sites, since their "
            f"steps are small.{short}"
        )
    most = 10 if size <= SMALL else 5
    streams = 1 if orders.draws_for_itself else min(sites, most)
    return Graphed(streams, compile=pays), (
        f"engine graphed: {streams} sites at once as CUDA graphs.{short}"
    )


def for_cpu(orders: Orders) -> tuple[Engine, str]:
    """Each core its own sites, or fully connected ones stacked; compiled in runs that are long."""
    sites, size = len(orders.cohort), len(orders.network.layout)
    if sites == 1:
        return Sequential(), "engine sequential: one site at a time takes part."
    cores = 1 if orders.draws_for_itself else min(torch.get_num_threads(), sites)
    saved = _steps(orders) * (CALLS + FUSED * _arithmetic(orders) / ARITHMETIC)
    if saved > COMPILING:
        why = (
            f"compiling takes about {COMPILING:.0f} s once and saves about {saved:,.0f} s over "
            "the run."
        )
        if _convolves(orders.network):
            each = "each core trains its own sites; " if cores > 1 else ""
            return Threaded(compile=True), f"engine threaded, compiled: {each}{why}"
        return Stacked(_together(size), compile=True), f"engine stacked, compiled: {why}"
    short = "the run is too short for compiling to pay back."
    if cores > 1:
        return Threaded(), f"engine threaded: each core trains its own sites; {short}"
    return Sequential(), f"engine sequential: {short}"


def _together(size: int) -> int:
    """How many sites of a model of some size to stack: as many on each core."""
    cores = torch.get_num_threads()
    fits = min(TOGETHER // size, 64)
    return max(fits // cores, LEAST) * cores


def _steps(orders: Orders) -> int:
    """About how many steps all sites together take in the whole run."""
    local = orders.recipe.local
    batches = [-(-len(site) // local.batch_size) for site in orders.cohort]
    steps = [local.steps or local.epochs * count for count in batches]
    return orders.recipe.rounds * sum(steps)


def _arithmetic(orders: Orders) -> float:
    """About how many floating-point operations a step takes."""
    batch = min(orders.recipe.local.batch_size, max(map(len, orders.cohort)))
    # A forward pass, and about twice as much for the gradients.
    return 3 * batch * operations(orders.network, orders.cohort[0].inputs[:1])


def _stackable(orders: Orders) -> bool:
    """Whether stacked sites are quicker: a convolution of theirs is one for each site after all."""
    return not _convolves(orders.network) or _arithmetic(orders) <= ALONE


def _convolves(network: Network) -> bool:
    return any(len(shape) > 2 for shape in network.layout.shapes)


def operations(network: Network, sample: Tensor) -> int:
    """Floating-point operations that layers with weights take for a forward pass.

    Counted by hooks: `torch.utils.flop_counter` would load the compiler first, which takes longer
    than many a short run.

    Args:
      network: the model.
      sample:  (1, ...) an input.
    """
    module, found = network.module(*network.initial()), []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        assert isinstance(layer.weight, Tensor)
        found.append(2 * output.numel() * layer.weight[0].numel())

    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            layer.register_forward_hook(count)
    with torch.no_grad():
        module(sample.float().cpu())
    return sum(found)
