"""Engines: who runs a round, and the round loop around them."""

from potluck.engines.engine import Engine
from potluck.engines.evaluation import Evaluation, evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import Record, ServerState, run, start
from potluck.engines.sequential import Sequential
from potluck.engines.stacked import Stacked

ENGINES: dict[str, type[Sequential] | type[Stacked]] = {
    "sequential": Sequential,
    "stacked": Stacked,
}

__all__ = [
    "ENGINES",
    "Engine",
    "Evaluation",
    "Recipe",
    "Record",
    "Sequential",
    "ServerState",
    "Stacked",
    "evaluate",
    "run",
    "start",
]
