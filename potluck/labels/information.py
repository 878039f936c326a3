"""How much a site's labels tell, compared with exact ones.

A label moves what one believes about the class from η̃ ∝ b ⊙ η, before it was seen, to the
posterior q ∝ a ⊙ η. The Fisher information of its likelihood about the logit of class k is

    E[(q_k − η̃_k)²] = v(η̃_k) − E[v(q_k)],   v(p) = p (1 − p),

the variance of "is it k?" that the label is expected to remove (law of total variance). An exact
label removes all of v(η_k). So, over the samples of a site, the sum of v(η̃_ik) − v(q_ik) over
the sum of v(η_ik) is what its labels are worth: 1 for exact ones, 0 for none, and the share of a
thousand coarse or noisy labels that as many exact ones would give.

Labels that come about by chance also say when they have said all. Who knew that a sample is of
class k would still be surprised by its symbol, on average by its entropy given the class,

    H_k = − Σ_z p(z | k) log p(z | k),   p(z | k) = A[z, k] / b_k.

It is 0 where the class decides the symbol, as with exact and most coarse labels; candidates count
as such. A model that is less surprised by a site's symbols has learned their errors by heart.
"""

import torch
from torch import Tensor

_SMALLEST = 1e-8


def removed_variance(log_eta: Tensor, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """The variance of each class that labels removed, and that exact ones would have.

    Args:
      log_eta: (N, K) log class posteriors of the model.
      log_a:   (N, K) log-likelihood of each sample's symbol under each class.
      log_b:   (K,) log-normaliser of the site.

    Returns:
      (K,) and (K,), sums over the samples.
    """
    before = torch.softmax(log_eta + log_b, -1)
    after = torch.softmax(log_eta + log_a, -1)
    removed = _variance(before) - _variance(after)
    return removed.sum(0), _variance(log_eta.exp()).sum(0)


def worth(log_eta: Tensor, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """What a site's labels are worth, in exact labels per sample.

    Args:
      log_eta: (N, K) log class posteriors of the model.
      log_a:   (N, K) log-likelihood of each sample's symbol under each class.
      log_b:   (K,) log-normaliser of the site.

    Returns:
      () over all classes, and (K,) about each; from 0 to 1.
    """
    removed, all_of_it = removed_variance(log_eta, log_a, log_b)
    total = (removed.sum() + _SMALLEST) / (all_of_it.sum() + _SMALLEST)
    each = (removed + _SMALLEST) / (all_of_it + _SMALLEST)
    return total.clamp(0, 1), each.clamp(0, 1)


def tells(log_a: Tensor, log_b: Tensor) -> Tensor:
    """Which symbols say something about the class: a is no multiple of b.

    Args:
      log_a: (Z, K) log codebook of the site.
      log_b: (K,) its log-normaliser.

    Returns:
      (Z,) bool.
    """
    held = log_b > -torch.inf
    relative = torch.where(held, log_a - torch.where(held, log_b, 0.0), 0.0)
    spread = relative.where(held, -torch.inf).amax(1) - relative.where(held, torch.inf).amin(1)
    return spread > 1e-6


def symbol_entropy(log_a: Tensor, log_b: Tensor) -> Tensor:
    """How much a symbol surprises those who know the class.

    Args:
      log_a: (Z, K) log codebook of the site.
      log_b: (K,) its log-normaliser.

    Returns:
      (K,) entropies H_k in nats; 0 for classes that cannot occur at the site.
    """
    possible = log_a > -torch.inf
    log_p = torch.where(possible, log_a - log_b, 0.0)
    return -(log_p.exp() * log_p).sum(0)


def _variance(p: Tensor) -> Tensor:
    return p * (1 - p)
