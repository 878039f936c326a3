"""Vectors as the rows of a matrix, so that one operation serves them all."""

from collections.abc import Sequence

import torch
from torch import Tensor


def as_rows(vectors: Sequence[Tensor]) -> Tensor:
    """Vectors (P,) → (S, P); without a copy where they lie one after another in memory."""
    first = vectors[0]
    if len(vectors) == 1:
        return first.unsqueeze(0)
    return _in_place(vectors) if _adjacent(vectors) else torch.stack(list(vectors))


def _adjacent(vectors: Sequence[Tensor]) -> bool:
    """Whether vectors are pieces of one storage, each where the one before it ends."""
    first = vectors[0]
    size, begin = first.nbytes, first.data_ptr()
    storage = first.untyped_storage()
    inside = begin + len(vectors) * size <= storage.data_ptr() + storage.nbytes()
    return inside and all(
        vector.data_ptr() == begin + number * size
        and vector.shape == first.shape
        and vector.dtype == first.dtype
        and vector.is_contiguous()
        for number, vector in enumerate(vectors)
    )


def _in_place(vectors: Sequence[Tensor]) -> Tensor:
    first = vectors[0]
    return first.as_strided((len(vectors), len(first)), (len(first), 1))
