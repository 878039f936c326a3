"""Learning from label proportions: the mean prediction over a set should match its proportions."""

import math

import torch
from torch import Tensor


def proportion_loss(logits: Tensor, proportions: Tensor) -> Tensor:
    """Cross-entropy between a set's known class proportions and the mean prediction over it.

    −Σ_k p_k log((1/n) Σ_i softmax(logits_i)_k), the empirical proportion risk of Dulac-Arnold
    et al. 2019. Its least value, the entropy of p, says nothing about which sample is which.

    Args:
      logits:      (n, K) scores of all samples of one set.
      proportions: (K,) class proportions of the set.

    Returns:
      () the loss.
    """
    log_mean = torch.logsumexp(torch.log_softmax(logits, 1), 0) - math.log(len(logits))
    return -(proportions * log_mean).sum()
