"""Each RandAugment operation on its own against what Pillow makes of the same image."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from potluck.data.augment import Operation, RandAugment, Rotate

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 24, 40)]


def pictures(shape: tuple[int, int, int], count: int = 6) -> Tensor:
    """(count, C, H, W) uint8: gradients with noise, of narrow to full range of levels."""
    channels, height, width = shape
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width]
    waves = [
        np.sin(x / random.uniform(3, 9) + random.uniform(0, 6)) + np.cos(y / random.uniform(3, 9))
        for _ in range(count * channels)
    ]
    images = np.stack(waves).reshape(count, channels, height, width)
    images = images + random.normal(0, 0.2, images.shape)
    low, high = images.min((1, 2, 3), keepdims=True), images.max((1, 2, 3), keepdims=True)
    span = np.linspace(60, 255, count).reshape(-1, 1, 1, 1)
    start = random.uniform(0, 1, span.shape) * (255 - span)
    return torch.from_numpy((start + span * (images - low) / (high - low)).astype(np.uint8))


def with_pillow(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """(B, C, H, W) levels after `change` of every image."""
    grey = images.shape[1] == 1
    changed = []
    for pixels in images.permute(0, 2, 3, 1).numpy():
        picture = Image.fromarray(pixels[..., 0] if grey else pixels)
        result = np.asarray(change(picture))
        changed.append(result[None] if grey else result.transpose(2, 0, 1))
    return np.stack(changed).astype(int)


def with_potluck(
    images: Tensor, operation: Operation, strength: float = 0.0, centre: tuple = (0.5, 0.5)
) -> np.ndarray:
    """(B, C, H, W) levels after one operation on every image."""
    count = len(images)
    draws = {
        "operation": torch.full((count, 1), int(operation)),
        "strength": torch.full((count, 1), strength),
        "centre": torch.tensor(centre).expand(count, 1, 2),
    }
    levels = RandAugment(n=1).apply(images, draws) * 255
    torch.testing.assert_close(levels, levels.round(), atol=1e-4, rtol=0)
    return levels.round().numpy().astype(int)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("operation", "strength", "change"),
    [
        (Operation.IDENTITY, 3.0, lambda p: p),
        (Operation.EQUALIZE, 0.0, ImageOps.equalize),
        (Operation.INVERT, 0.0, ImageOps.invert),
        (Operation.POSTERIZE, 4.0, lambda p: ImageOps.posterize(p, 4)),
        (Operation.POSTERIZE, 1.7, lambda p: ImageOps.posterize(p, 1)),
        (Operation.SOLARIZE, 0.0, lambda p: ImageOps.solarize(p, 0)),
        (Operation.SOLARIZE, 100.0, lambda p: ImageOps.solarize(p, 100)),
    ],
)
def test_integer_operations_equal_pillow_exactly(shape, operation, strength, change):
    images = pictures(shape)
    ours = with_potluck(images, operation, strength)
    np.testing.assert_array_equal(ours, with_pillow(images, change))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [0.1, 0.6, 1.0, 1.9])
@pytest.mark.parametrize(
    ("operation", "enhancer"),
    [
        (Operation.BRIGHTNESS, ImageEnhance.Brightness),
        (Operation.COLOR, ImageEnhance.Color),
        (Operation.CONTRAST, ImageEnhance.Contrast),
        (Operation.SHARPNESS, ImageEnhance.Sharpness),
    ],
)
def test_enhancements_equal_pillow_within_a_level(shape, operation, enhancer, factor):
    images = pictures(shape)
    ours = with_potluck(images, operation, factor)
    theirs = with_pillow(images, lambda picture: enhancer(picture).enhance(factor))
    assert np.abs(ours - theirs).max() <= 1
    assert (ours == theirs).mean() > 0.99


@pytest.mark.parametrize("shape", SHAPES)
def test_autocontrast_equals_pillow_within_a_level(shape):
    images = pictures(shape)
    ours = with_potluck(images, Operation.AUTOCONTRAST)
    theirs = with_pillow(images, ImageOps.autocontrast)
    assert np.abs(ours - theirs).max() <= 1
    assert (ours == theirs).mean() > 0.99
    assert ours.min() == 0
    assert ours.max() == 255


@pytest.mark.parametrize("operation", [Operation.AUTOCONTRAST, Operation.EQUALIZE])
def test_images_of_one_colour_have_no_contrast_to_stretch(operation):
    images = torch.tensor([0, 90, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 3, 16, 16)
    np.testing.assert_array_equal(with_potluck(images, operation), images.numpy())


@pytest.mark.parametrize("spread", [1, 2, 200])
def test_equalize_with_few_levels_equals_pillow(spread):
    generator = torch.Generator().manual_seed(spread)
    images = torch.randint(50, 51 + spread, (8, 3, 32, 32), generator=generator)
    images = images.to(torch.uint8)
    images[0] = 255
    images[1, :, 3:] = 255  # fewer than 255 pixels below the highest level: left alone
    ours = with_potluck(images, Operation.EQUALIZE)
    np.testing.assert_array_equal(ours, with_pillow(images, ImageOps.equalize))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [0, 9, 40])
@pytest.mark.parametrize("centre", [(0.5, 0.5), (0.01, 0.4), (0.97, 0.99)])
def test_cutout_paints_the_rectangle_that_pillow_paints(shape, side, centre):
    _, height, width = shape

    def cut(picture: Image.Image) -> Image.Image:
        left = int(max(0, centre[0] * width - side / 2))
        top = int(max(0, centre[1] * height - side / 2))
        box = (left, top, min(width, left + side), min(height, top + side))
        picture = picture.copy()
        ImageDraw.Draw(picture).rectangle(box, 127 if picture.mode == "L" else (127, 127, 127))
        return picture

    images = pictures(shape)
    ours = with_potluck(images, Operation.CUTOUT, float(side), centre)
    np.testing.assert_array_equal(ours, with_pillow(images, cut))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("operation", "strength", "matrix"),
    [
        (Operation.SHEAR_X, 0.3, lambda v: (1, v, 0, 0, 1, 0)),
        (Operation.SHEAR_Y, 0.3, lambda v: (1, 0, 0, v, 1, 0)),
        (Operation.TRANSLATE_X, 7.0, lambda v: (1, 0, v, 0, 1, 0)),
        (Operation.TRANSLATE_X, 3.3, lambda v: (1, 0, v, 0, 1, 0)),
        (Operation.TRANSLATE_Y, 5.75, lambda v: (1, 0, 0, 0, 1, v)),
        (Operation.TRANSLATE_Y, 100.0, lambda v: (1, 0, 0, 0, 1, v)),
    ],
)
def test_shears_and_translations_equal_pillow_bilinear(shape, operation, strength, matrix, sign):
    images = pictures(shape)
    ours = with_potluck(images, operation, sign * strength)
    theirs = with_pillow(
        images,
        lambda p: p.transform(
            p.size, Image.Transform.AFFINE, matrix(sign * strength), Image.Resampling.BILINEAR
        ),
    )
    # Pillow rounds interpolated values down, we to the nearest level.
    assert np.abs(ours - theirs).max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degrees", [-30.0, 30.0, 11.0])
def test_rotation_in_randaugment_equals_pillow_nearest(shape, degrees):
    images = pictures(shape)
    ours = with_potluck(images, Operation.ROTATE, degrees)
    theirs = with_pillow(images, lambda picture: picture.rotate(degrees))
    # A point on the border of two pixels may fall to either.
    assert (ours == theirs).mean() > 0.995


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degrees", [-20.0, 0.0, 13.0, 45.0])
def test_rotate_equals_pillow_bilinear(shape, degrees):
    images = pictures(shape)
    angle = torch.full((len(images),), degrees)
    ours = Rotate().apply(images, {"angle": angle}).numpy() * 255
    theirs = with_pillow(images, lambda p: p.rotate(degrees, Image.Resampling.BILINEAR))
    difference = np.abs(ours - theirs)
    assert np.quantile(difference, 0.995) <= 1.01
