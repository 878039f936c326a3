"""Flip, crop, rotate and compose on images worked by hand."""

import numpy as np
import pytest
import torch

from potluck.data.augment import AUGMENTATIONS, Compose, Crop, Flip, Identity, Rotate, weak
from potluck.errors import PotluckError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def offsets(top: int, left: int, count: int = 1) -> dict[str, torch.Tensor]:
    return {"top": torch.full((count,), top), "left": torch.full((count,), left)}


def counted(height: int, width: int) -> torch.Tensor:
    """(1, 2, H, W) uint8 of different numbers."""
    return torch.arange(2 * height * width, dtype=torch.uint8).view(1, 2, height, width)


def test_identity_only_scales_bytes_to_the_unit_range():
    images = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)
    assert Identity().draw(generator(), (4,), (1, 1, 3)) == {}
    torch.testing.assert_close(Identity().apply(images, {}), torch.tensor([[[[0, 0.2, 1]]]]))


def test_flip_mirrors_the_chosen_images_left_to_right():
    images = torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8).expand(2, 1, 2, 2)
    flipped = Flip().apply(images, {"flip": torch.tensor([True, False])})
    expected = torch.tensor([[[0.2, 0.0], [1.0, 0.4]], [[0.0, 0.2], [0.4, 1.0]]])
    torch.testing.assert_close(flipped[:, 0], expected)


def test_flip_takes_half_of_the_images():
    flip = Flip().draw(generator(), (100, 40), (3, 8, 8))["flip"]
    assert flip.shape == (100, 40)
    assert abs(flip.float().mean() - 0.5) < 0.03


def test_crop_at_the_padding_is_the_image_itself():
    images = counted(5, 7)
    cropped = Crop(padding=4).apply(images, offsets(4, 4))
    torch.testing.assert_close(cropped, images / 255)


@pytest.mark.parametrize(("top", "left"), [(0, 0), (8, 8), (0, 8), (8, 0), (3, 6)])
@pytest.mark.parametrize(("mode", "of_numpy"), [("reflect", "reflect"), ("zero", "constant")])
def test_crop_equals_cutting_from_a_padded_copy(mode, of_numpy, top, left):
    images = counted(5, 7)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode=of_numpy)
    expected = torch.from_numpy(padded[:, :, top : top + 5, left : left + 7])
    cropped = Crop(padding=4, mode=mode).apply(images, offsets(top, left))
    torch.testing.assert_close(cropped, expected / 255)


def test_crop_gives_each_image_its_own_offset():
    images = counted(6, 6).expand(2, -1, -1, -1)
    draws = {"top": torch.tensor([0, 2]), "left": torch.tensor([1, 2])}
    cropped = Crop(padding=2).apply(images, draws)
    for i in range(2):
        own = {name: tensor[i : i + 1] for name, tensor in draws.items()}
        torch.testing.assert_close(cropped[i : i + 1], Crop(padding=2).apply(images[:1], own))


def test_crop_draws_every_offset_equally_often():
    draws = Crop(padding=1).draw(generator(), (9000,), (3, 8, 8))
    pairs = torch.bincount(draws["top"] * 3 + draws["left"], minlength=9)
    assert pairs.shape == (9,)
    assert (pairs - 1000).abs().max() < 120


def test_crop_refuses_images_that_are_too_small_to_reflect():
    with pytest.raises(PotluckError, match=r"3 × 8 pixels.*by 4 pixels.*padding=2 or less"):
        Crop(padding=4).draw(generator(), (2,), (1, 3, 8))
    with pytest.raises(PotluckError, match="4 × 4 pixels"):
        weak().draw(generator(), (2,), (1, 4, 4))
    assert Crop(padding=4).draw(generator(), (2,), (1, 5, 5))["top"].shape == (2,)
    assert Crop(padding=4, mode="zero").draw(generator(), (2,), (1, 3, 3))["top"].shape == (2,)


def test_crop_refuses_an_unknown_padding_mode():
    with pytest.raises(PotluckError, match='unknown padding mode "reflekt"; did you mean'):
        Crop(mode="reflekt").draw(generator(), (2,), (1, 8, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize("turns", [-1, 0, 1, 2])
def test_rotating_by_right_angles_moves_whole_pixels(turns):
    images = counted(4, 4)
    turned = Rotate().apply(images, {"angle": torch.tensor([90.0 * turns])})
    torch.testing.assert_close(turned, torch.rot90(images, turns, (2, 3)) / 255)


def test_rotating_by_45_degrees_keeps_the_centre_and_blackens_the_corners():
    turned = Rotate().apply(torch.ones(1, 1, 9, 9), {"angle": torch.tensor([45.0])})[0, 0]
    assert turned[0, 0] == turned[0, -1] == turned[-1, 0] == turned[-1, -1] == 0
    torch.testing.assert_close(turned[2:7, 2:7], torch.ones(5, 5))


def test_angles_are_uniform_up_to_the_largest():
    angle = Rotate(degrees=20).draw(generator(), (50, 100), (1, 8, 8))["angle"]
    assert angle.shape == (50, 100)
    assert angle.abs().max() <= 20
    assert abs(angle.mean()) < 0.6
    assert abs(angle.std() - 40 / 12**0.5) < 0.3


def test_compose_applies_its_parts_in_order_and_names_draws_by_position():
    both = Compose((Flip(), Crop(padding=1)))
    draws = both.draw(generator(), (3, 2), (2, 4, 4))
    assert {name: tuple(t.shape) for name, t in draws.items()} == {
        "0.flip": (3, 2),
        "1.top": (3, 2),
        "1.left": (3, 2),
    }
    images = counted(4, 4)
    composed = both.apply(images, {"0.flip": torch.tensor([True])} | _at_one(offsets(0, 2)))
    by_hand = Crop(padding=1).apply(images.flip(-1), offsets(0, 2))
    torch.testing.assert_close(composed, by_hand)


def _at_one(draws: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"1.{name}": tensor for name, tensor in draws.items()}


def test_compose_tells_more_than_ten_parts_apart():
    flips = Compose(tuple(Flip(probability=i == 10) for i in range(12)))
    draws = flips.draw(generator(), (1,), (2, 4, 4))
    torch.testing.assert_close(flips.apply(counted(4, 4), draws), counted(4, 4).flip(-1) / 255)


def test_weak_view_is_a_flip_and_a_reflected_crop_of_four():
    assert weak() == Compose((Flip(), Crop(padding=4, mode="reflect")))


def test_augmentations_by_name_are_the_documented_ones():
    assert list(AUGMENTATIONS) == [
        "none",
        "flip",
        "crop",
        "weak",
        "rotate",
        "randaugment",
        "randaugment-official",
    ]


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_images_of_other_integer_types_are_refused(name):
    augmentation = AUGMENTATIONS[name]()
    draws = augmentation.draw(generator(), (1,), (3, 8, 8))
    with pytest.raises(PotluckError, match=r"images have type torch\.int64; .*uint8"):
        augmentation.apply(torch.zeros(1, 3, 8, 8, dtype=torch.int64), draws)
