"""What methods need that train on the class of each sample: views `exact` and `subset`."""

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.methods.method import SiteData


def check_named(method: str, federation: Federation) -> None:
    """Raise a clear error where labels say less than the class.

    Args:
      method:     how to call the method in messages.
      federation: whose sites are checked.
    """
    for site in federation.sites:
        if site.view.kind not in ("exact", "subset"):
            raise PotluckError(
                f'site "{site.name}" has a view of kind {site.view.kind}, but {method} needs the '
                "class of every sample; use views exact or subset, or the method likelihood."
            )


def classes_of(site: SiteData) -> Tensor:
    """(N,) the class of each sample."""
    return site.log_a.argmax(1)[site.symbols]


def class_counts(site: SiteData) -> Tensor:
    """(K,) float, how many samples of each class the site has."""
    classes = classes_of(site)
    counts = torch.zeros(site.log_a.shape[1], device=classes.device)
    return counts.index_add(0, classes, torch.ones_like(classes, dtype=counts.dtype))
