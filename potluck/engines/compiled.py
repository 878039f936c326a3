"""Compile a program's step: trace it to tensor operations, then fuse these.

Tracing runs the step's Python once and records what it does to tensors (`make_fx`), so that any
method can be compiled, whatever Python it is written in, as long as no decision in its loss
depends on a tensor's value. What is recorded goes to Inductor, the compiler of `torch.compile`,
without the part that reads Python: it would only read the same operations again, and look at every
tensor's shape before each step.
"""

import ctypes

import torch._inductor
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from potluck.engines.parts import piecewise
from potluck.engines.products import Products, taken_out
from potluck.engines.program import CannotCompileError, Program, Run
from potluck.engines.trees import leaves, refilled

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def traced(program: Program) -> GraphModule:
    """The program's step as one list of operations on its memory's tensors (`trees.leaves`)."""

    def of_tensors(*tensors: Tensor) -> None:
        program.advance(refilled(program.memory, tensors))

    try:
        return make_fx(functionalize(of_tensors), tracing_mode="fake")(*leaves(program.memory))
    except RuntimeError as error:  # what torch raises where a value is asked for
        raise CannotCompileError(f"the step cannot be traced: {_first_line(error)}") from error


def compiled(program: Program) -> Run:
    """The program's step, compiled for memory of its shapes; what the memory holds is lost."""
    steps = traced(program)
    unread = unread_by(steps, program)
    products = rewritten(steps, program)
    if not program.memory["number"].is_cuda:
        keep_freed_memory()
    try:
        quick = products.after(torch._inductor.compile(steps, leaves(program.memory)))
        quick(program.memory)
    except RuntimeError as error:  # no C++ compiler, say
        raise CannotCompileError(f"the step cannot be compiled: {_first_line(error)}") from error
    return Run(quick, unread)


def rewritten(steps: GraphModule, program: Program) -> Products:
    """Rewrite a traced step, in place, for vectors in parts; what is left to do after it."""
    if len(program.sizes) == 1:
        return Products((), ())
    return taken_out(piecewise(steps))


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees: a step's temporaries are the next one's.

    After each step, glibc would give the end of its heap back to the system, and the next step
    would have it back page by page, which took up to a quarter of the time of convolutions.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(M_MMAP_THRESHOLD, 2**30)


def unread_by(steps: GraphModule, program: Program) -> frozenset[int]:
    """Numbers of the tensors in the memory's "fixed" that a traced step makes nothing of."""
    useful = set[Node]()
    for node in reversed(steps.graph.nodes):
        acts = node.op != "placeholder" and node.is_impure()
        if acts or not useful.isdisjoint(node.users):
            useful.add(node)
    tensors = (node for node in steps.graph.nodes if node.op == "placeholder")
    fixed = zip(tensors, leaves(program.memory["fixed"]), strict=False)  # the memory's first
    return frozenset(number for number, (node, _) in enumerate(fixed) if node not in useful)


def _first_line(error: RuntimeError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
