"""The idx format of MNIST and Fashion-MNIST, plain or gzipped."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.data.dataset import Dataset, Groupings, Split, check
from potluck.data.readers._files import require_file
from potluck.errors import PotluckError


def read_idx(path: Path | str, dimensions: int) -> NDArray[np.uint8]:
    """Read one idx file of unsigned bytes.

    Args:
      path:       the file; gzipped if its name ends in `.gz`.
      dimensions: how many dimensions it must have: 3 for images, 1 for labels.

    Returns:
      The array, with as many dimensions.
    """
    content = _content(require_file(path))
    magic, expected = content[:4], struct.pack(">HBB", 0, 0x08, dimensions)
    if magic != expected:
        raise PotluckError(
            f'"{path}" is not the idx file it should be: it starts with {magic.hex(" ")}, '
            f"but bytes in {dimensions} dimension(s) start with {expected.hex(' ')}. "
            "Are images and labels mixed up, or is the file compressed without a .gz name?"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise PotluckError(f'"{path}" is cut off within its header; fetch it again.')
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise PotluckError(
            f'"{path}" promises {" × ".join(map(str, shape))} = {math.prod(shape)} bytes of data '
            f"but has {len(content) - start}; it is cut off or damaged, fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def read_idx_folder(folder: Path, names: tuple[str, ...], groupings: Groupings) -> Split:
    """Read the four files with the usual names, each plain or gzipped.

    Args:
      folder:    where they are.
      names:     names of the classes.
      groupings: coarser label spaces over them.

    Returns:
      Training and test data, images (N, 1, H, W).
    """

    def part(prefix: str) -> Dataset:
        images = read_idx(_find(folder, f"{prefix}-images", 3), 3)
        labels = read_idx(_find(folder, f"{prefix}-labels", 1), 1)
        classes = torch.from_numpy(labels).long()
        dataset = Dataset(torch.from_numpy(images).unsqueeze(1), classes, names, groupings)
        return check(dataset, f'"{folder}", {prefix} files')

    return Split(part("train"), part("t10k"))


def _find(folder: Path, stem: str, dimensions: int) -> Path:
    # Some mirrors write a dot for the first hyphen of the ending.
    names = [f"{stem}{mark}idx{dimensions}-ubyte{gz}" for mark in "-." for gz in ("", ".gz")]
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise PotluckError(f'"{folder}" has none of {", ".join(names)}.')
    return found[0]


def _content(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise PotluckError(f'"{path}" cannot be unpacked ({error}); fetch it again.') from error
