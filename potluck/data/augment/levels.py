"""Tables and filters on 256 grey levels, with Pillow's arithmetic.

Images are float32 tensors whose values are whole numbers, 0 to 255. Sums of products of such
numbers stay below 2²⁴ here, so that float32 arithmetic is exact wherever Pillow's is integer.
"""

import torch
from torch import Tensor

LEVELS = 256


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Move away from a degenerate image (factor > 1) or towards it (factor < 1).

    Args:
      degenerate: levels, broadcastable to `images`.
      images:     levels.
      factor:     broadcastable to `images`; exactly `images` where it is 1.

    Returns:
      Levels, cut off at 0 and 255 and rounded down as Pillow does.
    """
    return (degenerate + factor * (images - degenerate)).clamp(0, 255).floor()


def grey(images: Tensor) -> Tensor:
    """Luminance by ITU-R 601-2, in Pillow's 16-bit fixed point.

    Args:
      images: (B, C, H, W) levels, with C = 1 or 3.

    Returns:
      (B, 1, H, W) levels.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, :, None].unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536).floor()


def smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH filter: 3 × 3 of ones with 5 in the middle; edge pixels stay as they are.

    Args:
      images: (B, C, H, W) levels, with H, W ≥ 2.

    Returns:
      (B, C, H, W) levels.
    """
    rows = images[..., :-2, :] + images[..., 1:-1, :] + images[..., 2:, :]
    nine = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = images[..., 1:-1, 1:-1]
    change = ((nine + 4 * inner) / 13 + 0.5).floor() - inner
    return images + torch.nn.functional.pad(change, (1, 1, 1, 1))


def stretched(pixels: Tensor) -> Tensor:
    """Make the table that spreads each channel over all levels (Pillow's autocontrast).

    Args:
      pixels: (B, C, N) int64 levels.

    Returns:
      (B, C, 256) int64 new level of each level; the identity for a channel of one level.
    """
    low, high = pixels.amin(-1, keepdim=True), pixels.amax(-1, keepdim=True)
    identity = torch.arange(LEVELS, device=pixels.device)
    table = ((identity - low) * 255 // (high - low).clamp(min=1)).clamp(0, 255)
    return torch.where(high > low, table, identity)


def equalised(pixels: Tensor) -> Tensor:
    """Make the table that gives each channel a flat histogram (Pillow's equalize).

    Args:
      pixels: (B, C, N) int64 levels.

    Returns:
      (B, C, 256) int64 new level of each level; the identity where there are too few pixels
      below the highest level to give every level one.
    """
    empty = torch.zeros(*pixels.shape[:2], LEVELS, dtype=torch.int64, device=pixels.device)
    histogram = empty.scatter_add(-1, pixels, pixels.new_ones(()).expand_as(pixels))
    below = histogram.cumsum(-1) - histogram
    step = below.gather(-1, pixels.amax(-1, keepdim=True)) // 255
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table, torch.arange(LEVELS, device=pixels.device))
