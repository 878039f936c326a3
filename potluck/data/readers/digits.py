"""The 8 × 8 digits that come with scikit-learn: data that is always there."""

from pathlib import Path

import numpy as np
import torch

from potluck.data.dataset import TEST_FRACTION, Dataset, Split, check, split
from potluck.errors import PotluckError


def digits() -> Dataset:
    """Read scikit-learn's digits (Alpaydin and Kaynak, 1998), not yet divided for testing.

    Returns:
      1797 images (N, 1, 8, 8) of the ten digits, their 17 grey levels spread over 0 to 255.
    """
    from sklearn.datasets import load_digits  # here, because it is slow to import

    grey, labels = load_digits(return_X_y=True)
    images = np.rint(grey * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    classes = torch.from_numpy(labels.astype(np.int64))
    return check(Dataset(torch.from_numpy(images), classes, tuple("0123456789")), "digits")


def digits_split(path: Path | str | None = None, seed: int = 0) -> Split:
    """Read the digits and keep a fifth of each for testing.

    Args:
      path: None: there is no file to read.
      seed: decides which images are test data.

    Returns:
      Training and test data.
    """
    if path is not None:
        raise PotluckError(f'the digits come with scikit-learn: leave out the path "{path}".')
    return split(digits(), TEST_FRACTION, torch.Generator().manual_seed(seed))
