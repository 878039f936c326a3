"""SVHN, street view house numbers (Netzer et al., 2011): cropped digits in MATLAB files."""

import zlib
from pathlib import Path

import numpy as np
import torch

from potluck.data.dataset import Dataset, Split, check
from potluck.data.readers._files import Layout, read_layout, require_file
from potluck.data.readers.npz import read_npz
from potluck.errors import PotluckError

_DIGITS = tuple("0123456789")


def svhn(path: Path | str | None) -> Split:
    """Read SVHN from `train_32x32.mat` and `test_32x32.mat`, or an `svhn.npz`.

    Args:
      path: the folder with the files, or one with `svhn` in it.

    Returns:
      Training and test images (N, 3, 32, 32) of the ten digits.
    """
    return read_layout(
        "svhn",
        path,
        ("svhn", "SVHN"),
        (
            Layout("MATLAB files", "train_32x32.mat", _read_folder),
            Layout("NPZ", "svhn.npz", lambda folder: read_npz(folder / "svhn.npz", names=_DIGITS)),
        ),
    )


def _read_folder(folder: Path) -> Split:
    return Split(read_mat(folder / "train_32x32.mat"), read_mat(folder / "test_32x32.mat"))


def read_mat(path: Path | str) -> Dataset:
    """Read one of SVHN's files: `X` (32, 32, 3, N) uint8, and `y` (N, 1) with 10 for the digit 0.

    Args:
      path: the file.

    Returns:
      Images (N, 3, 32, 32), classes in the order of the digits.
    """
    import scipy.io  # here, because it is slow to import and nothing else needs it

    path = require_file(path)
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
    except (
        NotImplementedError,  # a version of the format it does not know
        EOFError,
        IndexError,
        OSError,
        TypeError,
        ValueError,
        zlib.error,
        scipy.io.matlab.MatReadError,
    ) as error:
        raise PotluckError(f'"{path}" cannot be read as a MATLAB file: {error}') from error
    if "X" not in content or "y" not in content:
        raise PotluckError(f'"{path}" must have the variables X (images) and y (labels).')
    images, labels = content["X"], content["y"].reshape(-1).astype(np.int64)
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise PotluckError(f'"{path}": X must be (32, 32, 3, N), but is {images.shape}.')
    if len(labels) and not 1 <= labels.min() <= labels.max() <= 10:
        raise PotluckError(
            f'"{path}": labels must be 1 to 10 (10 is the digit 0), '
            f"but {labels.min()} to {labels.max()} occur."
        )
    inputs = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
    return check(Dataset(inputs, torch.from_numpy(labels % 10), _DIGITS), f'"{path}"')
