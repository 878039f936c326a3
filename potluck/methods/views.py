"""Several augmented views of each training sample: what semi-supervised methods compare."""

from collections.abc import Mapping, Sequence
from typing import get_args

import torch
from torch import Tensor

from potluck.data.augment import AUGMENTATIONS
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.augmented import Augment
from potluck.methods.draws import augmentation_draws


def check_views(views: Mapping[str, str], federation: Federation) -> None:
    """Raise a clear error for an unknown augmentation, or one that needs images.

    Args:
      views:      the method's option → its augmentation.
      federation: for the shape of its samples.
    """
    shape = tuple(federation.sites[0].inputs.shape[1:])
    for option, augment in views.items():
        if augment not in get_args(Augment):
            raise PotluckError(one_of(f"method.{option}", augment, get_args(Augment)))
        if augment != "none" and len(shape) != 3:
            raise PotluckError(
                f'method.{option} is "{augment}", but the samples have shape {shape}, which are '
                f'not images (channels, height, width); set method.{option} = "none".'
            )


def view_draws(
    views: Mapping[str, str],
    inputs: Tensor,
    batches: Sequence[Tensor],
    generator: torch.Generator,
) -> list[Tensors]:
    """The random numbers of several views for each step, named "view.draw".

    Args:
      views:     name of a view → its augmentation.
      inputs:    (N, ...) the site's samples.
      batches:   the samples of each step.
      generator: the stream of these draws.
    """
    steps: list[Tensors] = [{} for _ in batches]
    for name, augment in views.items():
        if augment == "none":
            continue
        drawn = augmentation_draws(AUGMENTATIONS[augment](), inputs, batches, generator)
        for step, part in zip(steps, drawn, strict=True):
            step.update({f"{name}.{key}": value for key, value in part.items()})
    return steps


def seen(augment: str, inputs: Tensor, draws: Mapping[str, Tensor], view: str) -> Tensor:
    """One view of a batch.

    Args:
      augment: its augmentation.
      inputs:  (B, ...) samples.
      draws:   the step's share of `view_draws`.
      view:    its name there.

    Returns:
      (B, ...) floating point; images in [0, 1].
    """
    own = {
        key.removeprefix(f"{view}."): value
        for key, value in draws.items()
        if key.startswith(f"{view}.")
    }
    return AUGMENTATIONS[augment]().apply(inputs, own)
