"""A site's tensors as nested dictionaries, so that sites can be stacked or share memory."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from potluck.engines.site_round import Fixed, Moving, Ready
from potluck.methods import Plan, SiteData

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


def signature(ready: Ready) -> Any:
    """What must be equal for sites to be stacked: all shapes but the number of samples."""
    count = len(ready.fixed.data)

    def shape(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return name, tuple(shape(key, inner) for key, inner in value.items())
        size = tuple(value.shape)
        if name == "log_a":
            return name, size[1:]
        if name == "pool":
            return name
        free = size[:1] == (count,)
        return name, value.dtype, free, size[1:] if free else size

    trees = {"fixed": fixed_tree(ready), "moving": moving_tree(ready.moving)}
    return shape("", trees)


def stack(trees: Sequence[Any], name: str = "") -> Any:
    """Trees of tensors → one tree of stacked tensors; what is shorter is padded at its end."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees], key) for key in trees[0]}
    longest = max((len(tensor) for tensor in trees if tensor.ndim), default=0)
    # A symbol that does not exist has likelihood 0; padded samples are never looked at.
    filler = float("-inf") if name == "log_a" else 0
    return torch.stack([_padded(tensor, longest, filler) for tensor in trees])


def _padded(tensor: Tensor, length: int, filler: float) -> Tensor:
    if tensor.ndim == 0 or len(tensor) == length:
        return tensor
    padding = tensor.new_full((length - len(tensor), *tensor.shape[1:]), filler)
    return torch.cat([tensor, padding])


def take(tree: Any, rows: Tensor | None) -> Any:
    """The rows of every tensor; None for all."""
    if rows is None:
        return tree
    if isinstance(tree, dict):
        return {key: take(value, rows) for key, value in tree.items()}
    return tree[rows]


def put(tree: Any, rows: Tensor, new: Any) -> Any:
    """The tree with some rows of every tensor replaced."""
    if isinstance(tree, dict):
        return {key: put(value, rows, new[key]) for key, value in tree.items()}
    return tree.index_copy(0, rows, new)


def as_fixed(sample: Fixed, tree: Tree) -> Fixed:
    """The inverse of `fixed_tree`; what is no tensor comes from `sample`."""
    return replace(
        sample,
        data=SiteData(**tree["data"]),
        plan=Plan(tree["pool"], tree["plan"]),
        broadcast=replace(sample.broadcast, **tree["broadcast"]),
        federated=tree["federated"],
    )


def own(tree: Tree, ready: Ready) -> Moving:
    """A site's share of a padded tree of what moved, without the padding."""

    def cut(padded: Any, before: Any) -> Any:
        if isinstance(padded, dict):
            return {key: cut(value, before[key]) for key, value in padded.items()}
        return (padded[: len(before)] if padded.ndim else padded).clone()

    return Moving(**cut(tree, moving_tree(ready.moving)))
