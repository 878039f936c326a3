"""Potluck: federated learning where every site brings the labels it has."""

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
