"""What an augmentation is: random numbers drawn ahead, and a pure function that uses them."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from potluck.errors import PotluckError


class Augmentation(Protocol):
    """Randomness is data: `draw` makes it in bulk, `apply` is pure and draws nothing.

    Training steps are stacked over sites, compiled and captured in CUDA graphs, none of which
    go with random generators. So the draws for all steps of a round are made beforehand,
    moved to the device once, and sliced step by step.
    """

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw the random numbers for many images.

        Args:
          generator: the random stream; the draws are made on its device.
          count:     how the images are arranged, e.g. (steps, batch).
          image:     (C, H, W) of one image.

        Returns:
          Named tensors, each (*count, ...).
        """
        ...

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Augment a batch: pure, without host synchronisation or data-dependent branches.

        Args:
          images: (B, C, H, W) uint8, or floating point in [0, 1].
          draws:  the tensors of `draw`, sliced to (B, ...), on the device of the images.

        Returns:
          (B, C, H, W) floating point in [0, 1].
        """
        ...


def as_unit(images: Tensor) -> Tensor:
    """Images with values in [0, 1]: uint8 is divided by 255, floating point is returned as is.

    Args:
      images: (...) uint8 or floating point.

    Returns:
      (...) floating point; float32 for uint8 images.
    """
    if images.dtype == torch.uint8:
        return images.to(torch.float32) / 255
    if images.is_floating_point():
        return images
    raise PotluckError(
        f"images have type {images.dtype}; augmentations take uint8 (0 to 255) or floating point"
        " in [0, 1]. Convert them first."
    )
