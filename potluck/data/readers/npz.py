"""NPZ files: a data set for a simulation, or what one site has."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.data.dataset import TEST_FRACTION, Dataset, Groupings, Split, check, split
from potluck.data.readers._npz import as_inputs, npz_arrays, npz_names
from potluck.data.readers.samples import Samples
from potluck.errors import PotluckError


def npz(path: Path | str | None, seed: int = 0) -> Split:
    """Read a data set from an NPZ file with x_train, y_train, x_test, y_test, or with x, y.

    Args:
      path: the file.
      seed: decides which fifth of each class is test data, if the file has only x and y.

    Returns:
      Training and test data.
    """
    if path is None:
        raise PotluckError('data set "npz" needs a path: the NPZ file.')
    known = npz_names(path)
    if "x_train" in known:
        return read_npz(path)
    if "x" in known:
        return split(read_whole_npz(path), TEST_FRACTION, torch.Generator().manual_seed(seed))
    raise PotluckError(
        f'"{path}" needs the arrays x_train, y_train, x_test and y_test, or x and y; '
        f"it has {', '.join(known)}."
    )


def read_arrays(path: Path | str, inputs: str = "x", labels: str | None = "y") -> Samples:
    """Read a site's inputs and labels from an NPZ file.

    Args:
      path:   the file.
      inputs: name of the array with images or features, as in `read_npz`.
      labels: name of the array with labels, one row a sample; None for a site without labels.

    Returns:
      The inputs, and the labels as they are stored: names, numbers, or a row for each sample.
    """
    arrays = npz_arrays(path, [inputs] + ([labels] if labels else []))
    tensor = as_inputs(arrays[0], f'"{path}", array "{inputs}"')
    if labels is None:
        return Samples(tensor, None)
    if arrays[1].ndim == 0 or len(arrays[1]) != len(tensor):
        raise PotluckError(
            f'"{path}": array "{inputs}" has {len(tensor)} samples, but array "{labels}" has '
            f"shape {arrays[1].shape}; its first dimension must be the same."
        )
    return Samples(tensor, arrays[1])


def read_npz(
    path: Path | str,
    train: tuple[str, str] = ("x_train", "y_train"),
    test: tuple[str, str] = ("x_test", "y_test"),
    names: tuple[str, ...] | None = None,
    groupings: Groupings | None = None,
) -> Split:
    """Read a data set that comes with its own test data from an NPZ file.

    Inputs are uint8 images (N, H, W), (N, C, H, W) or (N, H, W, C) with C 1 or 3, or a table of
    numbers (N, D). Labels are class names, or numbers from 0.

    Args:
      path:      the file.
      train:     names of the arrays with training inputs and labels.
      test:      names of the arrays with test inputs and labels.
      names:     names of the classes, in the order of their numbers; by default the file's array
                 `names`, or else the labels that occur, or else "0", "1", ….
      groupings: coarser label spaces over these names.

    Returns:
      Training and test data.
    """
    x_train, y_train, x_test, y_test = npz_arrays(path, [*train, *test])
    y_train, y_test = _labels(y_train, f'"{path}"'), _labels(y_test, f'"{path}"')
    if (y_train.dtype.kind == "U") != (y_test.dtype.kind == "U"):
        raise PotluckError(f'"{path}": one of {train[1]} and {test[1]} has names, one numbers.')
    names = names or _class_names(path, y_train, y_test)
    return Split(
        _dataset(x_train, y_train, names, groupings, f'"{path}", arrays {" and ".join(train)}'),
        _dataset(x_test, y_test, names, groupings, f'"{path}", arrays {" and ".join(test)}'),
    )


def read_whole_npz(path: Path | str, arrays: tuple[str, str] = ("x", "y")) -> Dataset:
    """Read a data set that has yet to be divided for testing, otherwise as `read_npz`.

    Args:
      path:   the file.
      arrays: names of the arrays with inputs and labels.

    Returns:
      All samples.
    """
    x, y = npz_arrays(path, arrays)
    y = _labels(y, f'"{path}"')
    return _dataset(x, y, _class_names(path, y), None, f'"{path}", arrays {" and ".join(arrays)}')


def _dataset(
    x: NDArray[np.generic],
    y: NDArray[np.generic],
    names: tuple[str, ...],
    groupings: Groupings | None,
    where: str,
) -> Dataset:
    if y.dtype.kind == "U":
        index = {name: k for k, name in enumerate(names)}
        values, inverse = np.unique(y, return_inverse=True)
        classes = np.array([index.get(value, -1) for value in values.tolist()])[inverse]
        if (classes < 0).any():
            stranger = y[np.flatnonzero(classes < 0)[0]]
            raise PotluckError(f'{where}: label "{stranger}" is none of the class names {names}.')
    else:
        classes = y.astype(np.int64)
    dataset = Dataset(as_inputs(x, where), torch.from_numpy(classes), names, groupings or {})
    return check(dataset, where)


def _class_names(path: Path | str, *labels: NDArray[np.generic]) -> tuple[str, ...]:
    if "names" in npz_names(path):
        return tuple(map(str, npz_arrays(path, ["names"])[0]))
    values = np.unique(np.concatenate(labels))
    if values.dtype.kind == "U":
        return tuple(values.tolist())
    return tuple(map(str, range(int(values.max(initial=0)) + 1)))


def _labels(y: NDArray[np.generic], where: str) -> NDArray[np.generic]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iuU":
        raise PotluckError(
            f"{where}: labels are {y.dtype} of shape {y.shape}; they must be whole numbers from 0, "
            "or class names, in one dimension."
        )
    return y
