"""Federated optimisers: how the sites' updates become a new model."""

from potluck.federated.average import Mean, RunningMean, Weighed
from potluck.federated.fedadagrad import FedAdagrad
from potluck.federated.fedadam import FedAdam
from potluck.federated.fedavg import FedAvg
from potluck.federated.fedavgm import FedAvgM
from potluck.federated.fedbn import FedBN
from potluck.federated.fednova import FedNova
from potluck.federated.fedprox import FedProx
from potluck.federated.fedyogi import FedYogi
from potluck.federated.optimiser import FederatedOptimiser, Progress, Report
from potluck.federated.scaffold import Scaffold

FEDERATED: dict[str, type[FederatedOptimiser]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fednova": FedNova,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fedbn": FedBN,
}

__all__ = [
    "FEDERATED",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedNova",
    "FedProx",
    "FedYogi",
    "FederatedOptimiser",
    "Mean",
    "Progress",
    "Report",
    "RunningMean",
    "Scaffold",
    "Weighed",
]
