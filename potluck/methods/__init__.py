"""Methods: what happens at a site and at the server."""

from potluck.methods.likelihood import Likelihood
from potluck.methods.method import (
    Arrival,
    AtServer,
    Batch,
    Differentiate,
    Gradient,
    LocalModel,
    Loss,
    Method,
    Objective,
    Plan,
    SiteData,
)

METHODS: dict[str, type[Method]] = {"likelihood": Likelihood}

__all__ = [
    "METHODS",
    "Arrival",
    "AtServer",
    "Batch",
    "Differentiate",
    "Gradient",
    "Likelihood",
    "LocalModel",
    "Loss",
    "Method",
    "Objective",
    "Plan",
    "SiteData",
]
