"""Engines: who runs a round, and the round loop around them."""

from collections.abc import Callable

from potluck.engines.auto import Auto
from potluck.engines.engine import Engine
from potluck.engines.evaluation import Evaluation, evaluate
from potluck.engines.graphed import Graphed
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import ServerState, run, start
from potluck.engines.sequential import Sequential
from potluck.engines.stacked import Stacked
from potluck.engines.threaded import Threaded

ENGINES: dict[str, Callable[..., Engine]] = {
    "auto": Auto,
    "sequential": Sequential,
    "stacked": Stacked,
    "threaded": Threaded,
    "graphed": Graphed,
}

__all__ = [
    "ENGINES",
    "Auto",
    "Engine",
    "Evaluation",
    "Graphed",
    "Recipe",
    "Sequential",
    "ServerState",
    "Stacked",
    "Threaded",
    "evaluate",
    "run",
    "start",
]
