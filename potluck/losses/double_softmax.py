"""The loss that FedUL's public code minimises, for comparison with its numbers."""

import torch
from torch import Tensor


def double_softmax_nll(logits: Tensor, symbols: Tensor, log_a: Tensor) -> Tensor:
    """Cross-entropy that takes the probabilities of the symbols for scores.

    The public code hands q, which sums to 1, to a cross-entropy that applies softmax again:
    log Σ_m exp(q_m) − q_z. For M symbols the loss is at least log(M − 1 + e) − 1, however certain
    the model, and it is not proper: its minimiser is not the posterior. `view_nll` is −log q_z.

    Args:
      logits:  (B, K) scores over the target classes.
      symbols: (B,) observed symbols.
      log_a:   (M, K) log codebook.

    Returns:
      (B,) losses.
    """
    joint = torch.softmax(logits, 1) @ log_a.exp().T
    q = joint / joint.sum(1, keepdim=True)
    return torch.nn.functional.cross_entropy(q, symbols, reduction="none")
