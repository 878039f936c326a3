"""Candidate matrices: which classes each sample may be, as a file of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.data.readers._files import require_file
from potluck.data.readers._npz import npz_arrays, npz_names
from potluck.data.readers.tables import read_table
from potluck.errors import PotluckError

_SPARSE = {"indices", "indptr", "format", "shape", "data"}


def read_candidates(path: Path | str, names: Sequence[str]) -> NDArray[np.generic]:
    """Read a matrix of samples × classes with 1 for each candidate and 0 elsewhere.

    Args:
      path:  `.npz` as scipy.sparse.save_npz writes it (CSR or CSC), or with one dense array;
             `.npy`; or a table (`.csv`, `.tsv`, `.parquet`) with a column for each class.
      names: the classes; a table's columns are taken in their order, the other formats must
             have it already.

    Returns:
      (N, K) as it is stored, dense.
    """
    path = require_file(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except (EOFError, OSError, ValueError) as error:
            raise PotluckError(f'"{path}" cannot be read as an array: {error}') from error
    return read_table(path, features=names).features.numpy()


def _read_npz(path: Path) -> NDArray[np.generic]:
    known = npz_names(path)
    if set(known) >= _SPARSE:
        from scipy.sparse import load_npz  # here, because it is slow to import

        try:
            return load_npz(path).toarray()
        except (OSError, ValueError) as error:
            raise PotluckError(f'"{path}" cannot be read as a sparse matrix: {error}') from error
    if len(known) != 1:
        raise PotluckError(
            f'"{path}" must hold one array, or a sparse matrix as scipy.sparse.save_npz writes '
            f"it; it has {', '.join(known)}."
        )
    return npz_arrays(path, known)[0]
