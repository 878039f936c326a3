"""Batched augmentation on the device, as pure functions of images and random numbers."""

from collections.abc import Callable

from potluck.data.augment.augmentation import Augmentation
from potluck.data.augment.compose import Compose, Identity
from potluck.data.augment.crop import Crop
from potluck.data.augment.flip import Flip
from potluck.data.augment.mixup import draw_mixup, mixup
from potluck.data.augment.randaugment import Operation, RandAugment
from potluck.data.augment.rotate import Rotate


def weak() -> Compose:
    """SemiFL's weak view: a horizontal flip, then a crop after reflect-padding by 4 pixels."""
    return Compose((Flip(), Crop(padding=4)))


AUGMENTATIONS: dict[str, Callable[[], Augmentation]] = {
    "none": Identity,
    "flip": Flip,
    "crop": Crop,
    "weak": weak,
    "rotate": Rotate,
    "randaugment": RandAugment,
    "randaugment-official": lambda: RandAugment(pool="official"),
}

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Compose",
    "Crop",
    "Flip",
    "Identity",
    "Operation",
    "RandAugment",
    "Rotate",
    "draw_mixup",
    "mixup",
    "weak",
]
