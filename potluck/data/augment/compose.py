"""No augmentation, and one augmentation after another."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.data.augment.augmentation import Augmentation, as_unit


@dataclass(frozen=True)
class Identity:
    """Leaves images as they are, but for their scale: values in [0, 1]."""

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw nothing; see `Augmentation.draw`."""
        return {}

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Return (B, C, H, W) images in [0, 1]; see `Augmentation.apply`."""
        return as_unit(images)


@dataclass(frozen=True)
class Compose:
    """Several augmentations, first to last.

    Each one's draws carry its position in their name: "0.flip", "1.top", "1.left".

    Attributes:
      parts: the augmentations in the order they are applied.
    """

    parts: tuple[Augmentation, ...]

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw for every part, in order; see `Augmentation.draw`."""
        return {
            f"{position}.{name}": tensor
            for position, part in enumerate(self.parts)
            for name, tensor in part.draw(generator, count, image).items()
        }

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Apply every part, in order; see `Augmentation.apply`."""
        images = as_unit(images)
        for position, part in enumerate(self.parts):
            prefix = f"{position}."
            own = {k.removeprefix(prefix): v for k, v in draws.items() if k.startswith(prefix)}
            images = part.apply(images, own)
        return images
