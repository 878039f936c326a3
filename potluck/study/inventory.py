"""What each site brought to a run: `sites.json` and `sites.safetensors` in its folder.

Written before the first round, for `potluck report`, which sees the run folder and no data: how
many samples, which kind of labels, how often each, what they say about the classes, and which
meaning was declared for them. Of a private site that is not simulated, nothing about its labels
is written.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from potluck.federation import Federation, Site
from potluck.study.files import read_sealed, read_tensors, write_pair

STEM = "sites"

# Kinds whose symbols have a meaning that is worth a picture: (Z, K) numbers.
_MATRICES = ("coarse", "noisy", "bags")
_MOST_SYMBOLS = 1000


@dataclass(frozen=True)
class SiteFacts:
    """What one site brought, as far as numbers and names go.

    Args:
      name:        the site's.
      kind:        of its labels.
      private:     whether its classes are a secret from the other sites.
      server:      whether this is the server's own data.
      samples:     how many it has.
      symbols:     names of its labels; None where they are secret, or too many.
      information: how much of the class a label tells on average, from 0 (nothing) to 1 (all);
                   None where it is secret.
    """

    name: str
    kind: str
    private: bool
    server: bool
    samples: int
    symbols: list[str] | None
    information: float | None


@dataclass(frozen=True, eq=False)
class Brought:
    """What one site brought.

    Args:
      facts:    numbers and names.
      counts:   (Z,) samples with each label; None without `facts.symbols`.
      classes:  (K,) samples of each class as its labels tell it: a label that allows several
                classes counts for each of them by its share. None where it is secret.
      truth:    (K,) samples of each class; None where nobody knows them.
      declared: (Z, K) P(label | class) of coarse and noisy labels, or the class proportions of
                bags; None for other kinds.
    """

    facts: SiteFacts
    counts: Tensor | None = None
    classes: Tensor | None = None
    truth: Tensor | None = None
    declared: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Inventory:
    """What everybody brought.

    Args:
      classes:    names of the K target classes.
      sites:      the sites in the federation's order, then the server's own data.
      verdict:    which classes can be told apart at all.
      test:       how many test samples there are.
      validation: how many samples sites keep aside for validation.
    """

    classes: tuple[str, ...]
    sites: tuple[Brought, ...]
    verdict: str
    test: int
    validation: int


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


def write_inventory(folder: Path, inventory: Inventory) -> None:
    """Write an inventory into a run folder."""
    facts = {
        "classes": list(inventory.classes),
        "verdict": inventory.verdict,
        "test": inventory.test,
        "validation": inventory.validation,
        "sites": [asdict(site.facts) for site in inventory.sites],
    }
    tensors = {
        f"{index}.{name}": tensor
        for index, site in enumerate(inventory.sites)
        for name, tensor in _tensors(site)
    }
    write_pair(folder / STEM, tensors, facts)


def read_inventory(folder: Path) -> Inventory | None:
    """The inventory of a run folder; None when the run was made by a potluck that wrote none."""
    path = (folder / STEM).with_suffix(".json")
    if not path.exists():
        return None
    facts = read_sealed(path)
    tensors = read_tensors(folder / STEM, facts, "cpu")
    return Inventory(
        classes=tuple(facts["classes"]),
        sites=tuple(_read(index, site, tensors) for index, site in enumerate(facts["sites"])),
        verdict=facts["verdict"],
        test=facts["test"],
        validation=facts["validation"],
    )


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
    truth = site.truth
    matrix = view.proportions if view.kind == "bags" else view.codebook
    return Brought(
        facts,
        counts=counts if named else None,
        classes=(counts.double() @ view.proportions).float(),
        truth=None if truth is None else torch.bincount(truth.cpu(), minlength=len(view.space)),
        declared=matrix.float() if view.kind in _MATRICES and named else None,
    )


def secret_labels(site: Site) -> bool:
    """Whether nothing about a site's labels may be written: its classes are really private.

    In a simulation, where the true classes are known, privacy is part of the play.
    """
    return site.view.private and site.truth is None


def _information(proportions: Tensor, counts: Tensor) -> float:
    """1 − H(class | label) / log K, averaged over the samples."""
    entropy = torch.special.entr(proportions).sum(1)
    mean = float((counts * entropy).sum() / counts.sum())
    return round(1 - mean / math.log(max(proportions.shape[1], 2)), 6) + 0.0


def _tensors(site: Brought) -> Iterator[tuple[str, Tensor]]:
    for name in ("counts", "classes", "truth", "declared"):
        if (tensor := getattr(site, name)) is not None:
            yield name, tensor


def _read(index: int, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Brought:
    named = {
        name: tensors.get(f"{index}.{name}") for name in ("counts", "classes", "truth", "declared")
    }
    return Brought(SiteFacts(**facts), **named)
