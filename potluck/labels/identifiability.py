"""Which classes can a federation tell apart at all? Asked of the codebooks, before training.

Site s observes r_s = A_s η / (b_s·η). A direction dη of the class posterior (with 1·dη = 0)
that leaves every r_s unchanged is one that no amount of data can settle. It satisfies
(A_s − r_s b_sᵀ) dη = 0 for all s: linear algebra on the stacked codebooks. The rank does not
depend on η but for exceptional points, so a fixed generic η is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView

TOLERANCE = 1e-8


@dataclass(frozen=True)
class Contribution:
    """What one site can say about the classes.

    Args:
      kind:  the kind of its view.
      alone: of the K−1 independent directions, how many it settles by itself.
      only:  how many are settled by nobody else.
      groups: classes that the site by itself cannot tell apart (groups of two or more).
    """

    kind: str
    alone: int
    only: int
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Identifiability:
    """What a federation's views can and cannot separate.

    Args:
      space:   the K target classes.
      settled: how many of the K−1 independent directions the whole federation settles.
      groups:  groups of classes between which nothing in the federation decides.
      entangled: further classes whose shares are fixed only in combination (for example two
               sets of classes that no site sees together).
      sites:   each site's contribution.
    """

    space: LabelSpace
    settled: int
    groups: tuple[tuple[str, ...], ...]
    entangled: tuple[str, ...]
    sites: Mapping[str, Contribution]

    @property
    def complete(self) -> bool:
        """Whether every class can be separated from every other."""
        return self.settled == len(self.space) - 1

    def verdict(self) -> str:
        """One or more sentences for people."""
        needed = len(self.space) - 1
        if self.complete:
            return f"All {len(self.space)} classes can be separated from the labels the sites have."
        lines = [f"Only {self.settled} of {needed} independent class contrasts can be learned."]
        lines += [f"Nothing tells apart: {', '.join(group)}." for group in self.groups]
        if self.entangled:
            lines.append(
                f"Known only in combination: {', '.join(self.entangled)} "
                "(no site sees these groups of classes together)."
            )
        return " ".join(lines)


def identifiability(views: Mapping[str, LabelView]) -> Identifiability:
    """Check what the views of a federation can separate.

    Args:
      views: the view of each site, all over the same target classes.
    """
    if not views:
        raise PotluckError("a federation needs at least one site.")
    space = next(iter(views.values())).space
    for name, view in views.items():
        if view.space != space:
            raise PotluckError(
                f'site "{name}" has a view over other target classes than the first site.'
            )
    grams = {name: _gram(view) for name, view in views.items()}
    total = torch.stack(list(grams.values())).sum(0)
    settled = _rank(total)
    contributions = {
        name: Contribution(
            kind=views[name].kind,
            alone=_rank(gram),
            only=settled - _rank(total - gram),
            groups=_groups(space, _free(gram)),
        )
        for name, gram in grams.items()
    }
    free = _free(total)
    groups = _groups(space, free)
    grouped = {name for group in groups for name in group}
    moving = (free.abs().sum(1) > TOLERANCE**0.5).tolist()
    entangled = tuple(n for n, m in zip(space, moving, strict=True) if m and n not in grouped)
    return Identifiability(space, settled, groups, entangled, contributions)


def _gram(view: LabelView) -> Tensor:
    """(K, K) Gram matrix CᵀC of the constraints C = A − r bᵀ at a generic η, on sum-zero dη."""
    classes = len(view.space)
    eta = 1 + torch.arange(classes, dtype=torch.float64).mul(0.6180339887).frac()
    eta = eta / eta.sum()
    book = view.codebook
    mass = view.normaliser @ eta
    constraints = book - torch.outer(book @ eta / mass, view.normaliser)
    centred = constraints - constraints.mean(1, keepdim=True)  # acts on sum-zero directions
    # Each symbol row is scaled to its own likelihood, so that small bags count like large ones.
    scale = book.abs().amax(1, keepdim=True).clamp_min(torch.finfo(book.dtype).tiny)
    centred = centred / scale
    return centred.T @ centred


def _rank(gram: Tensor) -> int:
    values = torch.linalg.eigvalsh(gram)
    return int((values > TOLERANCE * values[-1].clamp_min(1.0)).sum())


def _free(gram: Tensor) -> Tensor:
    """(K, d) orthonormal basis of the sum-zero directions that the constraints leave free."""
    classes = len(gram)
    # The all-ones direction is no freedom of η: weigh it out of the null space.
    values, vectors = torch.linalg.eigh(gram + torch.ones(classes, classes, dtype=gram.dtype))
    return vectors[:, values <= TOLERANCE * values[-1].clamp_min(1.0)]


def _groups(space: LabelSpace, free: Tensor) -> tuple[tuple[str, ...], ...]:
    """Classes k, l with e_k − e_l a free direction: moving mass between them shows nowhere."""
    projector = free @ free.T
    diagonal = projector.diagonal()
    # ‖P(e_k − e_l)‖² = 2 exactly when the difference lies in the free space.
    moved = diagonal.unsqueeze(0) + diagonal.unsqueeze(1) - 2 * projector
    same = (moved > 2 - TOLERANCE**0.5) | torch.eye(len(space), dtype=torch.bool)
    members = {tuple(row.nonzero().flatten().tolist()) for row in same}
    return tuple(
        tuple(space.names[k] for k in group) for group in sorted(members) if len(group) > 1
    )
