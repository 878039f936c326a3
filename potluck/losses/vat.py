"""Virtual adversarial training: predictions should not change under the worst small disturbance.

Miyato et al. 2018, Virtual Adversarial Training: A Regularization Method for Supervised and
Semi-Supervised Learning.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import kl_div

# Length of the probe whose divergence shows the worst direction. The public LLP-VAT code has
# 1e-6, where the change in probabilities drowns in float32 rounding.
XI = 1e-3


def adversarial_divergence(
    logits_of: Callable[[Tensor], Tensor], inputs: Tensor, noise: Tensor, epsilon: float
) -> Tensor:
    """KL(p(x) ‖ p(x + r)) for the disturbance r of length ε that one power iteration finds worst.

    Args:
      logits_of: (B, ...) inputs → (B, K) scores; called three times.
      inputs:    (B, ...) floating-point samples x.
      noise:     (B, ...) standard normal start of the power iteration.
      epsilon:   ε, the Euclidean length of each sample's disturbance.

    Returns:
      (B,) divergences. p(x) is a constant target: gradients flow through p(x + r) alone.
    """
    target = torch.log_softmax(logits_of(inputs), 1).detach()

    def divergence(shift: Tensor) -> Tensor:
        shifted = torch.log_softmax(logits_of(inputs + shift), 1)
        return kl_div(shifted, target, reduction="none", log_target=True).sum(1)

    slope = torch.func.grad(lambda shift: divergence(shift).sum())(XI * _unit(noise))
    return divergence(epsilon * _unit(slope.detach()))


def _unit(vectors: Tensor) -> Tensor:
    """Each sample's vector (B, ...), scaled to length 1; a zero vector stays zero."""
    lengths = vectors.flatten(1).norm(dim=1).clamp_min(torch.finfo(vectors.dtype).tiny)
    return vectors / lengths.view(-1, *(1 for _ in vectors.shape[1:]))
