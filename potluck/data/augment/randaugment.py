"""RandAugment: a few random operations on each image, computed for the whole batch at once.

References: Cubuk et al., RandAugment, NeurIPS 2020; the pool and its strengths are those of
SemiFL (Diao et al., NeurIPS 2022). Single operations give what Pillow gives, to a level of 255.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import torch
from torch import Tensor

from potluck.data.augment.affine import rotation, sample, source_points
from potluck.data.augment.augmentation import as_unit
from potluck.data.augment.levels import LEVELS, blend, equalised, grey, smooth, stretched
from potluck.errors import PotluckError, one_of


class Operation(IntEnum):
    """What can happen to an image; the comment is the unit of its strength."""

    IDENTITY = 0
    AUTOCONTRAST = 1
    BRIGHTNESS = 2  # factor
    COLOR = 3  # factor
    CONTRAST = 4  # factor
    CUTOUT = 5  # side in pixels, less one
    EQUALIZE = 6
    INVERT = 7
    POSTERIZE = 8  # bits kept, rounded down
    ROTATE = 9  # degrees counter-clockwise
    SHARPNESS = 10  # factor
    SHEAR_X = 11  # pixels to the left per pixel down
    SHEAR_Y = 12  # pixels up per pixel to the right
    SOLARIZE = 13  # lowest level inverted
    TRANSLATE_X = 14  # pixels to the left
    TRANSLATE_Y = 15  # pixels up


Ranges = dict[Operation, tuple[float, float]]

_EITHER_WAY = (
    Operation.ROTATE,
    Operation.SHEAR_X,
    Operation.SHEAR_Y,
    Operation.TRANSLATE_X,
    Operation.TRANSLATE_Y,
)


def _official(height: int, width: int) -> Ranges:
    """SemiFL's strengths, the same for every image and whatever its size.

    At 32 pixels a translation blanks the image, a cutout greys most of it and solarize inverts
    all of it.
    """
    strength = {
        Operation.BRIGHTNESS: 1.9,
        Operation.COLOR: 1.9,
        Operation.CONTRAST: 1.9,
        Operation.CUTOUT: 40.0,
        Operation.POSTERIZE: 4.0,
        Operation.ROTATE: 30.0,
        Operation.SHARPNESS: 1.9,
        Operation.SHEAR_X: 0.3,
        Operation.SHEAR_Y: 0.3,
        Operation.SOLARIZE: 0.0,
        Operation.TRANSLATE_X: 100.0,
        Operation.TRANSLATE_Y: 100.0,
    }
    return {operation: (value, value) for operation, value in strength.items()}


def _sane(height: int, width: int) -> Ranges:
    """Strengths between none and a strong one that leaves the image recognisable at any size."""
    return {
        Operation.BRIGHTNESS: (0.1, 1.9),
        Operation.COLOR: (0.1, 1.9),
        Operation.CONTRAST: (0.1, 1.9),
        Operation.CUTOUT: (0.0, min(height, width) / 2 - 1),
        Operation.POSTERIZE: (4.0, 8.0),
        Operation.ROTATE: (0.0, 30.0),
        Operation.SHARPNESS: (0.1, 1.9),
        Operation.SHEAR_X: (0.0, 0.3),
        Operation.SHEAR_Y: (0.0, 0.3),
        Operation.SOLARIZE: (0.0, 256.0),
        Operation.TRANSLATE_X: (0.0, 0.3 * width),
        Operation.TRANSLATE_Y: (0.0, 0.3 * height),
    }


_POOLS: dict[str, Callable[[int, int], Ranges]] = {"sane": _sane, "official": _official}


@dataclass(frozen=True)
class RandAugment:
    """`n` operations, one after another, chosen for each image on its own.

    Images are rounded to 256 levels, before and after every operation, as in Pillow. Run
    eagerly, `apply` is some hundreds of small kernels: compile it where speed matters.

    Attributes:
      pool:        "sane", or "official" for the strengths of SemiFL's code, which destroy many
                   small images (about 13 % of 32-pixel views are blank).
      n:           operations chosen per image.
      probability: that a chosen operation is carried out. SemiFL draws it from U(0.2, 0.8) anew
                   each time, which is the same as one half.
    """

    pool: Literal["sane", "official"] = "sane"
    n: int = 2
    probability: float = 0.5

    def draw(
        self, generator: torch.Generator, count: tuple[int, ...], image: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """Draw what is done to each image; see `Augmentation.draw`.

        Returns:
          "operation" (*count, n) int64 `Operation`s; "strength" (*count, n) in their units;
          "centre" (*count, n, 2) of cutouts, as shares (x, y) of the sides.
        """
        if self.pool not in _POOLS:
            raise PotluckError(one_of("RandAugment pool", self.pool, _POOLS))
        channels, height, width = image
        if channels not in (1, 3) or min(height, width) < 2:
            raise PotluckError(
                f"RandAugment: images of {channels} × {height} × {width} (channels, height,"
                " width); it needs 1 channel (grey) or 3 (red, green, blue) and sides of at"
                " least 2 pixels. Choose another augmentation for these images."
            )
        shape, device = (*count, self.n), generator.device

        def unit(*extra: int) -> Tensor:
            return torch.rand(*shape, *extra, generator=generator, device=device)

        chosen = torch.randint(1, len(Operation), shape, generator=generator, device=device)
        ranges = _POOLS[self.pool](height, width)
        low, high = torch.tensor(
            [ranges.get(operation, (0.0, 0.0)) for operation in Operation], device=device
        )[chosen].unbind(-1)
        strength = low + (high - low) * unit()
        either_way = torch.tensor([o in _EITHER_WAY for o in Operation], device=device)[chosen]
        strength = torch.where(either_way & (unit() < 0.5), -strength, strength)
        operation = torch.where(unit() < self.probability, chosen, int(Operation.IDENTITY))
        return {"operation": operation, "strength": strength, "centre": unit(2)}

    def apply(self, images: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """Carry the drawn operations out; see `Augmentation.apply`."""
        unit = as_unit(images)
        levels = (unit.to(torch.float32) * 255).round()
        for slot in range(self.n):
            chosen = _Chosen.of(draws["operation"][:, slot], draws["strength"][:, slot])
            levels = _look_up(levels, chosen)
            levels = _enhance(levels, chosen)
            levels = _cut_out(levels, chosen, draws["centre"][:, slot])
            levels = _move(levels, chosen)
        return (levels / 255).to(unit.dtype)


@dataclass(frozen=True)
class _Chosen:
    """What one slot does to each image.

    All operations are computed for all images, with a strength that makes no difference where
    an operation was not chosen: no branch and no grouping depends on the draws.

    Attributes:
      chosen:   (B, 16, 1, 1) whether each `Operation` was chosen.
      others:   (B, 16, 1, 1) whether it was not.
      strength: (B, 1, 1) in the unit of the chosen operation.
    """

    chosen: Tensor
    others: Tensor
    strength: Tensor

    @classmethod
    def of(cls, operation: Tensor, strength: Tensor) -> "_Chosen":
        """Spread (B,) operations and strengths out."""
        chosen = operation[:, None] == torch.arange(len(Operation), device=operation.device)
        chosen = chosen[..., None, None]
        return cls(chosen, ~chosen, strength[:, None, None])

    def mask(self, operation: Operation) -> Tensor:
        """(B, 1, 1) whether this operation was chosen."""
        return self.chosen[:, int(operation)]

    def strength_of(self, operation: Operation, neutral: float) -> Tensor:
        """(B, 1, 1) strength of this operation; `neutral` where another was chosen."""
        return self.strength.masked_fill(self.others[:, int(operation)], neutral)


def _look_up(levels: Tensor, chosen: _Chosen) -> Tensor:
    """Operations that map levels to levels: one table per image and channel, one look-up."""
    pixels = levels.flatten(2).to(torch.int64)
    identity = torch.arange(LEVELS, device=levels.device, dtype=levels.dtype)
    mean = (grey(levels).flatten(2).mean(-1, keepdim=True) + 0.5).floor()
    degenerate = mean.masked_fill(~chosen.mask(Operation.CONTRAST), 0)
    factor = chosen.strength_of(Operation.BRIGHTNESS, 1) * chosen.strength_of(Operation.CONTRAST, 1)
    table = blend(degenerate, identity, factor).to(torch.int64)
    dropped = 8 - chosen.strength_of(Operation.POSTERIZE, 8).to(torch.int64)
    table = table >> dropped << dropped
    threshold = chosen.strength_of(Operation.SOLARIZE, LEVELS)
    threshold = threshold.masked_fill(chosen.mask(Operation.INVERT), 0)
    table = torch.where(table < threshold, table, 255 - table)
    table = torch.where(chosen.mask(Operation.AUTOCONTRAST), stretched(pixels), table)
    table = torch.where(chosen.mask(Operation.EQUALIZE), equalised(pixels), table)
    return table.gather(-1, pixels).to(levels.dtype).view_as(levels)


def _enhance(levels: Tensor, chosen: _Chosen) -> Tensor:
    """Colour and sharpness: blends with the grey and with the smoothed image."""
    color = chosen.mask(Operation.COLOR)[..., None]
    factor = chosen.strength_of(Operation.COLOR, 1) * chosen.strength_of(Operation.SHARPNESS, 1)
    degenerate = torch.where(color, grey(levels), smooth(levels))
    return blend(degenerate, levels, factor[..., None])


def _cut_out(levels: Tensor, chosen: _Chosen, centre: Tensor) -> Tensor:
    """Grey squares, at (B, 2) centres (x, y) in shares of the sides.

    A square that would begin outside the image begins at its edge and keeps its size, and both
    its first and its last pixel are painted: SemiFL's arithmetic, and Pillow's.
    """
    height, width = levels.shape[-2:]
    columns = torch.arange(width, device=levels.device)
    rows = torch.arange(height, device=levels.device)[:, None]

    def covered(centre: Tensor, position: Tensor) -> Tensor:
        size = position.numel()
        first = (centre[:, None, None] * size - chosen.strength / 2).clamp(min=0).floor()
        return (position >= first) & (position <= first + chosen.strength)

    square = covered(centre[:, 0], columns) & covered(centre[:, 1], rows)
    return levels.masked_fill((square & chosen.mask(Operation.CUTOUT))[:, None], 127)


def _move(levels: Tensor, chosen: _Chosen) -> Tensor:
    """Rotation, shears and translations: one affine map per image, one look-up."""
    height, width = levels.shape[-2:]

    def by(operation: Operation) -> Tensor:
        return chosen.strength_of(operation, 0).flatten()

    turn = by(Operation.ROTATE)
    none = torch.zeros_like(turn)
    shear_x, shift_x = by(Operation.SHEAR_X), by(Operation.TRANSLATE_X)
    shear_y, shift_y = by(Operation.SHEAR_Y), by(Operation.TRANSLATE_Y)
    rest = torch.stack((none, shear_x, shift_x, shear_y, none, shift_y), -1)
    # Only one of these differs from "stay where you are", so adding the maps combines them.
    matrix = rotation(turn, height, width) + rest.view(-1, 2, 3)
    x, y = source_points(matrix, height, width)
    # SemiFL rotates to the nearest pixel and interpolates only the other maps.
    nearest = chosen.mask(Operation.ROTATE)
    x = torch.where(nearest, x.floor() + 0.5, x)
    y = torch.where(nearest, y.floor() + 0.5, y)
    return sample(levels, x, y).round()
