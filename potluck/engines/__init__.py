"""Engines: who runs a round, and the round loop around them."""

from potluck.engines.evaluation import Evaluation, evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import Record, ServerState, run, start
from potluck.engines.sequential import ENGINES, Engine, Sequential

__all__ = [
    "ENGINES",
    "Engine",
    "Evaluation",
    "Recipe",
    "Record",
    "Sequential",
    "ServerState",
    "evaluate",
    "run",
    "start",
]
