"""Methods: what happens at a site and at the server."""

from potluck.methods.candidate_targets import CandidateTargets
from potluck.methods.fedllp import FedLLP
from potluck.methods.fedllp_vat import FedLLPVAT
from potluck.methods.fedmatch import FedMatch
from potluck.methods.fedmt import FedMT
from potluck.methods.fedpl import FedPL
from potluck.methods.fedpll_laar import FedPLLLAAR
from potluck.methods.fedrep import FedRep
from potluck.methods.fedtrans import FedTrans
from potluck.methods.fedul import FedUL
from potluck.methods.fedul_refined import RefinedFedUL
from potluck.methods.label_projection import LabelProjection
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
from potluck.methods.semifl import SemiFL
from potluck.methods.single import Single

METHODS: dict[str, type[Method]] = {
    "candidate-targets": CandidateTargets,
    "fedllp": FedLLP,
    "fedllp-vat": FedLLPVAT,
    "fedmatch": FedMatch,
    "fedmt": FedMT,
    "fedpl": FedPL,
    "fedpll-laar": FedPLLLAAR,
    "fedrep": FedRep,
    "fedtrans": FedTrans,
    "fedul": FedUL,
    "fedul-refined": RefinedFedUL,
    "label-projection": LabelProjection,
    "likelihood": Likelihood,
    "semifl": SemiFL,
    "single": Single,
}

__all__ = [
    "METHODS",
    "Arrival",
    "AtServer",
    "Batch",
    "CandidateTargets",
    "Differentiate",
    "FedLLP",
    "FedLLPVAT",
    "FedMT",
    "FedMatch",
    "FedPL",
    "FedPLLLAAR",
    "FedRep",
    "FedTrans",
    "FedUL",
    "Gradient",
    "LabelProjection",
    "Likelihood",
    "LocalModel",
    "Loss",
    "Method",
    "Objective",
    "Plan",
    "RefinedFedUL",
    "SemiFL",
    "Single",
    "SiteData",
]
