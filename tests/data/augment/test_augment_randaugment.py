"""What RandAugment draws, and what its two pools do to small images."""

import pytest
import torch

from potluck.data.augment import Operation, RandAugment
from potluck.errors import PotluckError

MANY = 30_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(pool: str, operation: Operation, side: int = 32) -> torch.Tensor:
    """Strengths drawn for one operation."""
    augmentation = RandAugment(pool=pool)  # type: ignore[arg-type]
    draws = augmentation.draw(generator(), (MANY,), (3, side, side))
    return draws["strength"][draws["operation"] == int(operation)]


@pytest.mark.parametrize("pool", ["sane", "official"])
def test_each_of_fifteen_operations_is_carried_out_in_a_thirtieth_of_the_slots(pool):
    draws = RandAugment(pool=pool).draw(generator(), (MANY,), (3, 32, 32))
    assert draws["operation"].shape == draws["strength"].shape == (MANY, 2)
    assert draws["centre"].shape == (MANY, 2, 2)
    share = torch.bincount(draws["operation"].flatten()) / (2 * MANY)
    assert share.shape == (16,)
    assert abs(share[Operation.IDENTITY] - 0.5) < 0.01
    assert (share[1:] - 1 / 30).abs().max() < 0.004


def test_official_strengths_are_those_of_semifl():
    assert drawn("official", Operation.BRIGHTNESS).unique().tolist() == pytest.approx([1.9])
    assert drawn("official", Operation.TRANSLATE_X).unique().tolist() == [-100, 100]
    assert drawn("official", Operation.ROTATE).unique().tolist() == [-30, 30]
    assert drawn("official", Operation.SHEAR_Y).unique().tolist() == pytest.approx([-0.3, 0.3])
    assert drawn("official", Operation.CUTOUT).unique().tolist() == [40]
    assert drawn("official", Operation.POSTERIZE).unique().tolist() == [4]
    assert drawn("official", Operation.SOLARIZE).unique().tolist() == [0]


@pytest.mark.parametrize("side", [28, 32, 96])
def test_sane_strengths_stay_within_the_image(side):
    shift = drawn("sane", Operation.TRANSLATE_Y, side)
    assert 0.29 * side < shift.abs().max() <= 0.3 * side
    assert abs((shift < 0).float().mean() - 0.5) < 0.08
    cutout = drawn("sane", Operation.CUTOUT, side)
    assert cutout.min() >= 0
    assert cutout.max() + 1 <= side / 2
    threshold = drawn("sane", Operation.SOLARIZE, side)
    assert threshold.min() >= 0
    assert threshold.max() <= 256
    assert threshold.std() > 60


def blank_share(pool: str) -> float:
    """Share of 32-pixel views that are all black or all white."""
    count = 4000
    augmentation = RandAugment(pool=pool)  # type: ignore[arg-type]
    images = torch.randint(256, (count, 1, 32, 32), generator=generator(1), dtype=torch.uint8)
    views = augmentation.apply(images, augmentation.draw(generator(2), (count,), (1, 32, 32)))
    low, high = views.amin((1, 2, 3)), views.amax((1, 2, 3))
    return (((high == 0) | (low == 1)).sum() / count).item()


def test_official_pool_blanks_an_eighth_of_small_views():
    # Two of fifteen operations translate by 100 pixels, each carried out half the time:
    # 1 − (14/15)² = 12.9 %, less 0.2 % where a cutout follows and paints on the black.
    assert blank_share("official") == pytest.approx(0.127, abs=0.016)


def test_sane_pool_blanks_no_view():
    assert blank_share("sane") == 0


def test_slots_are_carried_out_one_after_another():
    images = torch.full((2, 1, 8, 8), 100, dtype=torch.uint8)
    draws = {
        "operation": torch.tensor(
            [[Operation.INVERT, Operation.BRIGHTNESS], [Operation.BRIGHTNESS, Operation.INVERT]]
        ),
        "strength": torch.full((2, 2), 0.5),
        "centre": torch.zeros(2, 2, 2),
    }
    views = RandAugment(n=2).apply(images, draws) * 255
    assert views[0].unique().round().tolist() == [77]  # ⌊(255 − 100) / 2⌋
    assert views[1].unique().round().tolist() == [205]  # 255 − 100 / 2


def test_number_of_operations_and_probability_are_choices():
    draws = RandAugment(n=3, probability=1.0).draw(generator(), (50,), (3, 8, 8))
    assert draws["operation"].shape == (50, 3)
    assert (draws["operation"] != int(Operation.IDENTITY)).all()


def test_unknown_pool_is_refused_with_a_suggestion():
    with pytest.raises(PotluckError, match='unknown RandAugment pool "offical"; did you mean'):
        RandAugment(pool="offical").draw(generator(), (1,), (3, 8, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize("image", [(2, 8, 8), (4, 8, 8), (3, 1, 8)])
def test_images_that_are_neither_grey_nor_colour_or_too_small_are_refused(image):
    with pytest.raises(PotluckError, match=r"RandAugment: images of .* Choose another"):
        RandAugment().draw(generator(), (1,), image)
