"""Checks on the matrices and vectors that people declare for a view."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.arrays import as_numbers
from potluck.labels.space import LabelSpace

# Hand-written probabilities are rounded (0.333 three times); more than this is a mistake.
SUM_TOLERANCE = 1e-2


def as_matrix(what: str, values: Any, rows: int | None, columns: int) -> Tensor:
    """A declared matrix as finite, non-negative float64 of the right shape, or an error.

    Args:
      what:    how to call it in messages, e.g. "the correspondence matrix M".
      values:  nested lists, an array or a tensor.
      rows:    the number of rows it must have; None accepts any number from 1.
      columns: the number of columns it must have.

    Returns:
      (rows, columns) float64 on the CPU.
    """
    array = as_numbers(what, values).astype(np.float64)
    if array.ndim != 2 or array.shape[1] != columns or rows not in (None, array.shape[0]):
        found = " × ".join(str(size) for size in array.shape)
        raise PotluckError(
            f"{what} must have {'any number of' if rows is None else rows} rows × {columns} "
            f"columns, one column for each target class; it is {found}."
        )
    if array.shape[0] == 0:
        raise PotluckError(f"{what} has no rows; it needs at least one.")
    if (wrong := ~np.isfinite(array)).any():
        raise PotluckError(
            f"{what} has the entry {_where(array, wrong)}; fill in a finite number (0 where "
            "something cannot happen)."
        )
    if (wrong := array < 0).any():
        raise PotluckError(
            f"{what} has the negative entry {_where(array, wrong)}; probabilities are between "
            "0 and 1."
        )
    return torch.from_numpy(array)


def _where(array: np.ndarray, wrong: np.ndarray) -> str:
    row, column = np.argwhere(wrong)[0]
    return f"{array[row, column]:g} in row {row + 1}, column {column + 1} (counted from 1)"


def stochastic_columns(what: str, matrix: Tensor, names: Sequence[str]) -> Tensor:
    """Check that every column sums to 1 (up to rounding by hand) and make the sums exact."""
    sums = matrix.sum(0)
    if (wrong := (sums - 1).abs() > SUM_TOLERANCE).any():
        k = int(wrong.nonzero()[0])
        raise PotluckError(
            f'{what}: the column of class "{names[k]}" sums to {float(sums[k]):.4g}, not 1; '
            "a column holds the probabilities of all labels that a case of that class may get "
            "(divide percentages by 100)."
        )
    return matrix / sums


def stochastic_rows(what: str, matrix: Tensor, names: Sequence[str]) -> Tensor:
    """Check that every row sums to 1 (up to rounding by hand) and make the sums exact."""
    sums = matrix.sum(1)
    if (wrong := (sums - 1).abs() > SUM_TOLERANCE).any():
        m = int(wrong.nonzero()[0])
        raise PotluckError(
            f'{what}: the row of bag "{names[m]}" sums to {float(sums[m]):.4g}, not 1; '
            "a row holds the proportions of all classes in that bag (divide percentages by 100)."
        )
    return matrix / sums.unsqueeze(1)


def as_prior(what: str, values: Any, space: LabelSpace) -> Tensor:
    """A declared class prior as (K,) float64 that is positive and sums to 1."""
    given = as_numbers(what, values).reshape(1, -1)
    if given.shape[1] != len(space):
        raise PotluckError(
            f"{what} has {given.shape[1]} entries but there are {len(space)} target classes; "
            "give the share of each class."
        )
    prior = as_matrix(what, given, 1, len(space))[0]
    if (zero := prior <= 0).any():
        name = space.names[int(zero.nonzero()[0])]
        raise PotluckError(
            f'{what} is 0 for class "{name}"; a class that never occurs in the target '
            "population cannot be learned: leave it out of the label space or give it a share."
        )
    if abs(float(prior.sum()) - 1) > SUM_TOLERANCE:
        raise PotluckError(
            f"{what} sums to {float(prior.sum()):.4g}, not 1; give the share of each class "
            "(divide percentages by 100)."
        )
    return prior / prior.sum()
