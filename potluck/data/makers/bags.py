"""Bags: unlabelled sets of samples of which only the class proportions are known.

`make_bags` is the fair way: disjoint bags of equal size that use every sample.
`official_iid_priors` and `official_bags` repeat what FedUL's public code does, for comparison with
its published numbers; its non-IID setting is `draw_priors` and `official_bags` at the sites of
`partitions.majority_classes`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.data.partitions import apportion, deal
from potluck.errors import PotluckError

_TRIES = 100


@dataclass(frozen=True)
class Bags:
    """A site's samples in M bags.

    Attributes:
      index:  (n,) which sample; each occurs once unless the bags overlap.
      bag:    (n,) in which bag it is, 0 … M−1.
      priors: (M, K) proportions of the classes found in each bag.
      sizes:  (M,) samples in each bag.
    """

    index: Tensor
    bag: Tensor
    priors: Tensor
    sizes: Tensor


def draw_priors(
    bags: int,
    num_classes: int,
    generator: torch.Generator,
    low: float = 0.1,
    high: float = 1.0,
    boost: float = 10.0,
) -> Tensor:
    """Draw class priors for bags that each favour one class.

    Entries are U[low, high], that of class m mod K in bag m is `boost` times larger, and rows are
    normalised. The defaults are those of FedUL's code (its text says U[0.1, 0.9], without boost).

    Args:
      bags:        number of bags M.
      num_classes: number of classes K.
      generator:   source of the draws.
      low:         smallest weight before the boost.
      high:        largest weight before the boost.
      boost:       factor of a bag's favourite class.

    Returns:
      (M, K) priors; rows sum to 1.
    """
    if bags < 1 or num_classes < 1:
        raise PotluckError(f"bags: need at least 1 bag and 1 class, not {bags} and {num_classes}.")
    if not 0 < low <= high or not boost > 0:
        raise PotluckError(
            "bags: prior weights need 0 < low <= high and boost > 0, "
            f"not low={low}, high={high}, boost={boost}."
        )
    weights = low + (high - low) * torch.rand(bags, num_classes, generator=generator)
    rows = torch.arange(bags)
    weights[rows, rows % num_classes] *= boost
    return weights / weights.sum(1, keepdim=True)


def make_bags(classes: Tensor, priors: Tensor, generator: torch.Generator) -> Bags:
    """Sort all of a site's samples into disjoint bags of equal size, as near the priors as it goes.

    Bags of equal size with exactly the wanted priors would rarely add up to the samples there are.
    So the table (bag × class) of counts is the wanted one with its rows and columns rescaled until
    the bags are equal and every class is used up (iterative proportional fitting). That keeps the
    table's rank and odds ratios, and gives the wanted priors themselves wherever they fit. Zeros
    stay zeros; where these forbid bags of equal size, all samples are still used. Rounding to
    whole samples changes a size by about one.

    Args:
      classes:   (N,) true class of each sample.
      priors:    (M, K) wanted class proportions of each bag; rows sum to 1.
      generator: source of the choice of samples.

    Returns:
      The bags, with the proportions they really have; `index` is 0 … N−1.
    """
    totals = _count_classes(classes, priors)
    if len(classes) < len(priors):
        raise PotluckError(
            f"bags: cannot fill {len(priors)} bags with {len(classes)} samples; use fewer bags."
        )
    sums = priors.double().sum(1)
    off = ((sums - 1).abs() > 1e-4).nonzero().flatten().tolist()
    if off:
        raise PotluckError(
            f"bags: the priors of bag {off[0]} sum to {sums[off[0]]:.4g}, not 1; divide by the sum."
        )
    homeless = ((totals > 0) & (priors.sum(0) == 0)).nonzero().flatten().tolist()
    if homeless:
        raise PotluckError(
            f"bags: class {homeless[0]} has samples, but its prior is 0 in every bag; "
            "give it a prior above 0 in some bag, or leave its samples out."
        )
    _check_filled(priors[:, totals > 0].sum(1))
    counts = apportion(_fit(priors.double(), totals.double()))
    _check_filled(counts.sum(1))
    return _summarise(torch.arange(len(classes)), deal(classes, counts, generator), counts)


def identifiable_bags(
    classes: Tensor,
    bags: int,
    num_classes: int,
    generator: torch.Generator,
    separation: float = 1e-3,
    rank: int | None = None,
) -> Bags:
    """Sort all of a site's samples into random bags that tell its classes apart.

    Bags can only be learned from if their proportions have full rank over the classes the site
    has. Priors are drawn until the bags made from them do, by a margin. Where less is asked for,
    because other sites help, bags may be fewer than classes; they then favour random classes.

    Args:
      classes:     (N,) true class of each sample.
      bags:        number of bags M.
      num_classes: number of classes K; those that do not occur get proportion 0.
      generator:   source of the priors and of the choice of samples.
      separation:  least ratio of the smallest singular value that counts to the largest.
      rank:        how many independent bags there must be; as many as classes that occur by
                   default, and never more than that.

    Returns:
      The bags, disjoint and of equal size as in `make_bags`.
    """
    priors = torch.zeros(bags, num_classes)
    present = _count_classes(classes, priors).nonzero().flatten()
    needed = len(present) if rank is None else min(rank, len(present))
    if bags < needed:
        raise PotluckError(
            f"bags: {bags} bags cannot tell {needed} classes apart; use at least {needed} bags."
        )
    for _ in range(_TRIES):
        drawn = draw_priors(bags, len(present), generator)
        if bags < len(present):
            drawn = drawn[:, torch.randperm(len(present), generator=generator)]
        priors[:, present] = drawn
        made = make_bags(classes, priors, generator)
        spectrum = torch.linalg.svdvals(made.priors[:, present])
        if spectrum[needed - 1] >= separation * spectrum[0]:
            return made
    raise PotluckError(
        f"bags: none of {_TRIES} draws of {bags} bags from {len(classes)} samples told the "
        f"{len(present)} classes apart by a separation of {separation}; "
        "use more samples, other numbers of bags or a smaller separation."
    )


def official_iid_priors(
    sites: int, bags: int, num_classes: int, generator: torch.Generator
) -> Tensor:
    """FedUL's published IID priors: one table for all sites, normalised over bags, not classes.

    Sums `draw_priors` over the sites and makes each *column* sum to 1. With `official_bags` the
    data a site uses thus shrinks as the number of bags grows: of 9600 samples and 10 classes,
    about 9550, 4700 and 2200 for 10, 20 and 40 bags.

    Args:
      sites:       number of sites.
      bags:        number of bags M.
      num_classes: number of classes K.
      generator:   source of the draws.

    Returns:
      (M, K) weights for `official_bags`; columns sum to 1.
    """
    if sites < 1:
        raise PotluckError(f"bags: the number of sites must be at least 1, not {sites}.")
    summed = torch.stack([draw_priors(bags, num_classes, generator) for _ in range(sites)]).sum(0)
    return summed / summed.sum(0)


def official_bags(classes: Tensor, priors: Tensor, generator: torch.Generator) -> Bags:
    """FedUL's published way to fill bags: each from all of the site's samples, so bags overlap.

    Bag m takes ⌊N/M⌋·priors[m, k] samples of class k, rounded down, or all if there are fewer.

    Args:
      classes:   (N,) true class of each sample.
      priors:    (M, K) wanted proportions: `draw_priors`, or `official_iid_priors`.
      generator: source of the choice of samples.

    Returns:
      The bags, with the proportions they really have. A sample is in any number of bags.
    """
    totals = _count_classes(classes, priors)
    size = len(classes) // len(priors)
    counts = torch.minimum((priors.double() * size).long(), totals)
    _check_filled(counts.sum(1))
    drawn = [
        (deal(classes, row.unsqueeze(0), generator) == 0).nonzero().flatten() for row in counts
    ]
    bag = torch.arange(len(counts)).repeat_interleave(counts.sum(1))
    return _summarise(torch.cat(drawn), bag, counts)


def perturb(priors: Tensor, epsilon: float, generator: torch.Generator) -> Tensor:
    """Disturb known priors, to see what a wrong prior costs.

    Each prior π becomes π·((2γ−1)ε + 1) with γ ~ U[0, 1], clipped to [0, 1]; rows are then
    normalised. FedUL's text swaps γ and ε, by which ε = 0 would not be clean.

    Args:
      priors:    (M, K) true priors; rows sum to 1.
      epsilon:   strength, at least 0; FedUL uses 0 to 1.6.
      generator: source of the draws.

    Returns:
      (M, K) disturbed priors; rows sum to 1.
    """
    if not epsilon >= 0:
        raise PotluckError(f"bags: epsilon must be at least 0, not {epsilon}.")
    noisy = torch.zeros_like(priors)
    # Above ε = 1 a whole row may be clipped to 0, which is no prior: such rows are drawn again.
    while bool((lost := noisy.sum(1, keepdim=True) == 0).any()):
        gamma = torch.rand(priors.shape, generator=generator, dtype=priors.dtype)
        noisy = torch.where(lost, (priors * ((2 * gamma - 1) * epsilon + 1)).clamp(0, 1), noisy)
    return noisy / noisy.sum(1, keepdim=True)


def _fit(table: Tensor, totals: Tensor) -> Tensor:
    """Rescale rows to equal sums and columns to sum to `totals`, in turn, until both hold."""
    tiny = torch.finfo(table.dtype).tiny
    for _ in range(500):
        table = table / table.sum(1, keepdim=True).clamp(min=tiny)
        table = table * (totals / table.sum(0).clamp(min=tiny))
        sizes = table.sum(1)
        if sizes.max() - sizes.min() < 1e-6 * sizes.max():
            break
    return table


def _summarise(index: Tensor, bag: Tensor, counts: Tensor) -> Bags:
    sizes = counts.sum(1)
    return Bags(index, bag, counts / sizes.unsqueeze(1), sizes)


def _count_classes(classes: Tensor, priors: Tensor) -> Tensor:
    """(K,) samples of each class."""
    num_classes = priors.shape[1]
    if bool((priors < 0).any()):
        raise PotluckError("bags: there are negative priors; proportions are from 0 to 1.")
    totals = torch.bincount(classes, minlength=num_classes)
    if len(totals) > num_classes:
        raise PotluckError(
            f"bags: there are samples of class {len(totals) - 1}, but priors for only "
            f"{num_classes} classes; give the priors one column for each class."
        )
    return totals


def _check_filled(sizes: Tensor) -> None:
    empty = (sizes == 0).nonzero().flatten().tolist()
    if empty:
        raise PotluckError(
            f"bags: bag {empty[0]} would be empty, as too few samples are of the classes it "
            "favours; use fewer bags, more samples or other priors."
        )
