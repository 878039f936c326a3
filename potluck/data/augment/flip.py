"""Mirror images left to right."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.data.augment.augmentation import as_unit


@dataclass(frozen=True)
class Flip:
    """A horizontal flip of every other image.

    Attributes:
      probability: of a flip.
    """

    probability: float = 0.5

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw "flip", (*count) booleans; see `Augmentation.draw`."""
        chance = torch.rand(count, generator=generator, device=generator.device)
        return {"flip": chance < self.probability}

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Flip the chosen images; see `Augmentation.apply`."""
        images = as_unit(images)
        return torch.where(draws["flip"][:, None, None, None], images.flip(-1), images)
