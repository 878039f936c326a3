"""Losslessly packed stacks of small images (`.mxz`) with their labels in `labels.npz`.

A stack is `MXZ1`, a little-endian uint32 length, that many bytes of JSON (shape, mode, sha256 of
the C-ordered array), then a raw LZMA2 stream. In mode "med" the stream has, plane after plane, the
differences (mod 256) from the median edge detector's prediction; with three channels the planes
are green, red − green and blue − green. In mode "raw" it has the array itself.
"""

import hashlib
import json
import lzma
import math
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.data.dataset import Dataset, Split, check
from potluck.data.readers._files import require_file
from potluck.data.readers._groups import check_coarse, grouped
from potluck.data.readers._npz import npz_arrays, npz_names
from potluck.errors import PotluckError

# The stream itself says all but how far back it refers: 64 MiB, the most a preset asks for.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9}]


def read_shards(folder: Path | str, grouping: str = "coarse") -> Split:
    """Read a folder with `train.mxz` or `train_0.mxz`, `train_1.mxz`, …, `test.mxz`, `labels.npz`.

    `labels.npz` has `train_fine`, `test_fine` and `fine_names`. It may have `fine_to_coarse` with
    `coarse_names`, and then also `train_coarse` and `test_coarse`, which must agree.

    Args:
      folder:   where they are.
      grouping: what to call the coarser label space, where there is one.

    Returns:
      Training and test data in the stored order.
    """
    folder = Path(folder)
    labels = folder / "labels.npz"
    known = npz_names(labels)
    (fine_names,) = npz_arrays(labels, ["fine_names"])
    names = tuple(map(str, fine_names))
    parents = np.zeros(len(names), np.int64)
    groupings = {}
    if "fine_to_coarse" in known:
        to_coarse, coarse_names = npz_arrays(labels, ["fine_to_coarse", "coarse_names"])
        if len(to_coarse) != len(names):
            raise PotluckError(f'"{labels}": fine_to_coarse must have {len(names)} entries.')
        parents = to_coarse.astype(np.int64)
        groupings[grouping] = grouped(names, tuple(map(str, coarse_names)), parents)

    def part(prefix: str, stacks: list[Path]) -> Dataset:
        where = f'"{folder}", {prefix} shards'
        fine = npz_arrays(labels, [f"{prefix}_fine"])[0].astype(np.int64)
        if groupings and f"{prefix}_coarse" in known:
            (coarse,) = npz_arrays(labels, [f"{prefix}_coarse"])
            check_coarse(fine, coarse.astype(np.int64), parents, where)
        # Unpacking releases the interpreter's lock, so threads do it side by side.
        with ThreadPoolExecutor() as pool:
            images = np.concatenate(list(pool.map(read_stack, stacks)))
        inputs = torch.from_numpy(images if images.ndim == 4 else images[:, None])
        return check(Dataset(inputs, torch.from_numpy(fine), names, groupings), where)

    return Split(part("train", _train_stacks(folder)), part("test", [folder / "test.mxz"]))


def read_stack(path: Path | str) -> NDArray[np.uint8]:
    """Unpack one `.mxz` file and check it against its sha256.

    Args:
      path: the file.

    Returns:
      (N, C, H, W) or (N, H, W) images, as they were packed.
    """
    content = require_file(path).read_bytes()
    if content[:4] != b"MXZ1":
        raise PotluckError(f'"{path}" is not a shard: it does not start with MXZ1.')
    try:
        start = 8 + struct.unpack("<I", content[4:8])[0]
        head = json.loads(content[8:start])
        shape, mode, sha256 = tuple(map(int, head["shape"])), head["mode"], head["sha256"]
        stream = lzma.decompress(content[start:], lzma.FORMAT_RAW, filters=_FILTERS)
    except (struct.error, ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise PotluckError(f'"{path}" is damaged ({error}); fetch it again.') from error
    if mode not in ("raw", "med") or len(stream) != math.prod(shape) or len(shape) not in (3, 4):
        raise PotluckError(f'"{path}" is damaged: its content does not fit its header {head}.')
    body = np.frombuffer(stream, np.uint8)
    images = body.reshape(shape).copy() if mode == "raw" else _undo_prediction(body, shape)
    images = np.ascontiguousarray(images)
    if hashlib.sha256(images.data).hexdigest() != sha256:
        raise PotluckError(
            f'"{path}" is damaged: its images do not have the sha256 it states; fetch it again.'
        )
    return images


def _train_stacks(folder: Path) -> list[Path]:
    if (folder / "train.mxz").is_file():
        return [folder / "train.mxz"]
    # Counting up, not sorting names: train_10 comes after train_9, and a gap is an error.
    count = len(list(folder.glob("train_*.mxz")))
    return [folder / f"train_{index}.mxz" for index in range(max(count, 1))]


def _undo_prediction(body: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    planes = 3 if len(shape) == 4 and shape[1] == 3 else 1
    height, width = shape[-2:]
    # Pixels first: the loop goes over positions, each step over all images and planes at once.
    rest = body.reshape(planes, -1, height, width).transpose(2, 3, 0, 1).copy()
    out = np.empty(rest.shape, np.int16)
    # Differences of colours were predicted as signed numbers. The detector commutes with adding
    # a constant, so starting them at 128 makes them unsigned; 128 comes off again at the end.
    base = np.array([[0], [128], [128]], np.int16)[:planes]
    for i in range(height):
        for j in range(width):
            if i and j:
                left, up, corner = out[i, j - 1], out[i - 1, j], out[i - 1, j - 1]
                low, high = np.minimum(left, up), np.maximum(left, up)
                guess = np.clip(left + up - corner, low, high)
            else:
                guess = out[i, j - 1] if j else out[i - 1, 0] if i else base
            out[i, j] = (rest[i, j] + guess) & 255
    unsigned = out.astype(np.uint8).transpose(2, 3, 0, 1)  # (planes, N, H, W)
    if planes == 1:
        return unsigned.reshape(shape)
    green = unsigned[0]
    red, blue = unsigned[1:] - np.uint8(128) + green
    return np.stack([red, green, blue], 1)
