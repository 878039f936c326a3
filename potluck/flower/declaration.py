"""What a site says of itself before training, and how the coordinator then knows it.

A declaration has the shape of the samples, their number, and of the view what DESIGN's table of
who learns what allows:

- `exact`, `unlabeled`: the kind.
- `coarse`, `noisy`: the kind, and the declared P(label | class); not what the labels are called.
- `subset`: the classes. Those of a private site go to the coordinator only.
- `bags`, `candidates`: the kind, and whether they tell all classes apart without other sites.
  Bag priors and sizes, and which candidate sets occur, stay at the site. (Where not all classes
  occur in its bags, it says which do, as its update would show. Bags also have the target prior.)

From a declaration the coordinator makes a site without samples. Where the view is not told, it
stands for the best that it could be: labels that tell all classes apart.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from potluck import __version__
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.labels import (
    LabelSpace,
    LabelView,
    coarse,
    exact,
    identifiability,
    noisy,
    private_subset,
    subset,
    unlabeled,
)
from potluck.labels.view import uniform_prior

UNTOLD = ("bags", "candidates")
"""Kinds of view whose codebook stays at the site."""

_HALF = 0.5  # unlike probabilities, these rows do not sum to 1: no method takes them for such


@dataclass(frozen=True)
class Declaration:
    """What a site says of itself.

    Args:
      name:       how people call it.
      potluck:    the version it runs.
      samples:    how many it trains on.
      shape:      of one sample.
      whole:      whether samples are whole numbers (bytes of images), not fractions.
      columns:    names of the input columns, where the data is a table.
      kind:       of its view.
      private:    whether its classes are a secret from the other sites.
      classes:    the target classes as it knows them; of a private site its own ones.
      held:       the classes that occur there, in its own order; None for all.
      matrix:     declared P(label | class) of coarse and noisy labels.
      separates:  whether its labels tell all classes apart without other sites.
      prior:      of bags: class prior of the population that the model is for.
      everywhere: of a subset: whether its labels are compared with all target classes.
      validation: samples kept out of training.
    """

    name: str
    potluck: str
    samples: int
    shape: tuple[int, ...]
    whole: bool
    columns: tuple[str, ...] | None
    kind: str
    private: bool
    classes: tuple[str, ...]
    held: tuple[str, ...] | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    separates: bool = True
    prior: tuple[float, ...] | None = None
    everywhere: bool = False
    validation: int = 0

    @classmethod
    def of(
        cls, site: Site, columns: Sequence[str] | None = None, validation: int = 0
    ) -> "Declaration":
        """What a site says of itself.

        Args:
          site:       the site, with its data.
          columns:    names of its input columns, where the data is a table.
          validation: how many samples it keeps out of training.
        """
        # A private site's view is over its own classes only; so it knows no others to tell.
        view = site.view
        own = view.own()
        found = identifiability({site.name: own})
        return cls(
            name=site.name,
            potluck=__version__,
            samples=len(site),
            shape=tuple(site.inputs.shape[1:]),
            whole=not site.inputs.is_floating_point(),
            columns=None if columns is None else tuple(columns),
            kind=view.kind,
            private=view.private,
            classes=own.space.names,
            held=_held(view),
            matrix=_matrix(view),
            separates=found.complete,
            prior=tuple(view.prior.tolist()) if view.kind == "bags" else None,
            everywhere=view.kind == "subset" and view.holds_all,
            validation=validation,
        )

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "Declaration":
        """The inverse of `facts`; what came over the network may be anything."""
        known = {field.name for field in fields(cls)}
        if set(facts) != known:
            raise PotluckError("what the site declares is not what this version of potluck reads")
        values = {key: _tupled(value) for key, value in facts.items()}
        declared = cls(**values)
        if not (
            isinstance(declared.name, str)
            and isinstance(declared.kind, str)
            and isinstance(declared.classes, tuple)
            and type(declared.samples) is int
            and declared.samples > 0
            and isinstance(declared.shape, tuple)
            and all(type(size) is int and size > 0 for size in declared.shape)
            and math.prod(declared.shape) < 2**31
        ):
            raise PotluckError("what the site declares makes no sense")
        return declared

    def digest(self) -> str:
        """Tells declarations apart."""
        text = json.dumps(self.facts(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def brings(self) -> str:
        """A few words for people."""
        secret = ", private" if self.private else ""
        return f"{self.samples:,} samples, labels: {self.kind}{secret}"


def check_space(declared: Declaration, space: LabelSpace) -> None:
    """Refuse a site that means other target classes than the study."""
    where = f'site "{declared.name}"'
    if declared.potluck != __version__:
        raise PotluckError(
            f"{where} runs potluck {declared.potluck}, the coordinator {__version__}; install the "
            "same version."
        )
    if declared.private:
        if unknown := [name for name in declared.classes if name not in space]:
            raise PotluckError(
                f'{where} has the class "{unknown[0]}", which is none of the study\'s; agree on '
                "how to write it."
            )
    elif declared.classes != space.names:
        listed = ", ".join(declared.classes[:10])
        raise PotluckError(
            f"{where} trains for other target classes ({listed}) than the study "
            f"({', '.join(space.names[:10])}); write the same ones in the same order in its file."
        )


def known_site(declared: Declaration, space: LabelSpace) -> Site:
    """The site as the coordinator knows it: its view as far as it is told, and no samples.

    Args:
      declared: what it said.
      space:    the target classes.
    """
    check_space(declared, space)
    try:
        view = _known_view(declared, space)
    except PotluckError as error:
        raise PotluckError(f'site "{declared.name}": {error}') from None
    # Zeros that take up no memory: so the number, the shape and the type are known, and no more.
    blank = torch.zeros((), dtype=torch.uint8 if declared.whole else torch.float32)
    inputs = blank.expand(declared.samples, *declared.shape)
    symbols = torch.zeros((), dtype=torch.int64).expand(declared.samples)
    return Site(declared.name, inputs, view, symbols)


def verdict(declared: Sequence[Declaration], federation: Federation) -> str:
    """What can be said about which classes the federation tells apart.

    Untold views are first taken for the worst and then for the best that they could be.

    Args:
      declared:   what the sites said.
      federation: the sites as the coordinator knows them.
    """
    untold = [d.name for d in declared if d.kind in UNTOLD and not d.separates]
    best = federation.identifiability()
    if not untold:
        return best.verdict()
    nothing = unlabeled(federation.space)
    sites = [
        replace(site, view=nothing) if site.name in untold else site for site in federation.sites
    ]
    worst = replace(federation, sites=tuple(sites)).identifiability()
    if worst.complete:
        return worst.verdict()
    names = ", ".join(f'"{name}"' for name in untold)
    unsaid = f"What {names} know stays with them"
    if not best.complete:
        return f"{unsaid}, but even if it were all there is to know: {best.verdict()}"
    return (
        f"{unsaid}, so this cannot be settled from here. Without them: {worst.verdict()} With "
        "them, all classes may be separable: the sites can compare their tables among themselves "
        "(potluck check on a study that lists their site files)."
    )


def _held(view: LabelView) -> tuple[str, ...] | None:
    if view.private or (view.holds_all and view.kind != "subset"):
        return None
    if view.kind == "subset":
        return view.symbols.names
    return tuple(view.space.names[k] for k in view.classes.tolist())


def _matrix(view: LabelView) -> tuple[tuple[float, ...], ...] | None:
    if view.kind not in ("coarse", "noisy"):
        return None
    return tuple(tuple(row) for row in view.codebook.tolist())


def _known_view(declared: Declaration, space: LabelSpace) -> LabelView:
    match declared.kind:
        case "exact":
            return exact(space)
        case "unlabeled":
            return unlabeled(space)
        case "subset" if declared.private:
            return private_subset(space, declared.classes)
        case "subset":
            return subset(space, declared.held or (), "all" if declared.everywhere else "own")
        case "coarse":
            return replace(coarse(space, declared.matrix), codebook=_exactly(declared))
        case "noisy":
            return replace(noisy(space, declared.matrix), codebook=_exactly(declared))
        case "bags" | "candidates":
            return _untold_view(declared, space)
    raise PotluckError(f'unknown kind of view "{declared.kind}"')


def _exactly(declared: Declaration) -> Tensor:
    """The matrix as it was declared: the view's constructor scales its columns once more."""
    return torch.tensor(declared.matrix, dtype=torch.float64)


def _untold_view(declared: Declaration, space: LabelSpace) -> LabelView:
    """Labels that tell all classes apart that occur there, and are no probabilities."""
    names = space.names if declared.held is None else declared.held
    classes = torch.tensor([space.index(name) for name in names])
    codebook = torch.zeros(len(classes), len(space), dtype=torch.float64)
    codebook[torch.arange(len(classes)), classes] = _HALF
    prior = uniform_prior(space)
    if declared.prior is not None:
        prior = torch.tensor(declared.prior, dtype=torch.float64)
        if prior.shape != (len(space),):
            raise PotluckError("its target prior has not one share per target class")
    return LabelView(
        kind=declared.kind,
        space=space,
        symbols=LabelSpace.numbered(len(classes)),
        codebook=codebook,
        normaliser=codebook.sum(0) if declared.kind == "bags" else torch.ones_like(prior),
        prior=prior,
    )


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list | tuple) else value
