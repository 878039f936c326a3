"""Compile a program's step: trace it to tensor operations, then fuse these.

Tracing runs the step's Python once and records what it does to tensors (`make_fx`), so that any
method can be compiled, whatever Python it is written in, as long as no decision in its loss
depends on a tensor's value. What is recorded goes to `torch.compile`.
"""

import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from potluck.engines.parts import piecewise
from potluck.engines.program import CannotCompileError, Program, Run
from potluck.engines.trees import leaves, like


def traced(program: Program) -> GraphModule:
    """The program's step as one list of operations on its memory's tensors, for their shapes."""

    def of_all(*tensors: Tensor) -> None:
        program.advance(like(program.memory, tensors))

    try:
        steps = make_fx(functionalize(of_all), tracing_mode="fake")(*leaves(program.memory))
    except RuntimeError as error:  # what torch raises where a value is asked for
        raise CannotCompileError(f"the step cannot be traced: {_first_line(error)}") from error
    steps.graph.eliminate_dead_code()
    return steps


def compiled(program: Program) -> Run:
    """The program's step, compiled for memory of its shapes; what the memory holds is lost."""
    steps = traced(program)
    unread = unread_by(steps, program)
    if len(program.sizes) > 1:
        steps = piecewise(steps)
    quick = torch.compile(steps, fullgraph=True, dynamic=False)
    try:
        quick(*leaves(program.memory))
    except RuntimeError as error:  # no C++ compiler, say
        raise CannotCompileError(f"the step cannot be compiled: {_first_line(error)}") from error
    return Run(lambda memory: quick(*leaves(memory)), unread)


def unread_by(steps: GraphModule, program: Program) -> frozenset[int]:
    """Numbers of the tensors in the memory's "fixed" that a traced step does not look at."""
    tensors = (node for node in steps.graph.nodes if node.op == "placeholder")
    fixed = zip(tensors, leaves(program.memory["fixed"]), strict=False)  # the memory's first
    return frozenset(number for number, (node, _) in enumerate(fixed) if not node.users)


def _first_line(error: RuntimeError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
