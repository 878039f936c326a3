"""`exact`: the class itself was written down."""

import torch

from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior


def exact(space: LabelSpace) -> LabelView:
    """Labels that name the target class: a = e_y, b = 1, so the loss is cross-entropy."""
    return LabelView(
        kind="exact",
        space=space,
        symbols=space,
        codebook=torch.eye(len(space), dtype=torch.float64),
        normaliser=full_normaliser(space),
        prior=uniform_prior(space),
    )
