"""What a site believes about the class of each sample, and how a model's scores change it."""

import torch
from torch import Tensor


def initial_beliefs(log_a: Tensor) -> Tensor:
    """Before any model was seen: each class as likely as the label says; uniform on candidates.

    Args:
      log_a: (..., K) log-likelihood of the observed symbol under each class.

    Returns:
      (..., K) probabilities a / Σ a.
    """
    return torch.softmax(log_a, -1)


def chosen(logits: Tensor, log_a: Tensor) -> Tensor:
    """The class that the scores favour among those the label allows, as one-hot rows.

    Args:
      logits: (..., K) scores over the target classes.
      log_a:  (..., K) log-likelihood of the observed symbol; −inf rules a class out.

    Returns:
      (..., K) one-hot.
    """
    best = (logits + log_a).argmax(-1, keepdim=True)
    return (torch.arange(logits.shape[-1], device=logits.device) == best).to(logits.dtype)


def moving_average(
    beliefs: Tensor, logits: Tensor, log_a: Tensor, momentum: float | Tensor
) -> Tensor:
    """Move beliefs towards the class that the scores favour on the candidates.

    q ← μ q + (1 − μ) onehot(argmax_{k ∈ S} f_k(x)); FedPLL-LAAR's eq. 5 and PiCO's rule.

    Args:
      beliefs:  (..., K) q.
      logits:   (..., K) scores over the target classes.
      log_a:    (..., K) log-likelihood of the observed symbol; −inf off the candidates.
      momentum: μ, in [0, 1]; 1 changes nothing.

    Returns:
      (..., K) new beliefs, without gradient.
    """
    return momentum * beliefs + (1 - momentum) * chosen(logits.detach(), log_a)


def expected_accuracy(beliefs: Tensor, truth: Tensor) -> Tensor:
    """How often the most believed class is the true one; ties count in part.

    Args:
      beliefs: (N, K) probabilities.
      truth:   (N,) true classes.

    Returns:
      () mean over the samples.
    """
    top = beliefs >= beliefs.amax(-1, keepdim=True)
    hit = top.gather(-1, truth.unsqueeze(-1)).squeeze(-1)
    return (hit / top.sum(-1)).mean()
