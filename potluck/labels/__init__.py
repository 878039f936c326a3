"""Label spaces and views: what each site's labels say about the target classes."""

from potluck.labels.bags import bags
from potluck.labels.candidates import candidate_mask, candidates
from potluck.labels.coarse import coarse
from potluck.labels.exact import exact
from potluck.labels.identifiability import Identifiability, identifiability
from potluck.labels.noisy import noisy
from potluck.labels.space import LabelSpace
from potluck.labels.subset import private_subset, subset
from potluck.labels.unlabeled import unlabeled
from potluck.labels.view import LabelView

__all__ = [
    "Identifiability",
    "LabelSpace",
    "LabelView",
    "bags",
    "candidate_mask",
    "candidates",
    "coarse",
    "exact",
    "identifiability",
    "noisy",
    "private_subset",
    "subset",
    "unlabeled",
]
