"""Unpickling data one did not write: arrays and plain values, and no code."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from potluck.data.readers._files import require_file
from potluck.errors import PotluckError


def read_pickle(path: Path | str) -> Any:
    """Read a pickle of plain values (dicts, lists, text, numbers) and numpy arrays.

    Args:
      path: the file, as Python 2 or 3 wrote it.

    Returns:
      Its content; text of Python 2 is read as Latin-1.

    Raises:
      PotluckError: if the pickle would import anything else, which is how a pickle runs code.
    """
    with require_file(path).open("rb") as file:
        try:
            return _Unpickler(file, encoding="latin1").load()
        # What a damaged pickle raises depends on the instruction the damage hits.
        except (
            pickle.UnpicklingError,
            AttributeError,
            EOFError,
            IndexError,
            KeyError,
            MemoryError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise PotluckError(f'"{path}" cannot be unpickled: {error}') from error


def _latin1(text: str, encoding: str) -> bytes:
    """Stands in for `codecs.encode`, with which Python 3 writes bytes in Python 2's protocols."""
    return text.encode("latin1")


# How numpy takes an array apart says which functions put it together, in any numpy version.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_FROMBUFFER = np.empty(1).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROMBUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROMBUFFER,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, but only arrays and plain values are read. "
                "Use this file only if you trust it, and convert it to NPZ yourself."
            )
        return _ALLOWED[module, name]
