"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in the python and the binary release, and others."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.data.dataset import Dataset, Groupings, Split, check
from potluck.data.readers._files import Layout, read_layout, require_file
from potluck.data.readers._groups import check_coarse, grouped
from potluck.data.readers.npz import read_npz
from potluck.data.readers.pickles import read_pickle
from potluck.data.readers.shards import read_shards
from potluck.errors import PotluckError

_PIXELS = 3 * 32 * 32

CIFAR10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

# The releases number both the superclasses and the classes alphabetically.
_SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
CIFAR100 = tuple(sorted(" ".join(_SUPERCLASSES.values()).split()))
CIFAR100_SUPERCLASSES = tuple(_SUPERCLASSES)
_PARENT = {
    name: index for index, group in enumerate(_SUPERCLASSES.values()) for name in group.split()
}
_FINE_TO_COARSE = np.array([_PARENT[name] for name in CIFAR100])


class _Records(NamedTuple):
    """Images (N, 3072) in channel, row, column order, and their labels (N,)."""

    pixels: NDArray[np.uint8]
    fine: NDArray[np.int64]
    coarse: NDArray[np.int64] | None


def cifar10(path: Path | str | None) -> Split:
    """Read CIFAR-10 from the python or binary release, shards, or a `cifar10.npz`.

    Args:
      path: the folder with the files, or one with `cifar-10-batches-py`, `cifar-10-batches-bin`
            or `cifar10` in it.

    Returns:
      Training and test images (N, 3, 32, 32) of ten classes.
    """
    return read_layout(
        "cifar10",
        path,
        ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar10"),
        (
            Layout("python release", "data_batch_1", _cifar10_pickles),
            Layout("binary release", "data_batch_1.bin", _cifar10_binary),
            Layout("shards", "train*.mxz", read_shards),
            Layout("NPZ", "cifar10.npz", lambda f: read_npz(f / "cifar10.npz", names=CIFAR10)),
        ),
    )


def cifar100(path: Path | str | None) -> Split:
    """Read CIFAR-100 from the python or binary release, shards, or a `cifar100.npz`.

    Args:
      path: the folder with the files, or one with `cifar-100-python`, `cifar-100-binary` or
            `cifar100` in it.

    Returns:
      Training and test images (N, 3, 32, 32) of 100 classes, which the grouping "superclass"
      puts into 20.
    """
    groupings = {"superclass": grouped(CIFAR100, CIFAR100_SUPERCLASSES, _FINE_TO_COARSE)}
    return read_layout(
        "cifar100",
        path,
        ("cifar-100-python", "cifar-100-binary", "cifar100"),
        (
            Layout("python release", "train", _cifar100_pickles),
            Layout("binary release", "train.bin", _cifar100_binary),
            Layout("shards", "train*.mxz", partial(read_shards, grouping="superclass")),
            Layout(
                "NPZ",
                "cifar100.npz",
                lambda f: read_npz(f / "cifar100.npz", names=CIFAR100, groupings=groupings),
            ),
        ),
    )


def _cifar10_pickles(folder: Path) -> Split:
    def read(name: str) -> _Records:
        return _pickled(folder / name, "labels", None)

    meta = folder / "batches.meta"
    names = _pickled_names(meta, "label_names", CIFAR10) if meta.is_file() else CIFAR10
    train = _joined([read(f"data_batch_{index}") for index in range(1, 6)])
    return _split(train, read("test_batch"), names, {}, folder)


def _cifar10_binary(folder: Path) -> Split:
    def read(name: str) -> _Records:
        return _binary(folder / f"{name}.bin", 1)

    names = _listed_names(folder / "batches.meta.txt", CIFAR10)
    train = _joined([read(f"data_batch_{index}") for index in range(1, 6)])
    return _split(train, read("test_batch"), names, {}, folder)


def _cifar100_pickles(folder: Path) -> Split:
    def read(name: str) -> _Records:
        return _pickled(folder / name, "fine_labels", "coarse_labels")

    names, coarse, meta = CIFAR100, CIFAR100_SUPERCLASSES, folder / "meta"
    if meta.is_file():
        names = _pickled_names(meta, "fine_label_names", CIFAR100)
        coarse = _pickled_names(meta, "coarse_label_names", CIFAR100_SUPERCLASSES)
    groupings = {"superclass": grouped(names, coarse, _FINE_TO_COARSE)}
    return _split(read("train"), read("test"), names, groupings, folder)


def _cifar100_binary(folder: Path) -> Split:
    names = _listed_names(folder / "fine_label_names.txt", CIFAR100)
    coarse = _listed_names(folder / "coarse_label_names.txt", CIFAR100_SUPERCLASSES)
    groupings = {"superclass": grouped(names, coarse, _FINE_TO_COARSE)}
    train, test = _binary(folder / "train.bin", 2), _binary(folder / "test.bin", 2)
    return _split(train, test, names, groupings, folder)


def _pickled(path: Path, fine: str, coarse: str | None) -> _Records:
    batch = read_pickle(path)
    keys = ["data", fine] + ([coarse] if coarse else [])
    if not isinstance(batch, dict) or not all(key in batch for key in keys):
        raise PotluckError(f'"{path}" is no batch of this release: it needs {", ".join(keys)}.')
    pixels = np.asarray(batch["data"])
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise PotluckError(
            f'"{path}": data must be uint8 (N, {_PIXELS}), not {pixels.dtype} {pixels.shape}.'
        )
    return _Records(
        pixels,
        np.array(batch[fine], np.int64),
        np.array(batch[coarse], np.int64) if coarse else None,
    )


def _binary(path: Path, labels: int) -> _Records:
    """Records of 1 (class) or 2 (superclass, class) label bytes and the pixels."""
    content = np.frombuffer(require_file(path).read_bytes(), np.uint8)
    if content.size % (labels + _PIXELS):
        raise PotluckError(
            f'"{path}" has {content.size} bytes, which is no multiple of a record\'s '
            f"{labels + _PIXELS}; it is cut off or damaged, fetch it again."
        )
    records = content.reshape(-1, labels + _PIXELS)
    fine = records[:, labels - 1].astype(np.int64)
    coarse = records[:, 0].astype(np.int64) if labels == 2 else None
    return _Records(records[:, labels:], fine, coarse)


def _joined(batches: Sequence[_Records]) -> _Records:
    pixels = np.concatenate([batch.pixels for batch in batches])
    return _Records(pixels, np.concatenate([batch.fine for batch in batches]), None)


def _split(
    train: _Records,
    test: _Records,
    names: tuple[str, ...],
    groupings: Groupings,
    folder: Path,
) -> Split:
    def part(records: _Records, which: str) -> Dataset:
        where = f'"{folder}", {which} data'
        if records.coarse is not None:
            check_coarse(records.fine, records.coarse, _FINE_TO_COARSE, where)
        images = torch.from_numpy(records.pixels.reshape(-1, 3, 32, 32).copy())
        return check(Dataset(images, torch.from_numpy(records.fine), names, groupings), where)

    return Split(part(train, "training"), part(test, "test"))


def _pickled_names(path: Path, key: str, standard: tuple[str, ...]) -> tuple[str, ...]:
    meta = read_pickle(path)
    if not isinstance(meta, dict) or key not in meta:
        raise PotluckError(f'"{path}" has no {key}.')
    return _checked_names(path, [str(name) for name in meta[key]], standard)


def _listed_names(path: Path, standard: tuple[str, ...]) -> tuple[str, ...]:
    """One name a line; the standard names where there is no such file."""
    if not path.is_file():
        return standard
    return _checked_names(path, path.read_text("utf-8").split(), standard)


def _checked_names(path: Path, names: list[str], standard: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) != len(standard):
        raise PotluckError(f'"{path}" names {len(names)} labels; there must be {len(standard)}.')
    return tuple(names)
