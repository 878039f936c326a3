"""Which classes can a federation tell apart at all? Asked of the codebooks, before training.

About a sample whose class posteriors are η, unlimited data tell a site the probabilities
r_z = (A[z]·η) / (b·η) of its symbols, and nothing else. Given r, the possible η solve the linear
equations (A − r bᵀ) η = 0 of all sites; they are settled when only one η with 1·η = 1 does. In
terms of the model's logits the equations read J u = 0, where row z of J is the gradient of log r_z,

    J[z] = softmax(f + log A[z]) − softmax(f + log b),

so what nobody settles is just what the loss of no symbol at no site can feel: the null space of
the stacked J. It always holds the direction u = 1, a shift of all logits, which changes no η. Its
dimension is the same for all η but exceptional ones, so it is computed at one drawn at random.

Classes k and l are *confusable* when a direction moves the two alone whatever η is: at every site
where the probabilities of symbols vary at all, the columns k and l of A and b are proportional, by
one factor for all sites. (Equal columns for labels; for bags, the two classes always occur in the
same ratio.)

Settled is not settled well. What a label of a site is *worth*, in exact labels, is the ratio of the
Fisher informations I = Σ_z r_z J[z] J[z]ᵀ of its symbols and of the classes themselves: for one
class k, I[k, k] / η_k (1 − η_k); for the contrast of two, along the direction e_k / η_k − e_l / η_l
that moves probability from one to the other. Here η is nearly uniform, before anything was learned.

What the answer means, and what not:

- It is about views, not samples: a class that a view allows may still have too few of them. How
  often a symbol occurs plays no part, so a tiny bag counts like a large one.
- Effects on the log-likelihood weaker than about 1e-5 count as none: rounding in a declared matrix
  must not settle anything, and no realistic data would show them.
- Every site is taken to see the same kind of inputs, apart from the classes it lacks.
- For `candidates` the rows are the sets that occur. That is right where a set is as likely for
  each class in it (wrong candidates added at random, as in the partial-label papers; disjoint
  sets): then P(S | x) = c_S · P(y ∈ S | x), and the unknown c_S changes no rank. Where one class
  is drawn into sets more eagerly than another, this is the assumption of the loss itself, and the
  answer is about what the loss can settle. A class in no set at a site is taken not to occur there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView

# Squared effects on the log-likelihood below this are rounding, not information.
TOLERANCE = 1e-10
# Two classes are weakly separated where no label is worth this share of an exact one.
WEAK = 0.05
# Relative change of a class's share, along a direction of unit length, that is not rounding.
MOVED = 1e-4


@dataclass(frozen=True)
class Contribution:
    """What one site can say about the classes.

    Args:
      kind:  the kind of its view.
      alone: of the K−1 independent directions, how many it settles by itself.
      only:  how many are settled by nobody else.
      groups: classes that the site by itself cannot tell apart (groups of two or more).
      helpers: the sites that settle something that it leaves open.
    """

    kind: str
    alone: int
    only: int
    groups: tuple[tuple[str, ...], ...]
    helpers: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeakContrast:
    """Two classes that are told apart, but only by labels that say little about it.

    Args:
      classes: the two.
      site:    whose labels say most.
      worth:   how many exact labels one of these is worth, for this contrast.
    """

    classes: tuple[str, str]
    site: str
    worth: float


@dataclass(frozen=True)
class Identifiability:
    """What a federation's views can and cannot separate.

    Args:
      space:   the K target classes.
      settled: how many of the K−1 independent directions the whole federation settles.
      groups:  groups of classes between which nothing in the federation decides.
      entangled: classes whose shares are fixed only in combination, even when each group
               counts as one class (for example two sets of classes that no site sees together).
      sites:   each site's contribution.
      unseen:  classes that occur at no site.
      weak:    pairs of classes that only weak evidence tells apart, the weakest first.
      evidence: for each class, what a label of each site is worth about it, in exact labels.
    """

    space: LabelSpace
    settled: int
    groups: tuple[tuple[str, ...], ...]
    entangled: tuple[str, ...]
    sites: Mapping[str, Contribution]
    unseen: tuple[str, ...] = ()
    weak: tuple[WeakContrast, ...] = ()
    evidence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

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
        if self.unseen:
            lines.append(f"No site has: {', '.join(self.unseen)}.")
        lines += [
            f"Nothing tells apart: {', '.join(group)}."
            for group in self.groups
            if not set(group) <= set(self.unseen)
        ]
        if self.entangled:
            lines.append(
                f"Known only in combination: {', '.join(self.entangled)} "
                "(no site sees them all together, or there are too few different bags)."
            )
        return " ".join(lines)

    def cautions(self, most: int = 3) -> list[str]:
        """A sentence about each pair of classes that only weak evidence tells apart.

        Args:
          most: how many pairs to name.
        """
        lines = [
            f'Only weak evidence separates "{pair.classes[0]}" from "{pair.classes[1]}": a label '
            f'of site "{pair.site}", which says most about it, is worth {pair.worth:.2g} of an '
            "exact one. A few exact labels of these classes would help."
            for pair in self.weak[:most]
        ]
        if len(self.weak) > most:
            lines.append(f"So it is with {len(self.weak) - most} more pairs of classes.")
        return lines

    def shortfalls(self) -> list[str]:
        """A sentence about each site that cannot separate all classes alone, and who helps it."""
        needed = len(self.space) - 1
        return [
            f'Site "{name}" ({site.kind}) settles {site.alone} of {needed} class contrasts alone; '
            f"more come from {_some(site.helpers)}."
            for name, site in self.sites.items()
            if site.alone < needed
        ]


def identifiability(views: Mapping[str, LabelView]) -> Identifiability:
    """Check what the views of a federation can separate.

    Args:
      views: the view of each site, all over the same target classes.
    """
    if not views:
        raise PotluckError("a federation needs at least one site.")
    first_site, space = next((name, view.space) for name, view in views.items())
    for name, view in views.items():
        if view.space != space:
            raise PotluckError(
                f'site "{name}" has a view over other target classes than site "{first_site}"; '
                "all sites need the same target classes in the same order."
            )
    sites = {name: _Evidence.of(view) for name, view in views.items()}
    total = _Evidence.joint(list(sites.values()))
    each = torch.stack([site.information for site in sites.values()])
    settled = total.rank()
    contributions = {
        name: Contribution(
            kind=views[name].kind,
            alone=site.rank(),
            only=settled - _rank(total.information - site.information),
            groups=_named(space, site.first_of_group()),
            helpers=tuple(compress(sites, _helpers(site.information, each).tolist())),
        )
        for name, site in sites.items()
    }
    first = total.first_of_group()
    by_name = sorted(views)
    fisher = torch.stack([_fisher(views[name]) for name in by_name])
    return Identifiability(
        space,
        settled,
        groups=_named(space, first),
        entangled=_pick(space, total.entangled(first)),
        sites=contributions,
        unseen=_pick(space, ~total.seen),
        weak=_weak(space, by_name, fisher),
        evidence=_by_class(space, by_name, fisher),
    )


def class_worth(view: LabelView, counts: Tensor) -> Tensor:
    """What a label of a site is worth about each class, in exact labels.

    As in `Identifiability.evidence`, but for `candidates`: how often each set occurs, which their
    view does not say, is taken from the samples. Else a few large sets would outweigh many small.

    Args:
      view:   the site's view.
      counts: (Z,) how many samples have each symbol.

    Returns:
      (K,) from 0 to 1.
    """
    return _worth(_fisher(_as_often(view, counts)))


def _as_often(view: LabelView, counts: Tensor) -> LabelView:
    """Candidate sets with P(S | class) = c_S for the classes in them, c_S by their frequency."""
    if view.kind != "candidates":
        return view
    often = counts.to(view.codebook)
    classes = often @ view.proportions
    scale = often / (view.codebook @ classes).clamp_min(torch.finfo(often.dtype).tiny)
    return replace(view, codebook=view.codebook * scale.unsqueeze(1))


def _gradients(view: LabelView) -> tuple[Tensor, Tensor]:
    """J (Z, K) at a generic η, and (Z,) the probabilities of the symbols there."""
    book = view.codebook[view.codebook.sum(1) > 0]
    seen = (view.normaliser > 0) & (book > 0).any(0)
    eta = _generic_posterior(len(view.space))
    joint, held = book * eta, view.normaliser * seen * eta
    totals = joint.sum(1)
    return joint / totals.unsqueeze(1) - held / held.sum(), totals / totals.sum()


def _fisher(view: LabelView) -> Tensor:
    """(K, K) Fisher information of a label about the logits."""
    gradients, often = _gradients(view)
    return (gradients * often.unsqueeze(1)).T @ gradients


def _by_class(space: LabelSpace, sites: list[str], fisher: Tensor) -> dict[str, dict[str, float]]:
    """What a label of each site is worth about each class, from (S, K, K) informations."""
    return {
        name: dict(zip(sites, row, strict=True))
        for name, row in zip(space, _worth(fisher).T.tolist(), strict=True)
    }


def _worth(fisher: Tensor) -> Tensor:
    """(…, K, K) informations → (…, K) what a label is worth about each class."""
    eta = _generic_posterior(fisher.shape[-1])
    # A site with few classes has more to say about each than one with all: but 1 is enough.
    return (fisher.diagonal(dim1=-2, dim2=-1) / (eta * (1 - eta))).clamp(max=1)


def _weak(space: LabelSpace, sites: list[str], fisher: Tensor) -> tuple[WeakContrast, ...]:
    """The pairs of classes that some label tells apart, but none well."""
    eta = _generic_posterior(len(space))
    scaled = fisher / (eta.unsqueeze(1) * eta)
    own = scaled.diagonal(dim1=1, dim2=2)
    felt = own.unsqueeze(2) + own.unsqueeze(1) - 2 * scaled
    # Rounded, and sites by name: who is named must not depend on the order of equal ones.
    worth = (felt / (1 / eta.unsqueeze(1) + 1 / eta)).round(decimals=9)
    best = worth.amax(0)
    who = (worth == best).int().argmax(0)
    pairs = ((best > TOLERANCE) & (best < WEAK)).triu(1).nonzero().tolist()
    pairs.sort(key=lambda pair: float(best[pair[0], pair[1]]))
    return tuple(
        WeakContrast((space.names[k], space.names[j]), sites[int(who[k, j])], float(best[k, j]))
        for k, j in pairs
    )


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What symbols say about the logits; the evidence of several sites adds up.

    Args:
      information: (K, K) positive semi-definite; its null space holds the directions of the
                   logits that change the probability of no symbol.
      mass:        (K,) column sums of the codebooks that say anything. Confusable classes have
                   proportional columns, so this gives the factor.
      seen:        (K,) bool, the classes that some symbol may come from.
    """

    information: Tensor
    mass: Tensor
    seen: Tensor

    @classmethod
    def of(cls, view: LabelView) -> "_Evidence":
        """The evidence of one site."""
        book = view.codebook[view.codebook.sum(1) > 0]
        seen = (view.normaliser > 0) & (book > 0).any(0)
        gradients, _ = _gradients(view)
        # JᵀJ by its square root: the rounding of tens of thousands of summed squares would look
        # like a weak contrast.
        triangle = torch.linalg.qr(gradients, mode="r").R
        _, lengths, directions = torch.linalg.svd(triangle, full_matrices=False)
        # Clear away rounding, and cap: ten thousand candidate sets must not drown a site of two.
        strength = (lengths**2).clamp(max=1).where(lengths**2 > TOLERANCE, 0)
        mass = (book / book.amax(1, keepdim=True)).sum(0) * strength.any()
        return cls((directions.T * strength) @ directions, mass, seen)

    @classmethod
    def joint(cls, sites: "list[_Evidence]") -> "_Evidence":
        """The evidence of several sites together."""
        return cls(
            torch.stack([site.information for site in sites]).sum(0),
            torch.stack([site.mass for site in sites]).sum(0),
            torch.stack([site.seen for site in sites]).any(0),
        )

    def rank(self) -> int:
        """How many independent directions are settled."""
        return _rank(self.information)

    def first_of_group(self) -> Tensor:
        """(K,) int64: the first class that nothing tells apart from this one, often itself."""
        classes = len(self.mass)
        # Moving mass from k to l by their factor: the logits' direction is w_k e_k − w_l e_l.
        relative = self.mass / self.mass.max().clamp_min(1)
        weight = 1 / (_generic_posterior(classes) * relative.where(relative > 0, 1))
        down, across = weight.unsqueeze(1), weight.unsqueeze(0)
        felt = self.information * down * across
        change = felt.diagonal().unsqueeze(1) + felt.diagonal().unsqueeze(0) - 2 * felt
        length = down**2 + across**2 - (down - across) ** 2 / classes  # less the shift of all
        same = (change <= TOLERANCE * length) | torch.eye(classes, dtype=torch.bool)
        return same.int().argmax(1)

    def entangled(self, first: Tensor) -> Tensor:
        """(K,) bool: classes whose share, or that of their whole group, is not settled."""
        classes = len(first)
        eta = _generic_posterior(classes)
        factor = (self.mass / self.mass[first]).nan_to_num(nan=1.0)
        share = torch.zeros_like(eta).index_add(0, first, eta * factor)
        seen = torch.zeros_like(eta).index_add(0, first, self.seen.to(eta)) > 0
        kept = ((first == torch.arange(classes)) & seen).nonzero().flatten()
        values, vectors = torch.linalg.eigh(self.information[kept][:, kept])
        moves = vectors[:, values <= TOLERANCE] * eta[kept].unsqueeze(1)
        part = (share[kept] / share[kept].sum()).unsqueeze(1)
        moves = moves - part * moves.sum(0)  # shares sum to 1
        unsettled = torch.zeros(classes, dtype=torch.bool)
        unsettled[kept] = ((moves / part).abs() > MOVED).any(1)
        return unsettled[first] & self.seen


def _generic_posterior(classes: int) -> Tensor:
    """(K,) class posteriors without any accidental relation between them."""
    generator = torch.Generator().manual_seed(0)
    eta = torch.rand(classes, generator=generator, dtype=torch.float64) + 0.5
    return eta / eta.sum()


def _rank(information: Tensor) -> int:
    return int((torch.linalg.eigvalsh(information) > TOLERANCE).sum())


def _helpers(site: Tensor, sites: Tensor) -> Tensor:
    """(S,) bool: which of the sites' (S, K, K) informations settle what this site leaves open."""
    values, vectors = torch.linalg.eigh(site)
    open_ = vectors[:, values <= TOLERANCE]
    return torch.tensordot(sites, open_ @ open_.T, dims=2) > TOLERANCE  # Σ_d o_dᵀ I o_d


def _some(names: tuple[str, ...], most: int = 5) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:most]) or "nobody"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _named(space: LabelSpace, first: Tensor) -> tuple[tuple[str, ...], ...]:
    groups = [_pick(space, first == k) for k in torch.unique(first).tolist()]
    return tuple(group for group in groups if len(group) > 1)


def _pick(space: LabelSpace, chosen: Tensor) -> tuple[str, ...]:
    return tuple(space.names[k] for k in chosen.nonzero().flatten().tolist())
