"""Affine maps of images, with Pillow's conventions.

Coordinates are in pixels, x to the right and y down, and pixel i covers i … i + 1, so that its
centre is at i + ½. A matrix says where each *output* point is read from in the *input*.
"""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """Make the maps that turn images counter-clockwise about their centre.

    Args:
      degrees: (B,) angles.
      height:  of the images.
      width:   of the images.

    Returns:
      (B, 2, 3) matrices, from output to input coordinates.
    """
    angle = torch.deg2rad(degrees)
    cos, sin = torch.cos(angle), torch.sin(angle)
    x, y = width / 2, height / 2
    entries = cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y
    return torch.stack(entries, -1).view(-1, 2, 3)


def source_points(matrix: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Find where the centre of each output pixel is read from.

    Args:
      matrix: (B, 2, 3) maps from output to input coordinates.
      height: of the images.
      width:  of the images.

    Returns:
      (B, H, W) input coordinates x, and as many y.
    """
    column = torch.arange(width, device=matrix.device) + 0.5
    row = torch.arange(height, device=matrix.device)[:, None] + 0.5

    # Elementwise and not by matrix product: coordinates must not be rounded to TF32 or bfloat16.
    def line(coefficients: Tensor) -> Tensor:
        across, down, shift = coefficients[:, :, None, None].unbind(1)
        return across * column + (down * row + shift)

    return line(matrix[:, 0]), line(matrix[:, 1])


def sample(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Read images at points between the pixels, bilinearly; 0 outside the image.

    Args:
      images: (B, C, H, W) floating point.
      x:      (B, H, W) input coordinates to the right, of the type of the images.
      y:      (B, H, W) input coordinates down, likewise.

    Returns:
      (B, C, H, W) of the same type.
    """
    height, width = images.shape[-2:]
    grid = torch.stack((x * (2 / width) - 1, y * (2 / height) - 1), -1)
    read = grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # As Pillow: points in the outer half of an edge pixel take its value, points beyond are 0.
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return read * inside[:, None]
