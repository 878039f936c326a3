"""What every NPZ file needs: opening it without pickles, and turning arrays into inputs."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.data.readers._files import require_file
from potluck.errors import PotluckError, one_of

# What a zip file raises depends on where the damage is.
_DAMAGE = (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)


def npz_names(path: Path | str) -> tuple[str, ...]:
    """Names of the arrays in an NPZ file."""
    path = require_file(path)
    if not zipfile.is_zipfile(path):
        raise PotluckError(f'"{path}" is not an NPZ file (as numpy.savez writes), or is damaged.')
    try:
        with np.load(path, allow_pickle=False) as file:
            return tuple(file.files)
    except _DAMAGE as error:
        raise PotluckError(f'"{path}" is damaged ({error}); make or fetch it again.') from error


def npz_arrays(path: Path | str, names: Sequence[str]) -> list[NDArray[np.generic]]:
    """The named arrays of an NPZ file, in the order asked for."""
    known = npz_names(path)
    for name in names:
        if name not in known:
            raise PotluckError(f'"{path}": {one_of("array", name, known)}')
    arrays: list[NDArray[np.generic]] = []
    with np.load(path, allow_pickle=False) as file:
        for name in names:
            try:
                arrays.append(file[name])
            except _DAMAGE as error:
                raise PotluckError(
                    f'"{path}": array "{name}" cannot be read ({error}). '
                    "Arrays must hold numbers or text, not Python objects."
                ) from error
    return arrays


def as_inputs(x: NDArray[np.generic], where: str) -> Tensor:
    """A stored array as inputs: images with their channel second, or features as float32.

    Args:
      x:     uint8 (N, H, W), (N, C, H, W), or (N, H, W, C) with C 1 or 3 and H neither; or any
             numbers (N, D).
      where: its origin, for the message.

    Returns:
      (N, C, H, W) uint8, or (N, D) float32, all finite.
    """
    if x.ndim and len(x) == 0:
        raise PotluckError(f"{where}: there are no samples.")
    if x.ndim == 2 and x.dtype.kind in "iufb":
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            features = x.astype(np.float32)
        bad = np.argwhere(~np.isfinite(features))
        if len(bad):
            raise PotluckError(
                f"{where}: row {bad[0, 0]}, column {bad[0, 1]} (counting from 0) is "
                f"{x[tuple(bad[0])]}; features must be finite numbers within float32."
            )
        return torch.from_numpy(features)
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise PotluckError(
            f"{where}: inputs are {x.dtype} of shape {x.shape}; they must be images, uint8 of "
            "shape (N, H, W), (N, C, H, W) or (N, H, W, C), or numbers of shape (N, D)."
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(x))
