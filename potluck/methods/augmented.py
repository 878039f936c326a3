"""What methods that vary their training images have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.data.augment import AUGMENTATIONS
from potluck.data.augment.augmentation import as_unit
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.draws import augmentation_draws
from potluck.methods.method import Method, Plan, SiteData, Step

Augment = Literal["none", "flip", "crop", "weak", "rotate", "randaugment", "randaugment-official"]


@dataclass(frozen=True)
class Augmented(Method):
    """A method that trains on augmented images.

    Args:
      augment: how training images are varied.
    """

    augment: Augment = "none"

    def check(self, federation: Federation) -> None:
        """Only images can be augmented."""
        if self.augment not in get_args(Augment):
            raise PotluckError(one_of("method.augment", self.augment, get_args(Augment)))
        shape = tuple(federation.sites[0].inputs.shape[1:])
        if self.augment != "none" and len(shape) != 3:
            raise PotluckError(
                f'method.augment is "{self.augment}", but the samples have shape {shape}, which '
                'are not images (channels, height, width); set it to "none".'
            )

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of the augmentation."""
        if self.augment == "none":
            return [{} for _ in batches]
        return augmentation_draws(AUGMENTATIONS[self.augment](), site.inputs, batches, generator)

    def inputs(self, step: Step) -> Tensor:
        """(B, ...) the batch's augmented samples; images in [0, 1]."""
        samples = step.site.inputs[step.batch.index]
        if self.augment == "none":
            return as_unit(samples)
        return AUGMENTATIONS[self.augment]().apply(samples, step.batch.draws)
