"""Values as people hand them over (lists, tables, tensors), as NumPy arrays."""

from typing import Any

import numpy as np
from torch import Tensor

from potluck.errors import PotluckError


def as_array(what: str, values: Any) -> np.ndarray:
    """Lists, an array, a data frame, a tensor or a SciPy sparse matrix, as an array.

    Args:
      what:   how to call it in messages, e.g. "the labels".
      values: the values.
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    if hasattr(values, "toarray"):
        return np.asarray(values.toarray())
    try:
        return np.asarray(values)
    except ValueError:
        raise PotluckError(
            f"{what}: the rows have different lengths; give every row the same number of entries."
        ) from None


def as_numbers(what: str, values: Any) -> np.ndarray:
    """The same, of whole, real or true/false numbers only."""
    array = as_array(what, values)
    if array.dtype.kind not in "biuf":
        raise PotluckError(f"{what}: numbers are needed, without text or blank cells.")
    return array
