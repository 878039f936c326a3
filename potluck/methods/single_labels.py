"""One label per sample, for methods that know nothing of candidates: what they would be given."""

import torch
from torch import Tensor

from potluck.losses.beliefs import initial_beliefs
from potluck.methods.method import SiteData

UNPICKED = -1


def unpicked(site: SiteData) -> Tensor:
    """(N,) int64: no label picked yet."""
    return torch.full((len(site),), UNPICKED, device=site.inputs.device)


def picked(site: SiteData, labels: Tensor, generator: torch.Generator) -> Tensor:
    """The labels a site has kept, or at first a random one of those that each symbol allows.

    Of a candidate set S it is each class with probability 1/|S|; an exact label is itself.

    Args:
      site:      the site's samples.
      labels:    (N,) what it has kept.
      generator: source of the choice.

    Returns:
      (N,) int64 classes.
    """
    if labels[0] != UNPICKED:
        return labels
    shares = initial_beliefs(site.log_a)[site.symbols].cpu()
    return torch.multinomial(shares, 1, generator=generator).squeeze(1).to(labels.device)


def label_metrics(site: SiteData, labels: Tensor, pool: Tensor) -> dict[str, float]:
    """How many of the labels of some samples are right, for the history."""
    if site.truth is None or len(pool) == 0:
        return {}
    return {"pseudo_label_accuracy": float((labels == site.truth)[pool].float().mean())}
