"""`noisy`: the class was written down, but wrongly at known rates."""

from typing import Any

from potluck.labels.checks import as_matrix, stochastic_columns
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior


def noisy(space: LabelSpace, transition: Any) -> LabelView:
    """Labels z that err with P(z | y = k) = T[z, k]: a = T[z], b = 1 (FedMT 2023, forward).

    Args:
      space:      the K target classes.
      transition: (K, K) matrix T; row = what is written, column = the true class.
    """
    what = "the noise matrix T"
    matrix = as_matrix(what, transition, len(space), len(space))
    return LabelView(
        kind="noisy",
        space=space,
        symbols=space,
        codebook=stochastic_columns(what, matrix, space.names),
        normaliser=full_normaliser(space),
        prior=uniform_prior(space),
    )
