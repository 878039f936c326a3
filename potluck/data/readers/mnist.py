"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017)."""

from functools import partial
from pathlib import Path

from potluck.data.dataset import Groupings, Split
from potluck.data.readers._files import Layout, read_layout
from potluck.data.readers.idx import read_idx_folder
from potluck.data.readers.npz import read_npz
from potluck.data.readers.shards import read_shards

DIGITS = tuple("0123456789")

GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# Where on the body a thing is worn: a coarse label that a shop would have.
GARMENT_GROUPS: Groupings = {
    "group": {
        "top_or_dress": ("T-shirt/top", "Pullover", "Dress", "Coat", "Shirt"),
        "trouser": ("Trouser",),
        "footwear": ("Sandal", "Sneaker", "Ankle boot"),
        "bag": ("Bag",),
    }
}


def mnist(path: Path | str | None) -> Split:
    """Read MNIST from idx files, shards, or an `mnist.npz` with x_train, y_train, x_test, y_test.

    Args:
      path: the folder with the files, or one with `raw`, `MNIST/raw` or `mnist` in it.

    Returns:
      Training and test images (N, 1, 28, 28) of the ten digits.
    """
    return read_layout(
        "mnist", path, ("raw", "MNIST/raw", "mnist"), _layouts("mnist.npz", DIGITS, {})
    )


def fashion_mnist(path: Path | str | None) -> Split:
    """Read Fashion-MNIST from idx files, shards, or a `fashion_mnist.npz` like MNIST's.

    Args:
      path: the folder with the files, or one with `raw`, `FashionMNIST/raw` or `fashion_mnist`.

    Returns:
      Training and test images (N, 1, 28, 28) of ten garments, which the grouping "group" puts
      into four: top_or_dress, trouser, footwear, bag.
    """
    return read_layout(
        "fashion-mnist",
        path,
        ("raw", "FashionMNIST/raw", "fashion_mnist"),
        _layouts("fashion_mnist.npz", GARMENTS, GARMENT_GROUPS),
    )


def _layouts(npz: str, names: tuple[str, ...], groupings: Groupings) -> tuple[Layout, ...]:
    return (
        Layout(
            "idx files",
            "train-images?idx3-ubyte*",
            partial(read_idx_folder, names=names, groupings=groupings),
        ),
        Layout("shards", "train*.mxz", partial(read_shards, grouping="group")),
        Layout("NPZ", npz, lambda folder: read_npz(folder / npz, names=names, groupings=groupings)),
    )
