"""A site's tensors as nested dictionaries, so that sites can be stacked or share memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from potluck.engines.site_round import Fixed, Moving, Ready
from potluck.methods import Batch, Plan, SiteData

Tree = dict[str, Any]
"""Nested dictionaries of tensors."""


def fixed_tree(ready: Ready) -> Tree:
    """The tensors that stay the same during a site's steps."""
    fixed, sent = ready.fixed, ready.fixed.broadcast
    tensors = ("inputs", "symbols", "log_a", "log_b", "prior")
    return {
        "data": {name: getattr(fixed.data, name) for name in tensors},
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
    return {part.name: getattr(moving, part.name) for part in fields(Moving)}


def batch_tree(batch: Batch) -> Tree:
    """The tensors of one step."""
    return {"index": batch.index, "draws": batch.draws}


def as_fixed(sample: Fixed, tree: Tree, lr: float | Tensor) -> Fixed:
    """The inverse of `fixed_tree`; what is no tensor comes from `sample`."""
    return replace(
        sample,
        data=SiteData(**tree["data"]),
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
        data = ready.fixed.data
        return cls(len(data), len(data.log_a), len(ready.fixed.plan.pool))


def signature(ready: Ready) -> Any:
    """What must be equal for sites to be stacked: all shapes and types but the lengths."""
    own = Lengths.of(ready)

    def shape(value: Tensor, free: str) -> Any:
        return value.dtype, free, tuple(value.shape[1:] if free else value.shape)

    trees = (fixed_tree(ready), moving_tree(ready.moving))
    # Where a site has as many samples as classes or symbols, shapes do not tell which tensors
    # have a row for each sample: only sites of that very size are alike.
    classes = ready.fixed.data.log_a.shape[1]
    unclear = own.samples if own.samples in (classes, own.symbols) else None
    return unclear, *(_hashable(_by_length(shape, tree, ready)) for tree in trees)


def _hashable(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tuple((key, _hashable(value)) for key, value in tree.items())
    return tree


def _free(name: str, value: Tensor, within: str, own: Lengths) -> str:
    """Which of `Lengths` a tensor's first dimension is; none: ""."""
    if name == "log_a":
        return "symbols"
    if name == "pool":
        return "pool"
    if name in ("inputs", "symbols"):
        return "samples"
    rows = within in ("plan", "method") and value.shape[:1] == (own.samples,)
    return "samples" if rows else ""


def roomy(tree: Tree, ready: Ready, lengths: Lengths, sites: int) -> Tree:
    """Memory for the trees of some sites like this one, (S, ...), with rows of some lengths."""

    def room(value: Tensor, free: str) -> Tensor:
        shape = (getattr(lengths, free), *value.shape[1:]) if free else value.shape
        return value.new_zeros(sites, *shape)

    return _by_length(room, tree, ready)


def place(memory: Tree, site: int, tree: Tree, ready: Ready) -> list[tuple[Tensor, Tensor]]:
    """Where a site's tensors go in such memory: pairs of a target and its value.

    What lies beyond a site's own lengths is never looked at, but for the codebook: a symbol that
    does not exist has likelihood 0.
    """
    pairs: list[tuple[Tensor, Tensor]] = []

    def target(value: Tensor, free: str, where: Tensor) -> None:
        here = where[site]
        if free == "symbols" and len(here) > len(value):
            here[len(value) :] = -torch.inf
        pairs.append((here[: len(value)] if free else here, value))

    _by_length(target, tree, ready, memory)
    return pairs


def _by_length(function: Callable[..., Any], tree: Tree, ready: Ready, *others: Tree) -> Any:
    """A tree of function(tensor, which of `Lengths` it has or "", tensors of other trees)."""
    own = Lengths.of(ready)

    def of(name: str, value: Any, within: str, *more: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: of(key, inner, within, *(other[key] for other in more))
                for key, inner in value.items()
            }
        return function(value, _free(name, value, within, own), *more)

    return {
        key: of(key, value, key, *(other[key] for other in others)) for key, value in tree.items()
    }


def own(memory: Tree, site: int, ready: Ready, sizes: Sequence[int]) -> Moving:
    """A site's share of the memory of what moved, copied.

    Args:
      memory: (S, ...) of all sites.
      site:   which one.
      ready:  the site.
      sizes:  the parts in which the memory holds vectors.
    """

    def cut(value: Tensor, free: str, where: Tensor) -> Tensor:
        return where[site][: len(value)] if free else where[site]

    before = moving_tree(ready.moving)
    shares = _by_length(cut, in_parts(before, sizes), ready, memory)
    copies = each(torch.empty_like, before)
    copy_all(zip(leaves(in_parts(copies, sizes)), leaves(shares), strict=True))
    return Moving(**copies)


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
    if not isinstance(tree, Mapping):
        return tree
    if 0 in tree:
        return torch.cat(list(tree.values()), -1)
    return {key: in_one(value) for key, value in tree.items()}


def stack(trees: Sequence[Any], length: int | None = None) -> Any:
    """Trees of equal shapes → one tree of stacked tensors, filled up with zeros to a length."""
    if isinstance(trees[0], Mapping):
        return {key: stack([tree[key] for tree in trees], length) for key in trees[0]}
    stacked = torch.stack(list(trees))
    return stacked if length in (None, len(trees)) else _lengthened(stacked, length, 0)


def _lengthened(tensor: Tensor, length: int, filler: float) -> Tensor:
    return torch.cat([tensor, tensor.new_full((length - len(tensor), *tensor.shape[1:]), filler)])


def each(function: Any, *trees: Any) -> Any:
    """A tree of a function of the tensors at the same place in some trees."""
    if isinstance(trees[0], Mapping):
        return {key: each(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def row(tree: Any, number: int) -> Any:
    """One site's share of a stacked tree, as views."""
    return each(lambda stacked: stacked[number], tree)


def leaves(tree: Any) -> Iterator[Tensor]:
    """All tensors of a tree, in order."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    else:
        yield tree


def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy values into targets of the same shapes, all of a type by one operation."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, value in pairs:
        targets, values = kinds.setdefault(target.dtype, ([], []))
        targets.append(target)
        values.append(value)
    for targets, values in kinds.values():
        torch._foreach_copy_(targets, values)
