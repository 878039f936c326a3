"""Coarse labels that follow from fine ones."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potluck.errors import PotluckError


def grouped(
    names: Sequence[str], coarse_names: Sequence[str], fine_to_coarse: NDArray[np.integer]
) -> dict[str, tuple[str, ...]]:
    """The classes of each coarse label.

    Args:
      names:          the K classes' names.
      coarse_names:   names of the coarse labels.
      fine_to_coarse: (K,) index of the coarse label of each class.

    Returns:
      Coarse name → names of its classes, both in their given order.
    """
    return {
        coarse: tuple(
            name for name, parent in zip(names, fine_to_coarse, strict=True) if parent == index
        )
        for index, coarse in enumerate(coarse_names)
    }


def check_coarse(
    fine: NDArray[np.integer],
    coarse: NDArray[np.integer],
    fine_to_coarse: NDArray[np.integer],
    where: str,
) -> None:
    """Make sure that stored coarse labels are those of the fine labels' groups.

    Args:
      fine:           (N,) classes.
      coarse:         (N,) coarse labels.
      fine_to_coarse: (K,) coarse label of each class.
      where:          their origin, for the message.
    """
    if len(fine) != len(coarse):
        raise PotluckError(f"{where}: there are {len(fine)} fine but {len(coarse)} coarse labels.")
    if fine.min() < 0 or fine.max() >= len(fine_to_coarse):
        raise PotluckError(
            f"{where}: fine labels must lie in 0 to {len(fine_to_coarse) - 1}, "
            f"but {fine.min()} to {fine.max()} occur."
        )
    differs = np.flatnonzero(fine_to_coarse[fine] != coarse)
    if len(differs):
        row = differs[0]
        raise PotluckError(
            f"{where}: sample {row} (counting from 0) has class {fine[row]}, whose coarse label "
            f"is {fine_to_coarse[fine[row]]}, but {coarse[row]} is stored."
        )
