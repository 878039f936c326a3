"""What is done to a vector in one piece, done to its parts.

Methods and optimisers see the model as one vector. Its gradient arrives in parts, one for each
tensor; on a processor, putting them together, updating the vector and taking it apart again are
journeys through memory that cost as much as the arithmetic. Since almost all that is done to
vectors is done entry by entry, a traced step can do it to each part,

    θ − lr · [g₁, g₂, …]   =   [θ₁ − lr · g₁, θ₂ − lr · g₂, …]

to the same bits. Whatever needs the whole vector (a norm, say) still gets it.
"""

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from potluck.engines.program import Program
from potluck.engines.site_round import Ready

aten = torch.ops.aten

Parts = tuple[Node, ...]
"""Nodes whose tensors, one after another along the last dimension, are a vector."""


class PartedProgram(Program):
    """A program whose memory holds vectors in parts, one for each tensor of the model."""

    def sizes_of(self, ready: Ready) -> tuple[int, ...]:
        """The tensors' sizes; a GPU would rather have one large tensor than many small ones."""
        if ready.moving.vector.device.type != "cpu":
            return super().sizes_of(ready)
        shapes = (*ready.fixed.network.layout.shapes, *ready.fixed.personal.shapes)
        return tuple(shape.numel() for shape in shapes)


def piecewise(traced: GraphModule) -> GraphModule:
    """Rewrite a traced step, in place, so that it handles vectors in parts.

    Args:
      traced: made by `make_fx`: its nodes know the shapes of what they stand for.
    """
    known: dict[Any, Parts] = {}
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or not node.args:
            continue
        if node.target is operator.getitem and node.args[0] in known:
            node.replace_all_uses_with(known[node.args[0]][node.args[1]])
            continue
        with traced.graph.inserting_before(node):
            if parts := _parts(traced.graph, node, node.args, known):
                known[node] = parts
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _parts(
    graph: Graph, node: Node, arguments: Sequence[Any], known: dict[Any, Parts]
) -> Parts | None:
    """The parts that a node's vector can be made of, if any."""
    source = arguments[0]
    if node.target == aten.cat.default:
        dimension = arguments[1] if len(arguments) > 1 else 0
        alike = all(part.meta["val"].dtype == node.meta["val"].dtype for part in source)
        return tuple(source) if alike and dimension in (-1, len(_shape(node)) - 1) else None
    if isinstance(source, Node) and source in known:
        if node.target == aten.slice_backward.default and _shape(node) == _shape(source):
            return known[source]
        if node.target == aten.split_with_sizes.default:
            return known[source] if list(arguments[1]) == _sizes(known[source]) else None
        if node.target == aten.slice.Tensor:
            return _between(node, known[source], *arguments[1:])
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return _entry_by_entry(graph, node, arguments, known)
    return None


def _between(
    node: Node,
    parts: Parts,
    dimension: int = 0,
    begin: int = 0,
    end: int | None = None,
    step: int = 1,
) -> Parts | None:
    """The parts that a slice of their vector is made of, where it cuts none of them."""
    bounds = [0, *accumulate(_sizes(parts))]
    end = bounds[-1] if end is None else min(end, bounds[-1])
    along = dimension in (-1, len(_shape(node)) - 1) and step == 1
    if not along or begin not in bounds or end not in bounds:
        return None
    return parts[bounds.index(begin) : bounds.index(end)]


def _entry_by_entry(
    graph: Graph, node: Node, arguments: Sequence[Any], known: dict[Any, Parts]
) -> Parts | None:
    """The parts of what an operation on vectors gives, where they are cut alike."""
    vectors = [known[value] for value in arguments if isinstance(value, Node) and value in known]
    if not vectors or any(_sizes(parts) != _sizes(vectors[0]) for parts in vectors):
        return None
    sizes = _sizes(vectors[0])
    if _shape(node) != (*_shape(vectors[0][0])[:-1], sum(sizes)):
        return None  # something larger than the vectors takes part
    columns = [_cut(graph, value, sizes, known) for value in arguments]
    return tuple(
        _called(graph, node, shares, _shape(part))
        for part, shares in zip(vectors[0], zip(*columns, strict=True), strict=True)
    )


def _cut(graph: Graph, value: Any, sizes: Sequence[int], known: dict[Any, Parts]) -> Sequence[Any]:
    """An argument's share for each part; what is the same for all entries stays as it is."""
    if not isinstance(value, Node) or not (shape := _shape(value)) or shape[-1] == 1:
        return [value] * len(sizes)
    return known[value] if value in known else _slices(graph, value, sizes)


def _slices(graph: Graph, whole: Node, sizes: Sequence[int]) -> list[Node]:
    """Views of the parts of a vector that is in one piece."""
    found, begin = [], 0
    example, last = whole.meta["val"], len(_shape(whole)) - 1
    for size in sizes:
        piece = graph.call_function(aten.slice.Tensor, (whole, last, begin, begin + size))
        piece.meta["val"] = example.narrow(last, begin, size)
        found.append(piece)
        begin += size
    return found


def _called(graph: Graph, like: Node, arguments: Sequence[Any], shape: torch.Size) -> Node:
    """The operation of a node on other arguments."""
    made = graph.call_function(like.target, tuple(arguments), like.kwargs)  # type: ignore[arg-type]
    made.meta["val"] = like.meta["val"].new_empty(shape)
    return made


def _sizes(parts: Parts) -> list[int]:
    return [_shape(part)[-1] for part in parts]


def _shape(node: Node) -> torch.Size:
    value = node.meta.get("val")
    return value.shape if isinstance(value, Tensor) else torch.Size()
