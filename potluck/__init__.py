"""Potluck: federated learning where every site brings the labels it has.

The names below are loaded when they are first used: importing `potluck` itself does not wait for
torch, so that commands that only read and show what a run has left behind start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from potluck.engines import Recipe
    from potluck.errors import PotluckError
    from potluck.federated import (
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedBN,
        FedNova,
        FedProx,
        FedYogi,
        Scaffold,
    )
    from potluck.federation import Federation, Site
    from potluck.labels import (
        LabelSpace,
        LabelView,
        bags,
        candidate_mask,
        candidates,
        coarse,
        exact,
        identifiability,
        noisy,
        private_subset,
        subset,
        unlabeled,
    )
    from potluck.local import SGD, Adam, AdamW, Constant, Cosine, LocalTraining, Step
    from potluck.methods import Likelihood
    from potluck.training import Trained, train

__version__ = "0.1.0"

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedNova",
    "FedProx",
    "FedYogi",
    "Federation",
    "LabelSpace",
    "LabelView",
    "Likelihood",
    "LocalTraining",
    "PotluckError",
    "Recipe",
    "Scaffold",
    "Site",
    "Step",
    "Trained",
    "bags",
    "candidate_mask",
    "candidates",
    "coarse",
    "exact",
    "identifiability",
    "noisy",
    "private_subset",
    "subset",
    "train",
    "unlabeled",
]

_ROOMS = ("errors", "labels", "local", "federation", "federated", "methods", "engines", "training")


def __getattr__(name: str) -> object:
    """A public name, from the room that has it; it is then an ordinary attribute."""
    if name in __all__:
        for room in _ROOMS:
            module = import_module(f"potluck.{room}")
            if hasattr(module, name):
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module 'potluck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
