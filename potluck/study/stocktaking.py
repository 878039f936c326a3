"""Stocktaking: from tensors to what a run folder says of them.

What each site brought, before the first round (`inventory.py`), and what came of it, after the
last (`outcome.py`).
"""

import math

import torch
from torch import Tensor

from potluck.engines import ServerState
from potluck.engines.evaluation import examine
from potluck.federation import Federation, Site
from potluck.labels.identifiability import class_worth
from potluck.study.array_files import Array
from potluck.study.inventory import Brought, Inventory, SiteFacts
from potluck.study.outcome import Outcome, Tested
from potluck.training import Trained

# Kinds whose symbols have a meaning that is worth a picture: (Z, K) numbers.
_MATRICES = ("coarse", "noisy", "bags")
_MOST_SYMBOLS = 1000


def take_inventory(federation: Federation) -> Inventory:
    """Count what the sites of a federation bring."""
    sites = [_brought(site, server=False) for site in federation.sites]
    if federation.server is not None:
        sites.append(_brought(federation.server, server=True))
    return Inventory(
        classes=federation.space.names,
        sites=tuple(sites),
        verdict=federation.identifiability().verdict(),
        test=0 if federation.test is None else len(federation.test[1]),
        validation=sum(len(site) for site in federation.validation),
    )


def take_outcome(trained: Trained, federation: Federation) -> Outcome:
    """Examine a trained model.

    Args:
      trained:    the model and the server's final state.
      federation: who took part.
    """
    test = None
    if federation.test is not None:
        inputs, classes = federation.test
        found = examine(trained.probabilities(inputs), classes.cpu())
        test = Tested(found.confusion.numpy(), found.calibration.numpy())
    return Outcome(trained.state.round, test, _correspondences(trained.state, federation))


def secret_labels(site: Site) -> bool:
    """Whether nothing about a site's labels may be written: its classes are really private.

    In a simulation, where the true classes are known, privacy is part of the play.
    """
    return site.view.private and site.truth is None


def _brought(site: Site, server: bool) -> Brought:
    view, symbols = site.view, site.symbols.cpu()
    secret = secret_labels(site)
    counts = torch.bincount(symbols, minlength=len(view.symbols))
    named = not secret and len(view.symbols) <= _MOST_SYMBOLS and view.kind != "candidates"
    facts = SiteFacts(
        name=site.name,
        kind=view.kind,
        private=view.private,
        server=server,
        samples=len(site),
        symbols=list(view.symbols) if named else None,
        information=None if secret else _information(view.proportions, counts),
    )
    if secret:
        return Brought(facts)
    truth = None if site.truth is None else site.truth.cpu()
    matrix = view.proportions if view.kind == "bags" else view.codebook
    return Brought(
        facts,
        counts=counts.numpy() if named else None,
        classes=(counts.double() @ view.proportions).float().numpy(),
        truth=None if truth is None else torch.bincount(truth, minlength=len(view.space)).numpy(),
        declared=matrix.float().numpy() if view.kind in _MATRICES and named else None,
        worth=class_worth(view, counts).float().numpy(),
    )


def _information(proportions: Tensor, counts: Tensor) -> float:
    """1 − H(class | label) / log K, averaged over the samples."""
    entropy = torch.special.entr(proportions).sum(1)
    mean = float((counts * entropy).sum() / counts.sum())
    return round(1 - mean / math.log(max(proportions.shape[1], 2)), 6) + 0.0


def _correspondences(state: ServerState, federation: Federation) -> dict[str, Array]:
    """What sites that label in another space believe their labels to mean, if the method asks."""
    found = {}
    for site in federation.sites:
        kept = state.sites.get(site.name)
        matrix = None if kept is None else kept.method.get("correspondence")
        if matrix is not None and site.view.kind != "exact" and not secret_labels(site):
            found[site.name] = matrix.float().cpu().numpy()
    return found
