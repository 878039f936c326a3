"""`unlabeled`: nothing was written down."""

import torch

from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior


def unlabeled(space: LabelSpace) -> LabelView:
    """Samples without labels: a = b = 1, so the likelihood says nothing and its loss is 0."""
    return LabelView(
        kind="unlabeled",
        space=space,
        symbols=LabelSpace(("nothing",)),
        codebook=torch.ones(1, len(space), dtype=torch.float64),
        normaliser=full_normaliser(space),
        prior=uniform_prior(space),
    )
