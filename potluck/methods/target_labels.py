"""Who has labels of the target classes."""

from collections.abc import Callable

import torch

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.methods.method import SiteData


def certain(site: SiteData) -> bool:
    """Whether every symbol of a site means one class: its labels need no interpretation."""
    return bool(((site.log_a > -torch.inf).sum(1) == 1).all())


def separates(site: SiteData) -> bool:
    """Whether a site's labels alone can tell all K classes apart: its codebook has rank K.

    True for exact labels and for noisy ones of known noise; not for coarser label spaces.
    """
    codebook = site.log_a.double().exp()
    return int(torch.linalg.matrix_rank(codebook)) == codebook.shape[1]


def exactly_labelled(site: SiteData) -> bool:
    """Whether a site's labels are the target classes themselves, all of them."""
    return certain(site) and separates(site)


def check_target_labels(
    method: str, federation: Federation, suits: Callable[[SiteData], bool] = separates
) -> None:
    """Raise a clear error unless the server or a site has labels of the target classes.

    Args:
      method:     its name, for the message.
      federation: who takes part.
      suits:      which sites' labels will do; the server's need only separate the classes.
    """
    server = federation.server
    if server is not None and separates(SiteData.of(server)):
        return
    if not any(suits(SiteData.of(site)) for site in federation.sites):
        lacks = (
            "the server has no data of its own"
            if server is None
            else f"the server's labels ({server.view.kind}) do not"
        )
        raise PotluckError(
            f"method {method} needs somebody whose labels tell all target classes apart, but "
            f"{lacks}, and no site's labels do. Give the server some samples with exact labels "
            "(simulation.server, or federation.server), or add a site that has them."
        )


def check_server_labels(method: str, federation: Federation) -> None:
    """Raise a clear error unless the server itself has labels of the target classes.

    Args:
      method:     its name, for the message.
      federation: who takes part.
    """
    if federation.server is None or not separates(SiteData.of(federation.server)):
        has = "it has none" if federation.server is None else "its labels do not"
        raise PotluckError(
            f"method {method} trains on the server's own samples, whose labels must tell all "
            f"target classes apart, but {has}. Give the server some samples with exact or noisy "
            "labels (simulation.server, or federation.server)."
        )
