"""Compile a program's step: trace it to tensor operations, then fuse these.

Tracing runs the step's Python once and records what it does to tensors (`make_fx`), so that any
method can be compiled, whatever Python it is written in, as long as no decision in its loss
depends on a tensor's value. What is recorded goes to `torch.compile`.
"""

import torch
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from potluck.engines.parts import piecewise
from potluck.engines.program import CannotCompileError, Program, Run
from potluck.engines.trees import Tree


def traced(program: Program) -> GraphModule:
    """The program's step as one list of tensor operations, for memory of its shapes."""

    def of_one(memory: Tree) -> None:  # make_fx counts a bound method's `self` as an argument
        program.advance(memory)

    try:
        return make_fx(functionalize(of_one), tracing_mode="fake")(program.memory)
    except RuntimeError as error:  # what torch raises where a value is asked for
        raise CannotCompileError(f"the step cannot be traced: {_first_line(error)}") from error


def compiled(program: Program) -> Run:
    """The program's step, compiled for memory of its shapes; what the memory holds is lost."""
    steps = traced(program)
    if len(program.sizes) > 1:
        steps = piecewise(steps)
    quick: Run = torch.compile(steps, fullgraph=True, dynamic=False)
    try:
        quick(program.memory)
    except RuntimeError as error:  # no C++ compiler, say
        raise CannotCompileError(f"the step cannot be compiled: {_first_line(error)}") from error
    return quick


def _first_line(error: RuntimeError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
