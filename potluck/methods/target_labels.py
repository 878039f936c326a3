"""Who has labels of the target classes."""

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


def check_target_labels(method: str, federation: Federation) -> None:
    """Raise a clear error unless the server or a site has labels of the target classes.

    Args:
      method:     its name, for the message.
      federation: who takes part.
    """
    everyone = [*federation.sites, *([federation.server] if federation.server else [])]
    if not any(separates(SiteData.of(site)) for site in everyone):
        server = "the server has no data"
        if federation.server is not None:
            server = f"the server's labels ({federation.server.view.kind}) do not"
        raise PotluckError(
            f"method {method} learns the target classes from somebody whose labels tell all of "
            f"them apart, but {server} and no site's do. Give the server some samples with exact "
            "or noisy labels (simulation.server, or federation.server), or add such a site."
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
