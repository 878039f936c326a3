"""`bags`: no labels, but separate sets of samples whose class proportions are known."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.arrays import as_numbers
from potluck.labels.checks import as_matrix, as_prior, stochastic_rows
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, uniform_prior

# Singular values below this share of the largest are rounding, not information.
RANK_TOLERANCE = 1e-6


def bags(
    space: LabelSpace,
    priors: Any,
    *,
    sizes: Any | None = None,
    target_prior: Any | None = None,
    names: Sequence[str] | None = None,
    minimum_rank: int | None = None,
    maximum_condition: float = 1e4,
) -> LabelView:
    """Samples that come in bags m with known class proportions Π[m] (FedUL).

    The observed symbol is the bag. With bag shares π̄ and the target prior π,
    a = π̄_m Π[m] / π and b is the column sum of that matrix over the bags.

    Args:
      space:             the K target classes.
      priors:            (M, K) matrix Π; a row holds the class proportions of one bag.
      sizes:             (M,) samples per bag; equal when left out.
      target_prior:      (K,) class prior π of the population the model is for; uniform when
                         left out.
      names:             bag names; numbered when left out.
      minimum_rank:      how many independent bags there must be, from 1 to K. FedUL needs K, the
                         default; declare fewer where other sites of the federation supply the
                         rest.
      maximum_condition: largest accepted ratio of Π's singular values.
    """
    rows = None if names is None else len(names)
    matrix = as_matrix("the bag priors Π", priors, rows, len(space))
    symbols = LabelSpace.numbered(len(matrix)) if names is None else LabelSpace(tuple(names))
    matrix = stochastic_rows("the bag priors Π", matrix, symbols.names)
    needed = len(space) if minimum_rank is None else minimum_rank
    _check_rank(matrix, symbols, needed, maximum_condition)
    prior = uniform_prior(space)
    if target_prior is not None:
        _check_target(target_prior, matrix, symbols, space)
        prior = as_prior("the target prior π", target_prior, space)
    joint = _shares(sizes, symbols).unsqueeze(1) * matrix / prior
    return LabelView(
        kind="bags",
        space=space,
        symbols=symbols,
        codebook=joint,
        normaliser=joint.sum(0),
        prior=prior,
    )


def _shares(sizes: Any | None, symbols: LabelSpace) -> Tensor:
    if sizes is None:
        return torch.full((len(symbols),), 1 / len(symbols), dtype=torch.float64)
    values = torch.from_numpy(as_numbers("the bag sizes", sizes)).double().flatten()
    if len(values) != len(symbols):
        raise PotluckError(
            f"there are {len(symbols)} bags but {len(values)} bag sizes; give one size per bag."
        )
    if (wrong := ~((values >= 0) & values.isfinite())).any():
        m = int(wrong.nonzero()[0])
        raise PotluckError(
            f'bag "{symbols.names[m]}" has size {values[m]:g}; give its number of samples.'
        )
    if (empty := values == 0).any():
        name = symbols.names[int(empty.nonzero()[0])]
        raise PotluckError(
            f'bag "{name}" is empty; leave it out of the bag priors and the bag sizes.'
        )
    return values / values.sum()


def _check_target(
    target_prior: Any, matrix: Tensor, symbols: LabelSpace, space: LabelSpace
) -> None:
    """Refuse a target population that lacks a class which a bag has; name the bag."""
    given = torch.from_numpy(as_numbers("the target prior π", target_prior)).flatten()
    if len(given) != len(space):
        return  # `as_prior` explains this
    clash = (given == 0) & (matrix > 0)
    if clash.any():
        m, k = clash.nonzero()[0].tolist()
        raise PotluckError(
            f'the target prior π is 0 for class "{space.names[k]}", but it makes up '
            f'{float(matrix[m, k]):.3g} of bag "{symbols.names[m]}"; give the class a share of '
            "the target population, however small, or leave it out of the label space."
        )


def _check_rank(matrix: Tensor, symbols: LabelSpace, needed: int, maximum_condition: float) -> None:
    bag_count, classes = matrix.shape
    if not 1 <= needed <= classes:
        raise PotluckError(
            f"minimum_rank is {needed}; it must be from 1 to the number of classes, {classes}."
        )
    singular = torch.linalg.svdvals(matrix)
    rank = _rank(matrix)
    if rank < needed:
        distinct = len(torch.unique(matrix, dim=0))
        wanted = (
            f"there are {classes} classes; FedUL needs at least as many sufficiently different "
            "bags as classes"
            if needed == classes
            else f"minimum_rank is {needed}"
        )
        raise PotluckError(
            f"bag priors have rank {rank} but {wanted} (found {bag_count} bags, {distinct} "
            f"distinct rows). Merge classes or add bags, or set minimum_rank = {rank} if other "
            f"sites can tell the remaining classes apart.{_idle(matrix, symbols)}"
        )
    condition = float(singular[0] / singular[min(needed, len(singular)) - 1])
    if condition > maximum_condition:
        raise PotluckError(
            f"the bags' class proportions are too much alike (condition number {condition:.3g}, "
            f"at most {maximum_condition:.3g} accepted): small errors in the priors would decide "
            "the result. Form bags that differ more, or raise maximum_condition."
        )


def _rank(matrix: Tensor) -> int:
    singular = torch.linalg.svdvals(matrix)
    return int((singular > RANK_TOLERANCE * singular[0]).sum())


def _idle(matrix: Tensor, symbols: LabelSpace) -> str:
    """A sentence that names the bags which are blends of those before them, if there are any."""
    ranks = [0, *(_rank(matrix[: m + 1]) for m in range(len(matrix)))]
    idle = [f'"{name}"' for m, name in enumerate(symbols) if ranks[m + 1] == ranks[m]]
    return f" Bags that add nothing to those before them: {', '.join(idle)}." if idle else ""
