"""The likelihood of what a site observed: one loss for every kind of label."""

import torch
from torch import Tensor


def view_nll(logits: Tensor, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Negative log-likelihood of each sample's observed symbol.

    With class posteriors η = softmax(logits), a sample whose symbol has class likelihoods a,
    at a site with normaliser b, was observed with probability (a·η)/(b·η). Exact, coarse and
    noisy labels, bags with known priors, candidate sets and class subsets differ only in
    a and b. Zeros in a and b are −inf here and have zero gradient, as long as each row has
    one entry above 0 (views guarantee that).

    Args:
      logits: (..., K) scores over the target classes.
      log_a:  (..., K) log-likelihood of the observed symbol under each class.
      log_b:  (K,) or (..., K) log-normaliser of the site.

    Returns:
      (...) negative log-likelihoods; 0 for a sample that observed nothing (a = b).
    """
    return torch.logsumexp(logits + log_b, -1) - torch.logsumexp(logits + log_a, -1)


def log_posterior(logits: Tensor, log_a: Tensor) -> Tensor:
    """What a site believes about the true class once it has seen its own label.

    q ∝ a ⊙ softmax(logits). The normaliser b does not enter: it is the same for all symbols.

    Args:
      logits: (..., K) scores over the target classes.
      log_a:  (..., K) log-likelihood of the observed symbol under each class.

    Returns:
      (..., K) log q; −inf where a is 0.
    """
    return torch.log_softmax(logits + log_a, -1)
