"""`stacked`: the steps of many sites as one batched step (`torch.func.vmap`).

Sites whose steps have the same shape are stacked: their vectors become one (S, P) matrix, their
samples one padded tensor, and a step of all of them one call. Batches are never padded, so
batch norm and every mean are exact: the sites whose batches have equal length step together,
and a short last batch steps by itself. Results agree with `sequential` to rounding, but for
layers that draw for themselves (dropout), whose random streams are another, equally fixed one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from potluck.engines.engine import Finished, Orders
from potluck.engines.recipe import Recipe
from potluck.engines.site_round import Fixed, Moving, Ready, finish, step
from potluck.engines.trees import (
    Tree,
    as_fixed,
    fixed_tree,
    moving_tree,
    own,
    put,
    signature,
    stack,
    take,
)
from potluck.messages import Tensors
from potluck.methods import Batch, Gradient, Objective
from potluck.streams import derive


@dataclass(frozen=True)
class Stacked:
    """Many sites at once.

    Args:
      group: at most so many; memory grows with it.
    """

    group: int = 64

    def run(self, orders: Orders) -> Iterator[Finished]:
        """Train the cohort, group by group, in order."""
        for first in range(0, len(orders.cohort), self.group):
            sites = orders.cohort[first : first + self.group]
            prepared = [orders.made_ready(site) for site in sites]
            finished = _train([ready for ready, _ in prepared if ready is not None], orders.recipe)
            for site, (_, state) in zip(sites, prepared, strict=True):
                yield finished.get(site.name, Finished(site, None, state))


def _train(sites: Sequence[Ready], recipe: Recipe) -> dict[str, Finished]:
    """Train sites of equal shape together."""
    alike: dict[Any, list[Ready]] = {}
    for ready in sites:
        alike.setdefault(signature(ready), []).append(ready)
    finished: dict[str, Finished] = {}
    for bucket in alike.values():
        for ready, (moving, loss) in zip(bucket, _steps(bucket, recipe), strict=True):
            update, state = finish(ready, moving, loss)
            finished[ready.site.name] = Finished(ready.site, update, state)
    return finished


def _steps(bucket: Sequence[Ready], recipe: Recipe) -> list[tuple[Moving, Tensor]]:
    """Take all steps of some sites of equal shape; give what moved and the mean loss of each."""
    sample = bucket[0]
    device = sample.moving.vector.device
    fixed = stack([fixed_tree(ready) for ready in bucket])
    moving = stack([moving_tree(ready.moving) for ready in bucket])
    losses = moving["vector"].new_zeros(len(bucket))
    batched = vmap(_step_of(sample.fixed), randomness="different")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        names = "\n".join(ready.site.name for ready in bucket)
        torch.manual_seed(derive(recipe.seed, sample.fixed.broadcast.round, names, "dropout"))
        for number in range(max(len(ready.batches) for ready in bucket)):
            for rows in _together(bucket, number):
                batches = [bucket[row].batches[number] for row in rows]
                batch = stack([{"index": b.index, "draws": b.draws} for b in batches])
                where = None if len(rows) == len(bucket) else torch.tensor(rows, device=device)
                moved, loss = batched(take(fixed, where), take(moving, where), batch)
                moving = moved if where is None else put(moving, where, moved)
                losses = losses + loss if where is None else losses.index_add(0, where, loss)
    return [
        (own(take(moving, torch.tensor(row)), ready), losses[row] / len(ready.batches))
        for row, ready in enumerate(bucket)
    ]


def _step_of(sample: Fixed) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tensor]]:
    """`step` for one site, as a function of trees of tensors."""

    def one(fixed: Tree, moving: Tree, batch: Tree) -> tuple[Tree, Tensor]:
        here = as_fixed(sample, fixed)
        moved, loss = step(here, Moving(**moving), Batch(**batch), functional)
        return moving_tree(moved), loss

    return one


def functional(objective: Objective, vector: Tensor, buffers: Tensors) -> Gradient:
    """Gradients that can be batched; batch-norm statistics in `buffers` move in place."""
    value, (loss, state) = grad_and_value(objective, has_aux=True)(vector, buffers)
    return Gradient(value, loss, state)


def _together(bucket: Sequence[Ready], number: int) -> list[list[int]]:
    """The sites that take step `number`, those with batches of equal length together."""
    lengths: dict[int, list[int]] = {}
    for row, ready in enumerate(bucket):
        if number < len(ready.batches):
            lengths.setdefault(len(ready.batches[number].index), []).append(row)
    return list(lengths.values())
