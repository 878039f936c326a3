"""Contrastive losses: two views of a sample should look alike, and alike to others."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, normalize


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Normalised, temperature-scaled cross-entropy: find each view's partner among all others.

    Args:
      first:       (B, D) representations of one view of each sample.
      second:      (B, D) of the other view.
      temperature: divides the cosines.

    Returns:
      () mean over the 2B views; 0 for a single sample, which has nothing to be told from.

    References:
      Chen et al., A simple framework for contrastive learning, ICML 2020.
    """
    count = len(first)
    both = normalize(torch.cat([first, second]), dim=1)
    own = torch.eye(2 * count, dtype=torch.bool, device=first.device)
    cosines = (both @ both.T / temperature).masked_fill(own, float("-inf"))
    partner = torch.arange(2 * count, device=first.device).roll(count)
    return cross_entropy(cosines, partner)


def relations(points: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """How a sample relates to others: log-probabilities over anchors by cosine.

    Args:
      points:      (B, D) representations.
      anchors:     (R, D) representations of other samples.
      temperature: divides the cosines.

    Returns:
      (B, R) log-probabilities.
    """
    cosines = normalize(points, dim=1) @ normalize(anchors, dim=1).T
    return log_softmax(cosines / temperature, -1)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Jensen–Shannon divergence of each pair of distributions.

    Args:
      log_p: (B, R) log-probabilities, all finite.
      log_q: (B, R) log-probabilities, all finite.

    Returns:
      (B,) divergences, from 0 to log 2.
    """
    log_middle = torch.logaddexp(log_p, log_q) - math.log(2)
    p_part = (log_p.exp() * (log_p - log_middle)).sum(-1)
    q_part = (log_q.exp() * (log_q - log_middle)).sum(-1)
    return (p_part + q_part) / 2
