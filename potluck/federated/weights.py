"""How much each entry of a site's update counts, from a few numbers that the site sends."""

import torch
from torch import Tensor

from potluck.models.network import HEAD, Layout


def entry_weights(weights: Tensor, layout: Layout) -> Tensor:
    """Spread a site's weights over the entries of θ that it holds.

    Args:
      weights: (1 + C,) the weight of the encoder, then of the head row of each of the site's C
               classes, in its order.
      layout:  of the model with these C classes.

    Returns:
      (P_s,) the weight of each entry.
    """
    encoder, rows = weights[0], weights[1:]
    parts = []
    for name, shape, size in zip(layout.names, layout.shapes, layout.sizes, strict=True):
        spread = rows.repeat_interleave(size // shape[0]) if name in HEAD else encoder.expand(size)
        parts.append(spread)
    return torch.cat(parts)
