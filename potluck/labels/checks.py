"""Checks on the matrices and vectors that people declare for a view."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError
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
    try:
        array = np.array(torch.as_tensor(values).cpu(), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PotluckError(f"{what} is not a table of numbers: {error}.") from None
    wanted = f"{'any number of' if rows is None else rows} rows × {columns} columns"
    if array.ndim != 2 or array.shape[1] != columns or rows not in (None, array.shape[0]):
        raise PotluckError(f"{what} must have {wanted}; it has shape {array.shape}.")
    if array.shape[0] == 0:
        raise PotluckError(f"{what} has no rows.")
    if not np.isfinite(array).all():
        raise PotluckError(f"{what} contains values that are not finite numbers.")
    if (array < 0).any():
        row, column = np.argwhere(array < 0)[0]
        raise PotluckError(
            f"{what} has a negative entry {array[row, column]:g} in row {row}, column {column}; "
            "probabilities are between 0 and 1."
        )
    return torch.from_numpy(array)


def stochastic_columns(what: str, matrix: Tensor, names: Sequence[str]) -> Tensor:
    """Check that every column sums to 1 (up to rounding by hand) and make the sums exact."""
    sums = matrix.sum(0)
    if (wrong := (sums - 1).abs() > SUM_TOLERANCE).any():
        k = int(wrong.nonzero()[0])
        raise PotluckError(
            f'{what}: the column of class "{names[k]}" sums to {float(sums[k]):.4g}, not 1; '
            "a column holds the probabilities of all symbols given that class."
        )
    return matrix / sums


def stochastic_rows(what: str, matrix: Tensor, names: Sequence[str]) -> Tensor:
    """Check that every row sums to 1 (up to rounding by hand) and make the sums exact."""
    sums = matrix.sum(1)
    if (wrong := (sums - 1).abs() > SUM_TOLERANCE).any():
        m = int(wrong.nonzero()[0])
        raise PotluckError(
            f'{what}: the row of "{names[m]}" sums to {float(sums[m]):.4g}, not 1; '
            "a row holds the proportions of all classes in that bag."
        )
    return matrix / sums.unsqueeze(1)


def as_prior(what: str, values: Any, space: LabelSpace) -> Tensor:
    """A declared class prior as (K,) float64 that is positive and sums to 1."""
    prior = as_matrix(what, torch.as_tensor(values).reshape(1, -1), 1, len(space))[0]
    if (zero := prior <= 0).any():
        name = space.names[int(zero.nonzero()[0])]
        raise PotluckError(
            f'{what} is 0 for class "{name}"; a class that never occurs in the target '
            "population cannot be learned: leave it out of the label space or give it a share."
        )
    if abs(float(prior.sum()) - 1) > SUM_TOLERANCE:
        raise PotluckError(f"{what} sums to {float(prior.sum()):.4g}, not 1.")
    return prior / prior.sum()
