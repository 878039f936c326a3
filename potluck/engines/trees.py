"""A site's tensors as nested dictionaries, so that sites can be stacked or share memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck.engines.site_round import Fixed, Moving, Ready
from potluck.methods import Batch, Plan, SiteData

Tree = dict[str, Any]
"""Nested dictionaries of tensors."""


def samples_tree(ready: Ready) -> Tree:
    """A site's samples, which are the same in every round."""
    return {"inputs": ready.fixed.data.inputs, "symbols": ready.fixed.data.symbols}


def fixed_tree(ready: Ready) -> Tree:
    """The other tensors that stay the same during a site's steps."""
    fixed, sent = ready.fixed, ready.fixed.broadcast
    return {
        "view": {name: getattr(fixed.data, name) for name in ("log_a", "log_b", "prior")},
        "pool": fixed.plan.pool,
        "plan": fixed.plan.tensors,
        "broadcast": {
            "theta": sent.theta,
            "buffers": sent.buffers,
            "aligned": sent.aligned,
            "shared": sent.shared,
        },
        "federated": fixed.federated,
    }


def moving_tree(moving: Moving) -> Tree:
    """The tensors that a site's steps change."""
    return dict(vars(moving))


def batch_tree(batch: Batch) -> Tree:
    """The tensors of one step."""
    return {"index": batch.index, "draws": batch.draws}


def as_fixed(sample: Fixed, samples: Tree, tree: Tree, lr: float | Tensor) -> Fixed:
    """The inverse of `samples_tree` and `fixed_tree`; what is no tensor comes from `sample`."""
    return replace(
        sample,
        data=SiteData(**samples, **tree["view"]),
        plan=Plan(tree["pool"], tree["plan"]),
        broadcast=replace(sample.broadcast, lr=lr, **tree["broadcast"]),
        federated=tree["federated"],
    )


@dataclass(frozen=True)
class Lengths:
    """How long those tensors are that differ in length from site to site.

    Args:
      samples: N, of all that has a row for each sample.
      symbols: Z, rows of the codebook.
      pool:    samples to train on.
    """

    samples: int
    symbols: int
    pool: int

    @classmethod
    def of(cls, ready: Ready) -> "Lengths":
        """A site's own."""
        data, pool = ready.fixed.data, ready.fixed.plan.pool
        return cls(data.symbols.shape[0], data.log_a.shape[0], pool.shape[0])


def signature(ready: Ready) -> Any:
    """What must be equal for sites to be stacked: all names, shapes and types but the lengths."""
    own = Lengths.of(ready)
    # Where a site has as many samples as classes or symbols, shapes do not tell which tensors
    # have a row for each sample: only sites of that very size are alike.
    unclear = own.samples if own.samples in (ready.fixed.data.log_a.shape[1], own.symbols) else None
    found: list[Any] = [unclear]
    for tree in (samples_tree(ready), fixed_tree(ready), moving_tree(ready.moving)):
        for name, value in tree.items():
            _describe(name, value, name, own, found)
    return tuple(found)


def _describe(name: str, value: Any, within: str, own: Lengths, found: list[Any]) -> None:
    """Add names, types and shapes to a flat list, which is quicker to make than a tree."""
    found.append(name)
    if isinstance(value, dict):
        for key, inner in value.items():
            _describe(key, inner, within, own, found)
        found.append(len(value))
        return
    kind = _kind(name, value, within, own)
    found += (value.dtype, kind, value.shape[1:] if kind else value.shape)


def kinds(tree: Tree, own: Lengths) -> Tree:
    """Which of `Lengths` the first dimension of each tensor of a site's tree is; none: ""."""
    return {key: _kinds(key, value, key, own) for key, value in tree.items()}


def _kinds(name: str, value: Any, within: str, own: Lengths) -> Any:
    if isinstance(value, dict):
        return {key: _kinds(key, inner, within, own) for key, inner in value.items()}
    return _kind(name, value, within, own)


def _kind(name: str, value: Tensor, within: str, own: Lengths) -> str:
    if name == "log_a":
        return "symbols"
    if name == "pool":
        return "pool"
    if name in ("inputs", "symbols"):
        return "samples"
    rows = within in ("plan", "method") and value.shape[:1] == (own.samples,)
    return "samples" if rows else ""


def in_parts(tree: Any, sizes: Sequence[int]) -> Any:
    """A tree whose vectors (..., P) of all the sizes together are dictionaries {0: part, 1: ...}.

    Several vectors of one size, each part by part: a program that updates them reads and writes
    whole tensors, which lie as the processor likes them. A single size leaves all as it is.
    """
    whole = sum(sizes)

    def parted(value: Tensor) -> Any:
        if len(sizes) == 1 or value.shape[-1:] != (whole,):
            return value
        return dict(enumerate(value.split(list(sizes), -1)))

    return each(parted, tree)


def in_one(tree: Any) -> Any:
    """The inverse of `in_parts`."""
    if not isinstance(tree, dict):
        return tree
    if 0 in tree:
        return torch.cat(list(tree.values()), -1)
    return {key: in_one(value) for key, value in tree.items()}


def stack(trees: Sequence[Any]) -> Any:
    """Trees of equal shapes → one tree of stacked tensors."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
    return torch.stack(list(trees))


def each(function: Any, *trees: Any) -> Any:
    """A tree of a function of the tensors at the same place in some trees."""
    if isinstance(trees[0], dict):
        return {key: each(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def row(tree: Any, number: int) -> Any:
    """One site's share of a stacked tree, as views."""
    return each(lambda stacked: stacked[number], tree)


def leaves(tree: Any) -> list[Any]:
    """All tensors of a tree, or whatever it holds, in order."""
    if not isinstance(tree, dict):
        return [tree]
    found = []
    for value in tree.values():
        if isinstance(value, dict):
            found += leaves(value)
        else:
            found.append(value)
    return found


def refilled(tree: Tree, values: Iterable[Any]) -> Tree:
    """A tree like another one, of other values in the order of `leaves`."""
    following = iter(values)
    filled: Tree = each(lambda _: next(following), tree)
    return filled


def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy values into targets of the same shapes, all of a type by one operation."""
    types: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, value in pairs:
        targets, values = types.setdefault(target.dtype, ([], []))
        targets.append(target)
        values.append(value)
    for targets, values in types.values():
        torch._foreach_copy_(targets, values)
