"""Methods: what happens at a site and at the server."""

from potluck.methods.candidate_targets import CandidateTargets
from potluck.methods.fedcorr import FedCorr
from potluck.methods.fedlc import FedLC
from potluck.methods.fedllp import FedLLP
from potluck.methods.fedllp_vat import FedLLPVAT
from potluck.methods.fedmatch import FedMatch
from potluck.methods.fedmt import FedMT
from potluck.methods.fedpl import FedPL
from potluck.methods.fedpll_laar import FedPLLLAAR
from potluck.methods.fedrep import FedRep
from potluck.methods.fedrs import FedRS
from potluck.methods.fedtrans import FedTrans
from potluck.methods.fedul import FedUL
from potluck.methods.fedul_refined import RefinedFedUL
from potluck.methods.fedx import FedX
from potluck.methods.fixed_head import FixedHead
from potluck.methods.label_projection import LabelProjection
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import (
    Arrival,
    AtServer,
    Batch,
    Differentiate,
    Gradient,
    Here,
    LocalModel,
    Loss,
    Method,
    Objective,
    Plan,
    SiteData,
    Step,
)
from potluck.methods.potluck import Potluck
from potluck.methods.ridge_head import RidgeHead
from potluck.methods.rofl import RoFL
from potluck.methods.semifl import SemiFL
from potluck.methods.single import Single
from potluck.methods.tuning import Tuning

METHODS: dict[str, type[Method]] = {
    "candidate-targets": CandidateTargets,
    "fedcorr": FedCorr,
    "fedlc": FedLC,
    "fedllp": FedLLP,
    "fedllp-vat": FedLLPVAT,
    "fedmatch": FedMatch,
    "fedmt": FedMT,
    "fedpl": FedPL,
    "fedpll-laar": FedPLLLAAR,
    "fedrep": FedRep,
    "fedrs": FedRS,
    "fedtrans": FedTrans,
    "fedul": FedUL,
    "fedul-refined": RefinedFedUL,
    "fedx": FedX,
    "fixed-head": FixedHead,
    "label-projection": LabelProjection,
    "likelihood": Likelihood,
    "potluck": Potluck,
    "ridge-head": RidgeHead,
    "rofl": RoFL,
    "semifl": SemiFL,
    "single": Single,
    "tuning": Tuning,
}

__all__ = [
    "METHODS",
    "Arrival",
    "AtServer",
    "Batch",
    "CandidateTargets",
    "Differentiate",
    "FedCorr",
    "FedLC",
    "FedLLP",
    "FedLLPVAT",
    "FedMT",
    "FedMatch",
    "FedPL",
    "FedPLLLAAR",
    "FedRS",
    "FedRep",
    "FedTrans",
    "FedUL",
    "FedX",
    "FixedHead",
    "Gradient",
    "Here",
    "LabelProjection",
    "Likelihood",
    "LocalModel",
    "Loss",
    "Method",
    "Objective",
    "Plan",
    "Potluck",
    "RefinedFedUL",
    "RidgeHead",
    "RoFL",
    "SemiFL",
    "Single",
    "SiteData",
    "Step",
    "Tuning",
]
