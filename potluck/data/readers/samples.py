"""What one site has, as its files give it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs, and what the site knows about each.

    Attributes:
      inputs: (N, C, H, W) uint8 images, or (N, D) float32 features.
      labels: (N, …) labels as they are stored; None for a site without.
      files:  the name of each sample's own file; None where all lie in one.
    """

    inputs: Tensor
    labels: NDArray[np.generic] | None
    files: tuple[str, ...] | None = None
