"""How a simulation splits one data set among its sites.

A partition takes the class of every sample, the number of sites and a generator, and returns one
tensor of sample indices per site, each in ascending order. No sample goes to two sites. `iid`,
`dirichlet` and `bernoulli_dirichlet` give every sample to some site; the others say what they
leave out. All randomness comes from the generator: the same seed gives the same split.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError

_TRIES = 1000  # draws of a random split before we say that it cannot be had


@dataclass(frozen=True)
class LabelSubsets:
    """A split in which every site holds only some of the classes.

    Attributes:
      indices: one tensor of sample indices per site, ascending.
      subsets: (S, K) bool, the classes each site may hold.
    """

    indices: list[Tensor]
    subsets: Tensor

    @property
    def unheld(self) -> list[int]:
        """The classes that no site holds."""
        return (~self.subsets.any(0)).nonzero().flatten().tolist()


def iid(classes: Tensor, sites: int, generator: torch.Generator) -> list[Tensor]:
    """Give every site the same mix of classes.

    Any two sites differ by at most one sample in every class, and by at most one in all.

    Args:
      classes:   (N,) class of each sample.
      sites:     number of sites S.
      generator: source of the random choice of samples.

    Returns:
      S tensors of ascending indices that together hold every sample once.
    """
    _count_classes(classes, sites)
    owner = torch.empty_like(classes, dtype=torch.long)
    owner[_shuffled_by_class(classes, generator)] = torch.arange(len(classes)) % sites
    return _gather(owner, sites)


def dirichlet(
    classes: Tensor, sites: int, generator: torch.Generator, alpha: float, min_size: int = 1
) -> list[Tensor]:
    """Share each class among the sites in proportions drawn from Dir(α, …, α).

    The proportions are drawn anew until every site has `min_size` samples.

    Args:
      classes:   (N,) class of each sample.
      sites:     number of sites S.
      generator: source of the proportions and of the choice of samples.
      alpha:     concentration; the smaller, the more the sites differ.
      min_size:  fewest samples a site may have.

    Returns:
      S tensors of ascending indices that together hold every sample once.
    """
    totals = _count_classes(classes, sites)
    _check_draw("dirichlet", len(classes), sites, alpha, min_size)
    rng = _numpy_generator(generator)

    def draw() -> Tensor:
        shares = torch.from_numpy(rng.dirichlet(np.full(sites, alpha), size=len(totals)))
        return apportion(shares.T * totals)

    counts = _redraw(draw, min_size, "dirichlet")
    return _gather(deal(classes, counts, generator), sites)


def bernoulli_dirichlet(
    classes: Tensor,
    sites: int,
    generator: torch.Generator,
    p: float,
    alpha: float,
    min_size: int = 1,
) -> list[Tensor]:
    """Let each site hold each class with probability p, then share it by Dir(α) among its holders.

    Each sample picks its site independently with its class's shares, as in FedCorr. Unlike there,
    a class that no site holds is offered to the sites again, and the split is drawn anew until
    every site has `min_size` samples. FedPLL uses p = 0.7 and α = 0.5.

    Args:
      classes:   (N,) class of each sample.
      sites:     number of sites S.
      generator: source of the holdings, the shares and the choice of samples.
      p:         probability that a site holds a class.
      alpha:     concentration of the shares among a class's holders.
      min_size:  fewest samples a site may have.

    Returns:
      S tensors of ascending indices that together hold every sample once.

    References:
      Xu et al., FedCorr: multi-stage federated learning for label noise correction, 2022.
    """
    totals = _count_classes(classes, sites)
    if not 0 < p <= 1:
        raise PotluckError(f"bernoulli_dirichlet: p must be above 0 and at most 1, not {p}.")
    _check_draw("bernoulli_dirichlet", len(classes), sites, alpha, min_size)
    rng = _numpy_generator(generator)

    def draw() -> Tensor:
        counts = np.zeros((sites, len(totals)), dtype=np.int64)
        holds = _draw_holdings(sites, len(totals), p, rng)
        for k, total in enumerate(totals.tolist()):
            holders = holds[:, k].nonzero()[0]
            # Counts of independent choices are multinomial; `deal` then says which samples.
            counts[holders, k] = rng.multinomial(total, rng.dirichlet(np.full(len(holders), alpha)))
        return torch.from_numpy(counts)

    counts = _redraw(draw, min_size, "bernoulli_dirichlet")
    return _gather(deal(classes, counts, generator), sites)


def majority_classes(
    classes: Tensor,
    sites: int,
    generator: torch.Generator,
    gamma: float = 0.95,
    low: float = 0.45,
    high: float = 0.55,
    per_site: int = 2,
    samples_per_site: int | None = None,
) -> list[Tensor]:
    """Give each site mostly samples of its own few majority classes.

    Every site weighs the classes by U[low, high], and its majority classes 4/(1−γ) times more.
    Site s has the majority classes s·per_site, s·per_site + 1, … (modulo K). The defaults are
    those of FedUL's code: γ = 0.95, weights U[0.45, 0.55]. FedMT has γ = 0.1, 0.9 or 0.99, weights
    U[0.35, 0.55] and 4000 samples per site; its majority classes are superclasses, so pass each
    sample's superclass as `classes`.

    Args:
      classes:          (N,) class, or group of classes, of each sample.
      sites:            number of sites S.
      generator:        source of the weights and of the choice of samples.
      gamma:            heterogeneity, in [0, 1).
      low:              smallest weight of a minority class.
      high:             largest weight of a minority class.
      per_site:         number of majority classes of a site.
      samples_per_site: samples a site asks for; an equal share of all if not given.

    Returns:
      S tensors of ascending indices, as `by_weights` allocates them: samples may be left over.
    """
    totals = _count_classes(classes, sites)
    if not 0 <= gamma < 1:
        raise PotluckError(f"majority_classes: gamma must be at least 0 and below 1, not {gamma}.")
    if not 0 < low <= high:
        raise PotluckError(
            f"majority_classes: weights need 0 < low <= high, not low={low} and high={high}."
        )
    if not 1 <= per_site <= len(totals):
        raise PotluckError(
            f"majority_classes: per_site must be from 1 to the {len(totals)} classes, "
            f"not {per_site}."
        )
    uniform = torch.rand(sites, len(totals), generator=generator, dtype=torch.float64)
    weights = low + (high - low) * uniform
    majority = torch.arange(sites * per_site).view(sites, per_site) % len(totals)
    boost = torch.ones_like(weights).scatter_(1, majority, 4 / (1 - gamma))
    return by_weights(classes, weights * boost, generator, samples_per_site)


def by_weights(
    classes: Tensor,
    weights: Tensor,
    generator: torch.Generator,
    samples_per_site: int | None = None,
) -> list[Tensor]:
    """Let one site after another take its share of each class until the class is exhausted.

    Site s asks for ⌊weights[s, k] · samples_per_site⌋ samples of class k, weights normalised over
    k, and gets what the sites before it have left. Samples nobody asked for belong to no site.

    Args:
      classes:          (N,) class of each sample.
      weights:          (S, K) how much each site wants of each class, of any scale.
      generator:        source of the choice of samples.
      samples_per_site: samples a site asks for; an equal share of all if not given.

    Returns:
      S tensors of ascending indices.
    """
    sites, num_classes = weights.shape
    totals = _count_classes(classes, sites)
    if len(totals) > num_classes:
        raise PotluckError(
            f"partition: there are samples of class {len(totals) - 1}, but weights for only "
            f"{num_classes} classes; give the weights one column for each class."
        )
    if bool((weights < 0).any()) or bool((weights.sum(1) == 0).any()):
        raise PotluckError("partition: weights must not be negative, nor all 0 at a site.")
    size = len(classes) // sites if samples_per_site is None else samples_per_site
    if not 1 <= size <= len(classes) // sites:
        raise PotluckError(
            f"partition: samples_per_site must be from 1 to {len(classes) // sites} "
            f"({len(classes)} samples, {sites} sites), not {size}."
        )
    quota = (weights.double() / weights.double().sum(1, keepdim=True) * size).long()
    taken = torch.minimum(quota.cumsum(0), torch.bincount(classes, minlength=num_classes))
    counts = taken.diff(dim=0, prepend=torch.zeros_like(taken[:1]))
    empty = (counts.sum(1) == 0).nonzero().flatten().tolist()
    if empty:
        raise PotluckError(
            f"partition: site {empty[0]} gets no samples, as the sites before it used up the "
            "classes it asks for; use fewer sites, more samples per site or a smaller gamma."
        )
    return _gather(deal(classes, counts, generator), sites)


def label_subsets(
    classes: Tensor,
    sites: int,
    generator: torch.Generator,
    labels_per_site: int,
    samples_per_site: int | None = None,
) -> LabelSubsets:
    """Give each site a random subset of the classes, and each class equally to its holders.

    Subsets are independent, so a class may have no holder: its samples then belong to no site
    (see `LabelSubsets.unheld`). The subsets are drawn anew until every holder has a sample of each
    of its classes and every site has `samples_per_site` samples.

    Args:
      classes:          (N,) class of each sample.
      sites:            number of sites S.
      generator:        source of the subsets and of the choice of samples.
      labels_per_site:  size of each site's subset.
      samples_per_site: samples each site keeps, chosen at random; all of them if not given.

    Returns:
      The sites' indices and subsets.
    """
    totals = _check_subsets("label_subsets", classes, sites, labels_per_site, samples_per_site)

    def draw() -> Tensor:
        return torch.rand(sites, len(totals), generator=generator)

    return _share_labels(classes, draw, generator, labels_per_site, samples_per_site)


def covering_label_subsets(
    classes: Tensor,
    sites: int,
    generator: torch.Generator,
    labels_per_site: int,
    samples_per_site: int | None = None,
) -> LabelSubsets:
    """Like `label_subsets`, with a holder for every class.

    The classes are first dealt out in random order, one at a time, to one site after another;
    the rest of each subset is random.

    Args:
      classes:          (N,) class of each sample.
      sites:            number of sites S.
      generator:        source of the subsets and of the choice of samples.
      labels_per_site:  size of each site's subset; S subsets must be able to hold all classes.
      samples_per_site: samples each site keeps, chosen at random; all of them if not given.

    Returns:
      The sites' indices and subsets.
    """
    name = "covering_label_subsets"
    totals = _check_subsets(name, classes, sites, labels_per_site, samples_per_site)
    if sites * labels_per_site < len(totals):
        raise PotluckError(
            f"{name}: {sites} sites with {labels_per_site} classes each cannot hold all "
            f"{len(totals)} classes; use more sites, more labels_per_site, or label_subsets."
        )

    def draw() -> Tensor:
        scores = torch.rand(sites, len(totals), generator=generator)
        dealt = torch.randperm(len(totals), generator=generator)
        scores[torch.arange(len(totals)) % sites, dealt] += 1  # above every random score
        return scores

    return _share_labels(classes, draw, generator, labels_per_site, samples_per_site)


PARTITIONS: dict[str, Callable[..., list[Tensor] | LabelSubsets]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "bernoulli_dirichlet": bernoulli_dirichlet,
    "majority_classes": majority_classes,
    "label_subsets": label_subsets,
    "covering_label_subsets": covering_label_subsets,
}


def deal(classes: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Hand out random samples of each class in given numbers.

    Args:
      classes:   (N,) class of each sample.
      counts:    (S, K) how many samples of each class each of S owners gets.
      generator: source of the choice of samples.

    Returns:
      (N,) owner of each sample, −1 for samples that nobody gets.
    """
    owners, num_classes = counts.shape
    spare = torch.bincount(classes, minlength=num_classes) - counts.sum(0)
    hands = torch.cat([spare.unsqueeze(0), counts]).T  # (K, 1 + S)
    owner = torch.empty_like(classes, dtype=torch.long)
    owner[_shuffled_by_class(classes, generator)] = (
        torch.arange(-1, owners).repeat(num_classes).repeat_interleave(hands.flatten())
    )
    return owner


def apportion(exact: Tensor) -> Tensor:
    """Round a table to whole numbers, keeping column sums exactly and row sums nearly.

    Every entry is rounded down or up; who is rounded up is who is owed most so far, so that
    rounding errors do not pile up in a row. Zeros stay zeros.

    Args:
      exact: (S, K) non-negative numbers whose columns sum to whole numbers.

    Returns:
      (S, K) long.
    """
    counts = exact.floor()
    short = (exact.sum(0) - counts.sum(0)).round().long().tolist()
    owed = torch.zeros_like(exact[:, 0])
    for k, extra in enumerate(short):
        owed += exact[:, k] - counts[:, k]
        up = owed.masked_fill(exact[:, k] == 0, -torch.inf).topk(extra).indices
        counts[up, k] += 1
        owed[up] -= 1
    return counts.long()


def _shuffled_by_class(classes: Tensor, generator: torch.Generator) -> Tensor:
    """(N,) sample indices ordered by class, in random order within a class."""
    shuffled = torch.randperm(len(classes), generator=generator)
    return shuffled[torch.argsort(classes[shuffled], stable=True)]


def _gather(owner: Tensor, sites: int) -> list[Tensor]:
    """Each site's samples in ascending order; owner −1 is nobody."""
    ends = torch.bincount(owner + 1, minlength=sites + 1).cumsum(0)[:-1].tolist()
    return list(torch.argsort(owner, stable=True).tensor_split(ends)[1:])


def _numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """A child generator: torch's Dirichlet and multinomial counts take no explicit generator."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))


def _redraw(draw: Callable[[], Tensor], min_size: int, name: str) -> Tensor:
    """The first (S, K) table of counts that gives every site enough samples."""
    for _ in range(_TRIES):
        counts = draw()
        if counts.sum(1).min() >= min_size:
            return counts
    raise PotluckError(
        f"{name}: none of {_TRIES} draws gave all {len(counts)} sites at least {min_size} samples; "
        "use fewer sites, a larger alpha or a smaller min_size."
    )


def _draw_holdings(
    sites: int, num_classes: int, p: float, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(S, K) bool: who holds what; rows and columns without a holding are drawn again."""
    holds = np.zeros((sites, num_classes), dtype=np.bool_)
    for _ in range(_TRIES):
        empty = ~holds.any(1, keepdims=True) | ~holds.any(0, keepdims=True)
        if not empty.any():
            return holds
        holds |= empty & (rng.random(holds.shape) < p)
    raise PotluckError(
        f"bernoulli_dirichlet: with p = {p}, {_TRIES} draws left a site without a class or a class "
        "without a site; use a larger p."
    )


def _share_labels(
    classes: Tensor,
    draw: Callable[[], Tensor],
    generator: torch.Generator,
    labels_per_site: int,
    samples_per_site: int | None,
) -> LabelSubsets:
    """Split by subsets: each site takes the classes of its highest scores in the (S, K) draw."""
    totals = torch.bincount(classes)
    for _ in range(_TRIES):
        scores = draw()
        chosen = scores.topk(labels_per_site, dim=1).indices
        subsets = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, chosen, True)
        counts = apportion(totals * subsets / subsets.sum(0).clamp(min=1).double())
        smallest = int(counts.sum(1).min())
        if smallest >= (samples_per_site or 1) and bool((counts[subsets] > 0).all()):
            break
    else:
        raise PotluckError(
            f"label subsets: none of {_TRIES} draws gave every site a sample of each of its "
            f"{labels_per_site} classes and {samples_per_site or 1} samples in all (the smallest "
            f"site of the last draw had {smallest}); use fewer sites or samples_per_site."
        )
    indices = _gather(deal(classes, counts, generator), len(subsets))
    if samples_per_site is not None:
        indices = [_subsample(index, samples_per_site, generator) for index in indices]
    return LabelSubsets(indices, subsets)


def _subsample(index: Tensor, size: int, generator: torch.Generator) -> Tensor:
    return index[torch.randperm(len(index), generator=generator)[:size].sort().values]


def _count_classes(classes: Tensor, sites: int) -> Tensor:
    """(K,) samples of each class, K being one more than the largest class seen."""
    if sites < 1:
        raise PotluckError(f"partition: the number of sites must be at least 1, not {sites}.")
    if len(classes) < sites:
        raise PotluckError(
            f"partition: cannot split {len(classes)} samples among {sites} sites; "
            "use fewer sites or more samples."
        )
    return torch.bincount(classes)


def _check_draw(name: str, samples: int, sites: int, alpha: float, min_size: int) -> None:
    if not alpha > 0:
        raise PotluckError(f"{name}: alpha must be above 0, not {alpha}.")
    if min_size < 1:
        raise PotluckError(f"{name}: min_size must be at least 1, not {min_size}.")
    if sites * min_size > samples:
        raise PotluckError(
            f"{name}: {sites} sites with min_size {min_size} need {sites * min_size} samples, "
            f"but there are {samples}; use fewer sites or a smaller min_size."
        )


def _check_subsets(
    name: str, classes: Tensor, sites: int, labels_per_site: int, samples_per_site: int | None
) -> Tensor:
    totals = _count_classes(classes, sites)
    if not 1 <= labels_per_site <= len(totals):
        raise PotluckError(
            f"{name}: labels_per_site must be from 1 to the {len(totals)} classes, "
            f"not {labels_per_site}."
        )
    empty = (totals == 0).nonzero().flatten().tolist()
    if empty:
        raise PotluckError(
            f"{name}: class {empty[0]} has no samples, so no site can hold it; "
            "number the classes that occur from 0 without gaps."
        )
    if samples_per_site is not None and not 1 <= samples_per_site <= len(classes) // sites:
        raise PotluckError(
            f"{name}: samples_per_site must be from 1 to {len(classes) // sites} "
            f"({len(classes)} samples, {sites} sites), not {samples_per_site}."
        )
    return totals
