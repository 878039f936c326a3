"""Sets of classes, one per sample, as rows of marks."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.arrays import as_numbers
from potluck.labels.space import LabelSpace


def as_mask(space: LabelSpace, sets: Any) -> Tensor:
    """Check candidate sets given as a matrix: (N, K) bool, 0/1 entries, no empty row."""
    values = torch.from_numpy(as_numbers("the candidate matrix", sets))
    if values.ndim != 2 or values.shape[1] != len(space):
        raise PotluckError(
            f"candidate sets must be a matrix of samples × {len(space)} classes; "
            f"found shape {tuple(values.shape)}."
        )
    mask = values.bool()
    if not torch.equal(mask.to(values.dtype), values):
        row, column = (mask.to(values.dtype) != values).nonzero()[0].tolist()
        raise PotluckError(
            f"a candidate matrix holds 1 for a candidate and 0 otherwise; sample {row} has "
            f'{values[row, column]:g} for the class "{space.names[column]}".'
        )
    if len(mask) == 0:
        raise PotluckError("the candidate matrix has no rows; it needs one per sample.")
    if (empty := ~mask.any(1)).any():
        raise PotluckError(
            f"the candidate set of sample {int(empty.nonzero()[0])} is empty "
            f"({int(empty.sum())} in all); every sample needs at least one candidate "
            "(mark all classes for a sample nothing is known about)."
        )
    return mask


def distinct_rows(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of a mask, and which of them each row is.

    Args:
      mask: (N, K) bool.

    Returns:
      (D, K) bool in lexicographic order, and (N,) int64 with mask = distinct[index].
    """
    packed = np.packbits(mask.numpy(), axis=1)  # whole rows compare as texts of K/8 bytes
    texts = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, index = np.unique(texts, return_index=True, return_inverse=True)
    return mask[torch.from_numpy(first)], torch.from_numpy(index)
