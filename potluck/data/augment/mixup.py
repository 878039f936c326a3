"""Mixup: convex combinations of two batches.

Reference: Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
"""

import torch
from torch import Tensor

from potluck.errors import PotluckError


def mixup(x: Tensor, x_partner: Tensor, lam: Tensor) -> Tensor:
    """Blend two batches.

    Args:
      x:         (B, ...) floating point.
      x_partner: (B, ...) floating point.
      lam:       () share of `x`, one for the whole batch.

    Returns:
      (B, ...) lam · x + (1 − lam) · x_partner.
    """
    return lam * x + (1 - lam) * x_partner


def draw_mixup(generator: torch.Generator, count: tuple[int, ...], alpha: float) -> Tensor:
    """Draw mixing shares λ ~ Beta(alpha, alpha).

    λ = G₁ / (G₁ + G₂) with two independent Gamma(alpha) variables. Each is drawn exactly as
    Gamma(alpha + 1) · U^(1/alpha), in logarithms, since a Gamma of small alpha underflows.

    Args:
      generator: the random stream; the draws are made on its device.
      count:     shape of the result, e.g. (steps,): one share per batch.
      alpha:     both parameters of the Beta distribution, above 0.

    Returns:
      (*count) float32 shares in [0, 1].
    """
    if not alpha > 0:
        raise PotluckError(f"mixup needs alpha above 0, not {alpha}.")
    shape = torch.full((2, *count), alpha + 1, dtype=torch.float64, device=generator.device)
    # torch.distributions takes no generator; this is the sampler beneath it.
    gamma = torch._standard_gamma(shape, generator=generator)
    unit = torch.rand(shape.shape, dtype=shape.dtype, generator=generator, device=generator.device)
    log_gamma = gamma.log() + torch.log1p(-unit) / alpha
    return torch.sigmoid(log_gamma[0] - log_gamma[1]).to(torch.float32)
