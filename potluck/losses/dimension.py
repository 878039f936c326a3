"""Local intrinsic dimension: how many directions samples spread in, seen from their neighbours."""

import torch
from torch import Tensor


def local_intrinsic_dimension(points: Tensor, neighbours: int = 20, chunk: int = 1024) -> Tensor:
    """Maximum-likelihood estimate from the distances r_1 ≤ … ≤ r_k to the nearest neighbours.

        dimension_i = − [ (1/k) Σ_j log(r_j / r_k) ]⁻¹

    Args:
      points:     (N, D), at least two.
      neighbours: k; N − 1 where there are fewer.
      chunk:      points at a time, so that memory does not grow with N².

    Returns:
      (N,) estimates; points that coincide with all their neighbours have 0.

    References:
      Amsaleg et al., Estimating local intrinsic dimensionality, KDD 2015.
    """
    count = min(neighbours, len(points) - 1)
    dimensions = []
    for part in points.split(chunk):
        # The nearest point is the point itself.
        near = torch.cdist(part, points).topk(count + 1, largest=False).values[:, 1:]
        tiny = torch.finfo(near.dtype).tiny
        spread = -(near.clamp(min=tiny) / near[:, -1:].clamp(min=tiny)).log().mean(1)
        dimensions.append(torch.where(spread > 0, 1 / spread.clamp(min=tiny), 0.0))
    return torch.cat(dimensions)
