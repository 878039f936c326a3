"""Shift images by a few pixels: pad, then cut the original size out somewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.data.augment.augmentation import as_unit
from potluck.errors import PotluckError, one_of

Padding = Literal["reflect", "zero"]


@dataclass(frozen=True)
class Crop:
    """A random crop, of the image's own size, from the padded image.

    The padded image is never made: each pixel reads the source pixel it would have found there.

    Attributes:
      padding: pixels added at each side.
      mode:    what they hold: "reflect" (the image mirrored at its edge pixels) or "zero".
    """

    padding: int = 4
    mode: Padding = "reflect"

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw "top" and "left", (*count) offsets in 0 … 2·padding; see `Augmentation.draw`."""
        if self.mode not in get_args(Padding):
            raise PotluckError(one_of("padding mode", self.mode, get_args(Padding)))
        _, height, width = image
        if self.mode == "reflect" and self.padding >= min(height, width):
            raise PotluckError(
                f"Crop: images of {height} × {width} pixels cannot be reflected by"
                f" {self.padding} pixels; the padding must be smaller than the shorter side."
                f' Use padding={min(height, width) - 1} or less, or mode="zero".'
            )

        def offset() -> Tensor:
            return torch.randint(
                2 * self.padding + 1, count, generator=generator, device=generator.device
            )

        return {"top": offset(), "left": offset()}

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Crop each image at its own offset; see `Augmentation.apply`."""
        channels, height, width = images.shape[1:]
        rows = self._source(draws["top"], height)[:, :, None]
        columns = self._source(draws["left"], width)[:, None, :]
        pixels = _reflect(rows, height) * width + _reflect(columns, width)
        index = pixels.flatten(1)[:, None, :].expand(-1, channels, -1)
        cropped = as_unit(images.flatten(2).gather(2, index).view_as(images))
        if self.mode == "reflect":
            return cropped
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        return cropped * inside[:, None]

    def _source(self, offset: Tensor, size: int) -> Tensor:
        """Where (B, size) output positions lie in the unpadded image, possibly outside it."""
        return offset[:, None] - self.padding + torch.arange(size, device=offset.device)


def _reflect(index: Tensor, size: int) -> Tensor:
    """Fold indices from −size + 1 … 2·size − 2 into 0 … size − 1, mirroring at both ends."""
    last = size - 1
    return last - (last - index.abs()).abs()
