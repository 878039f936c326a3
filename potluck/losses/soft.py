"""Cross-entropy against soft targets."""

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ_k target_k log softmax(logits)_k for each sample.

    Args:
      logits: (..., K) scores.
      target: (..., K) weights of the classes; they need not sum to 1 (backward correction of
              label noise has negative ones).

    Returns:
      (...) cross-entropies.
    """
    return -(target * torch.log_softmax(logits, -1)).sum(-1)
