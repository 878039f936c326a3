"""Candidate sets: each sample comes with several classes, one of which is the true one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.errors import PotluckError


def uniform(classes: Tensor, num_classes: int, rho: float, generator: torch.Generator) -> Tensor:
    """Add each wrong class with the same probability, and one at random where none was added.

    Every set has at least two classes, on average 1 + (K−1)ρ + (1−ρ)^(K−1).

    Args:
      classes:     (N,) true class of each sample.
      num_classes: number of classes K.
      rho:         probability that a wrong class is a candidate, in [0, 1).
      generator:   source of the draws.

    Returns:
      (N, K) bool, the candidates of each sample.

    References:
      Lv et al., Progressive identification of true labels for partial-label learning, 2020.
    """
    if num_classes < 2:
        raise PotluckError(f"candidates: sets need at least 2 classes, not {num_classes}.")
    if not 0 <= rho < 1:
        raise PotluckError(f"candidates: rho must be at least 0 and below 1, not {rho}.")
    _check_classes(classes, num_classes)
    mask = torch.rand(len(classes), num_classes, generator=generator) < rho
    mask.scatter_(1, classes.unsqueeze(1), True)
    step = torch.randint(1, num_classes, classes.shape, generator=generator)
    alone = mask.sum(1) == 1
    mask[alone, ((classes + step) % num_classes)[alone]] = True
    return mask


def class_dependent(classes: Tensor, flips: Tensor, generator: torch.Generator) -> Tensor:
    """Add each wrong class with a probability that depends on the true one.

    The true class is always a candidate; it may be the only one.

    Args:
      classes:   (N,) true class of each sample.
      flips:     (K, K) with entry [k, j] = P(j is a candidate | class k); the diagonal is not read.
      generator: source of the draws.

    Returns:
      (N, K) bool, the candidates of each sample.
    """
    rows, columns = flips.shape
    if rows != columns:
        raise PotluckError(f"candidates: flip probabilities form a square, not {rows} × {columns}.")
    if not bool(((flips >= 0) & (flips <= 1)).all()):
        raise PotluckError("candidates: flip probabilities must be from 0 to 1.")
    _check_classes(classes, columns)
    mask = torch.rand(len(classes), columns, generator=generator) < flips[classes]
    return mask.scatter_(1, classes.unsqueeze(1), True)


def confusable(groups: Sequence[Sequence[int]], num_classes: int, rho: float) -> Tensor:
    """Flip probabilities for `class_dependent` when only classes of a group are taken for another.

    Args:
      groups:      classes that look alike, group by group; no class in two groups.
      num_classes: number of classes K.
      rho:         probability that another class of the same group is a candidate.

    Returns:
      (K, K) with entry [k, j] = P(j is a candidate | class k): rho within a group, else 0.
    """
    group = torch.full((num_classes,), -1)
    for number, members in enumerate(groups):
        for k in members:
            if not 0 <= k < num_classes:
                raise PotluckError(f"candidates: there is no class {k} (0 to {num_classes - 1}).")
            if group[k] >= 0:
                raise PotluckError(f"candidates: class {k} is in two groups of confusable classes.")
            group[k] = number
    alike = (group[:, None] == group) & (group >= 0)
    return rho * alike.float().fill_diagonal_(0)


def drop_truth(mask: Tensor, classes: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Remove the true class from some of the sets, as careless annotators do.

    Args:
      mask:      (N, K) bool, the candidates of each sample.
      classes:   (N,) true class of each sample.
      rate:      probability that a set loses its true class, in [0, 1]. A set without any other
                 candidate keeps it: no set becomes empty.
      generator: source of the draws.

    Returns:
      (N, K) bool, a new mask.
    """
    if not 0 <= rate <= 1:
        raise PotluckError(f"candidates: the rate of lost truths must be from 0 to 1, not {rate}.")
    _check_classes(classes, mask.shape[1])
    lost = (torch.rand(len(mask), generator=generator) < rate) & (mask.sum(1) > 1)
    kept = mask.gather(1, classes.unsqueeze(1)) & ~lost.unsqueeze(1)
    return mask.scatter(1, classes.unsqueeze(1), kept)


def reveal(mask: Tensor, classes: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Give some samples an exact label: the true class as their only candidate.

    Args:
      mask:      (N, K) bool, the candidates of each sample.
      classes:   (N,) true class of each sample.
      share:     probability that a sample is labelled exactly, in [0, 1].
      generator: source of the draws.

    Returns:
      (N, K) bool, a new mask.
    """
    if not 0 <= share <= 1:
        raise PotluckError(f"candidates: the share of exact labels is from 0 to 1, not {share}.")
    _check_classes(classes, mask.shape[1])
    exact = torch.rand(len(mask), 1, generator=generator) < share
    alone = torch.zeros_like(mask).scatter_(1, classes.unsqueeze(1), True)
    return torch.where(exact, alone, mask)


def pick_one(mask: Tensor, generator: torch.Generator) -> Tensor:
    """Choose one candidate at random: what a method for single, noisy labels is given.

    Args:
      mask:      (N, K) bool, the candidates of each sample.
      generator: source of the draws.

    Returns:
      (N,) one candidate of each sample.
    """
    empty = (~mask.any(1)).nonzero().flatten().tolist()
    if empty:
        raise PotluckError(f"candidates: sample {empty[0]} has no candidates to pick from.")
    return torch.multinomial(mask.float(), 1, generator=generator).squeeze(1)


def _check_classes(classes: Tensor, num_classes: int) -> None:
    if len(classes) and int(classes.max()) >= num_classes:
        raise PotluckError(
            f"candidates: there are samples of class {int(classes.max())}, "
            f"but only {num_classes} classes (0 to {num_classes - 1})."
        )
