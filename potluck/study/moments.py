"""Mean and deviation of everybody's inputs, from sums that the sites send."""

from collections.abc import Iterable

import torch
from torch import Tensor

from potluck.messages import Tensors


def input_sums(inputs: Tensor) -> Tensors:
    """A site's sums over each channel of its images, or column of its table.

    Args:
      inputs: (N, ...) the site's samples.

    Returns:
      {count: (), total: (C,), square: (C,)} in float64.
    """
    values = inputs.double()
    if inputs.dtype == torch.uint8:
        values = values / 255
    columns = values.transpose(0, 1).flatten(1)
    count = torch.tensor(float(columns.shape[1]), dtype=torch.float64)
    return {"count": count, "total": columns.sum(1), "square": (columns**2).sum(1)}


def moments(sums: Iterable[Tensors]) -> tuple[Tensor, Tensor]:
    """(C,) mean and (C,) deviation of each channel or column, over all sites.

    Args:
      sums: what each site sent (`input_sums`), in a fixed order.
    """
    count, total, square = torch.zeros(()), torch.zeros(()), torch.zeros(())
    for part in sums:
        count = count + part["count"]
        total = total + part["total"]
        square = square + part["square"]
    mean = total / count
    deviation = (square / count - mean**2).clamp_min(0).sqrt()
    # A column that never varies says nothing; leave it as it is.
    return mean.float(), torch.where(deviation > 0, deviation, 1.0).float()
