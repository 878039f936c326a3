"""Random numbers of a whole round, drawn at once and cut into steps."""

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.data.augment import Augmentation
from potluck.messages import Tensors


def augmentation_draws(
    augmentation: Augmentation,
    inputs: Tensor,
    batches: Sequence[Tensor],
    generator: torch.Generator,
) -> list[Tensors]:
    """The draws of an augmentation for each step.

    They are drawn for all steps in one go on the CPU, so that every device sees the same
    numbers, and moved to the samples' device once.

    Args:
      augmentation: what is applied to the images.
      inputs:       (N, C, H, W) the site's samples.
      batches:      the samples of each step.
      generator:    the stream of these draws.
    """
    widest = max(len(batch) for batch in batches)
    image = inputs.shape[1:]
    drawn = augmentation.draw(generator, (len(batches), widest), (image[0], image[1], image[2]))
    on_device = {name: value.to(inputs.device) for name, value in drawn.items()}
    return [
        {name: value[step, : len(batch)] for name, value in on_device.items()}
        for step, batch in enumerate(batches)
    ]
