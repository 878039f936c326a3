"""Readers of data on disk: one file for each format or family of data sets.

The data sets a simulation can use are in `DATASETS`. What a site has is read by
`tables.read_table`, `images.read_images` and `npz.read_arrays`.
"""

from collections.abc import Callable
from pathlib import Path

from potluck.data.dataset import Split
from potluck.data.readers.cifar import cifar10, cifar100
from potluck.data.readers.digits import digits_split
from potluck.data.readers.mnist import fashion_mnist, mnist
from potluck.data.readers.npz import npz
from potluck.data.readers.semg_like import semg_like
from potluck.data.readers.svhn import svhn
from potluck.data.readers.tabular import cardiotocography, frogs
from potluck.errors import PotluckError, one_of

__all__ = ["DATASETS", "read_dataset"]

DATASETS: dict[str, Callable[[Path | str | None], Split]] = {
    "digits": digits_split,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "semg-like": semg_like,
    "npz": npz,
    "frogs": frogs,
    "cardiotocography": cardiotocography,
}


def read_dataset(name: str, path: Path | str | None = None) -> Split:
    """Read a data set in whichever of its formats is there.

    Args:
      name: one of `DATASETS`.
      path: the folder or file it is in; None for "digits" and "semg-like".

    Returns:
      Its training and test data.
    """
    if name not in DATASETS:
        raise PotluckError(one_of("data set", name, DATASETS))
    return DATASETS[name](path)
