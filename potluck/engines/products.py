"""Plain SGD within the products that make gradients.

The gradient of a fully connected layer's weights is a product of two small matrices, what came
back (out, B) and what went in (B, in). On a processor, writing it and reading it again to move
the weights are journeys through memory as long as the product's own. Where that is all that
happens to a gradient, the product adds itself to the weights:

    W ← W − lr · (a b)   =   W + (−lr · a) b

to rounding. A traced step (`compiled.py`) is rewritten so that it returns the factors instead of
moving such weights, and the products are taken after it, when nobody needs the old weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from potluck.engines.trees import Tree, leaves

aten = torch.ops.aten

_VIEWS = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.select.int,
)


@dataclass(frozen=True)
class Products:
    """What is left to do after a rewritten step.

    Args:
      numbers: of the weights (S, out · in) among the memory's tensors.
      shapes:  of the products (S, out, in); (out, in) where the memory is for one site.
    """

    numbers: Sequence[int]
    shapes: Sequence[torch.Size]

    def after(self, step: Callable[..., Any]) -> Callable[[Tree], None]:
        """The whole step, from the rewritten one, which returns the factors −lr · a and b."""

        def whole(memory: Tree) -> None:
            tensors = leaves(memory)
            factors = step(*tensors)
            for place, (number, shape) in enumerate(zip(self.numbers, self.shapes, strict=True)):
                add = Tensor.baddbmm_ if len(shape) == 3 else Tensor.addmm_
                add(tensors[number].view(shape), *factors[2 * place : 2 * place + 2])

        return whole


def taken_out(traced: GraphModule) -> Products:
    """Rewrite a traced step, in place, to return factors of what it would add to weights.

    Args:
      traced: made by `make_fx`: its nodes know the shapes of what they stand for.
    """
    graph, factors = traced.graph, list[Node]()
    writing = graph.find_nodes(op="call_function", target=aten.copy_.default)
    found = {node: update for node in writing if (update := _update(node)) is not None}
    for update in found.values():
        with graph.inserting_before(writing[0]):  # some weights may be factors of others
            factors += update.factors(graph)
    inputs = graph.find_nodes(op="placeholder")
    numbers = [inputs.index(_arguments(node)[0]) for node in found]
    shapes = [_value(update.product).shape for update in found.values()]
    for node in found:
        graph.erase_node(node)
    (output,) = graph.find_nodes(op="output")
    output.args = (tuple(factors),)
    graph.eliminate_dead_code()
    traced.recompile()
    return Products(numbers, shapes)


@dataclass(frozen=True)
class _Update:
    """W − lr · (a b), for those sites that take the step.

    Args:
      product: a b, (S, out, in) or (out, in).
      lr:      0-d.
      active:  (S, 1) bool; None where all do.
    """

    product: Node
    lr: Node
    active: Node | None

    def factors(self, graph: Graph) -> tuple[Node, Node]:
        """−lr · a, 0 for sites that do not take the step; and b."""
        left, right = _arguments(self.product)
        scaled = graph.call_function(aten.mul.Tensor, (self.lr, left))
        scaled = graph.call_function(aten.neg.default, (scaled,))
        if self.active is not None:
            active = graph.call_function(aten.unsqueeze.default, (self.active, -1))
            scaled = graph.call_function(aten.where.ScalarOther, (active, scaled, 0.0))
        return scaled, right


def _update(copying: Node) -> _Update | None:
    """What is written into a tensor of the memory, if it is such an update of that tensor."""
    weights, moved = _arguments(copying)
    way, active = list[Node](), None
    if _calls(moved, aten.copy.default):
        way.append(moved)
        _, moved = _arguments(moved)
    if _calls(moved, aten.where.self) and _is_all_of(_arguments(moved)[2], weights):
        way.append(moved)
        active, moved, _ = _arguments(moved)
    way += _views(moved)
    if not _calls(way[-1], aten.sub.Tensor):
        return None
    before, change = _arguments(way[-1])
    if not _is_all_of(before, weights) or not _calls(change, aten.mul.Tensor):
        return None
    lr, gradient = _arguments(change)
    way += [change, *_views(gradient)]
    product = way[-1]
    if product.target not in (aten.bmm.default, aten.mm.default):
        return None
    _, right = _arguments(product)
    # Nobody else may look at what is not made any more, and no weights may be a factor: another
    # product might have moved them by then.
    hidden = all(len(node.users) == 1 for node in way)
    if _value(lr).ndim or not hidden or not _is_all_of(gradient, product) or _is_memory(right):
        return None
    return _Update(product, lr, active)


def _views(node: Node) -> list[Node]:
    """A tensor and what it is a view of, back to the one that was made."""
    way = [node]
    while way[-1].target in _VIEWS:
        way.append(_arguments(way[-1])[0])
    return way


def _is_memory(node: Node) -> bool:
    """Whether a tensor lies in the memory, as a view of any kind."""
    while getattr(node.target, "is_view", False) or node.target in _VIEWS:
        node = _arguments(node)[0]
    return node.op == "placeholder"


def _is_all_of(node: Any, source: Node) -> bool:
    """Whether a tensor is a view of all of another one, its entries in the same order."""
    if not isinstance(node, Node) or _views(node)[-1] is not source:
        return False
    view, whole = _value(node), _value(source)
    return view.numel() == whole.numel() and view.is_contiguous() and whole.is_contiguous()


def _calls(node: Any, target: Any) -> bool:
    return isinstance(node, Node) and node.target == target


def _arguments(node: Node) -> tuple[Any, ...]:
    return node.args


def _value(node: Any) -> Tensor:
    value = node.meta["val"]
    assert isinstance(value, Tensor)
    return value
