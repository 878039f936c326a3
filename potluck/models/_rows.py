"""First values of a head that tell nothing but the names of its classes."""

from collections.abc import Sequence

import torch
from torch import nn

from potluck.streams import stream


def draw_rows(head: nn.Linear, names: Sequence[str], seed: int) -> None:
    """Draw each row of a head, and its bias, from the seed and the name of its class alone.

    The usual draw goes through all rows in order. Whoever knows the seed could repeat it and find
    out the places of the rows that he got among all rows, and, as biases come after all weights,
    how many rows there are: what a private site must not know. The distribution is the same.

    Args:
      head:  its parameters are changed in place.
      names: the class of each row.
      seed:  the study's seed.
    """
    bound = head.in_features**-0.5
    with torch.no_grad():
        for row, name in enumerate(names):
            drawn = torch.rand(head.in_features + 1, generator=stream(seed, "head", name))
            values = ((2 * drawn - 1) * bound).to(head.weight)
            head.weight[row] = values[:-1]
            if head.bias is not None:
                head.bias[row] = values[-1]
