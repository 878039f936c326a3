"""Local training: optimisers, schedules and batches of a site within a round."""

from potluck.local.optimisers import LOCAL_OPTIMISERS, SGD, Adam, AdamW, LocalOptimiser
from potluck.local.schedules import SCHEDULES, Constant, Cosine, Schedule, Step
from potluck.local.training import LocalTraining, clipped

__all__ = [
    "LOCAL_OPTIMISERS",
    "SCHEDULES",
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "LocalOptimiser",
    "LocalTraining",
    "Schedule",
    "Step",
    "clipped",
]
