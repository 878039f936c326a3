"""Wrong labels: each class is sometimes seen as another one."""

import torch
from torch import Tensor

from potluck.data.makers.coarse import coarsen
from potluck.errors import PotluckError


def symmetric(num_classes: int, rate: float) -> Tensor:
    """Transition matrix in which a wrong label is any other class with equal probability.

    Args:
      num_classes: number of classes K.
      rate:        probability of a wrong label, in [0, 1).

    Returns:
      (K, K) with entry [z, k] = P(observe z | class k).
    """
    _check(num_classes, rate)
    wrong = torch.full((num_classes, num_classes), rate / (num_classes - 1))
    return wrong.fill_diagonal_(1 - rate)


def pair(num_classes: int, rate: float) -> Tensor:
    """Transition matrix in which a wrong label is always the next class (the last one's is 0).

    Args:
      num_classes: number of classes K.
      rate:        probability of a wrong label, in [0, 1).

    Returns:
      (K, K) with entry [z, k] = P(observe z | class k).
    """
    _check(num_classes, rate)
    right = torch.eye(num_classes)
    return (1 - rate) * right + rate * right.roll(1, dims=0)


def flip(classes: Tensor, transition: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the observed class of each sample.

    Args:
      classes:    (N,) true class of each sample.
      transition: (K, K) with entry [z, k] = P(observe z | class k); columns sum to 1.
      generator:  source of the draws.

    Returns:
      (N,) observed class of each sample.
    """
    rows, columns = transition.shape
    if rows != columns:
        raise PotluckError(
            f"noise: a transition matrix is square, not {rows} × {columns}; "
            "use coarse labels for observations in another label space."
        )
    return coarsen(classes, transition, generator)


def _check(num_classes: int, rate: float) -> None:
    if num_classes < 2:
        raise PotluckError(f"noise: wrong labels need at least 2 classes, not {num_classes}.")
    if not 0 <= rate < 1:
        raise PotluckError(f"noise: rate must be at least 0 and below 1, not {rate}.")
