"""Turn images by a small angle."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.data.augment.affine import rotation, sample, source_points
from potluck.data.augment.augmentation import as_unit


@dataclass(frozen=True)
class Rotate:
    """A rotation about the centre, interpolated bilinearly; the uncovered corners are black.

    Attributes:
      degrees: the largest angle; angles are uniform on [−degrees, degrees].
    """

    degrees: float = 20.0

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw "angle", (*count) counter-clockwise degrees; see `Augmentation.draw`."""
        unit = torch.rand(count, generator=generator, device=generator.device)
        return {"angle": (2 * unit - 1) * self.degrees}

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Turn each image by its own angle; see `Augmentation.apply`."""
        height, width = images.shape[-2:]
        x, y = source_points(rotation(draws["angle"], height, width), height, width)
        unit = as_unit(images)
        # Coordinates need float32; interpolation weights may sum to a little more than 1 in it.
        return sample(unit.to(x.dtype), x, y).clamp(max=1).to(unit.dtype)
