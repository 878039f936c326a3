"""Labels in another space: each class is seen as one of the other space's symbols."""

import torch
from torch import Tensor

from potluck.errors import PotluckError


def coarsen(classes: Tensor, matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Draw what is observed for each sample.

    Args:
      classes:   (N,) true class of each sample.
      matrix:    (J, K) with matrix[j, k] = P(observe j | class k); columns sum to 1. With zeros
                 and ones only, the outcome is certain.
      generator: source of the draws.

    Returns:
      (N,) observed symbol of each sample, 0 … J−1.
    """
    num_classes = matrix.shape[1]
    if len(classes) and int(classes.max()) >= num_classes:
        raise PotluckError(
            f"P(observed | class) has {num_classes} columns, but there are samples of class "
            f"{int(classes.max())}; give it one column for each class."
        )
    if bool((matrix < 0).any()):
        raise PotluckError("P(observed | class) has negative entries; probabilities are from 0.")
    sums = matrix.double().sum(0)
    off = ((sums - 1).abs() > 1e-4).nonzero().flatten().tolist()
    if off:
        raise PotluckError(
            f"P(observed | class): the column of class {off[0]} sums to {sums[off[0]]:.4g}, not 1; "
            "a column lists all the ways its class can be observed."
        )
    return torch.multinomial(matrix.T.double()[classes], 1, generator=generator).squeeze(1)
