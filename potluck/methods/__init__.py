"""Methods: what happens at a site and at the server."""

from potluck.methods.candidate_targets import CandidateTargets
from potluck.methods.fedpll_laar import FedPLLLAAR
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

METHODS: dict[str, type[Method]] = {
    "candidate-targets": CandidateTargets,
    "fedpll-laar": FedPLLLAAR,
    "likelihood": Likelihood,
}

__all__ = [
    "METHODS",
    "Arrival",
    "AtServer",
    "Batch",
    "CandidateTargets",
    "Differentiate",
    "FedPLLLAAR",
    "Gradient",
    "Likelihood",
    "LocalModel",
    "Loss",
    "Method",
    "Objective",
    "Plan",
    "SiteData",
]
