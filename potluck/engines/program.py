"""The steps of a group of sites as a program in fixed memory, to be compiled or captured.

Sites whose steps have the same shape share a program. Its memory holds their tensors stacked,
(S, ...), and a counter; running it takes step number `counter` of all of them at once
(`torch.func.vmap`) and writes the result in place:

    batch  ← batches[counter];   moving ← step(fixed, moving, batch);   counter ← counter + 1

Batches are never padded, so batch norm and every mean are exact. Those of the usual length run
in the program; a site that has none at some step is passed over by a mask; batches of another
length (a short last one) run uncompiled in the same memory, those of neighbours together. Only
tensors that no step looks at beyond a site's own length are padded: memory is made with room to
spare, so that a program serves other sites in later rounds.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from potluck.engines.block import Block, Pairs, Still
from potluck.engines.site_round import Fixed, Moved, Moving, Ready, step
from potluck.engines.trees import (
    Lengths,
    Tree,
    as_fixed,
    batch_tree,
    copy_all,
    each,
    fixed_tree,
    in_one,
    in_parts,
    leaves,
    moving_tree,
    row,
    samples_tree,
    signature,
    stack,
)
from potluck.messages import Tensors
from potluck.methods import Batch, Gradient, Objective


@dataclass(frozen=True)
class Run:
    """Takes one step of everything in a memory.

    Args:
      step:   does it, in place.
      unread: numbers of the tensors in the memory's "fixed" that it does not look at.
    """

    step: Callable[[Tree], None]
    unread: frozenset[int] = frozenset()


Prepare = Callable[["Program"], Run]
"""Makes a program's step quicker (traced, compiled, captured) for its memory."""


_BY_SITE = ("samples", "fixed", "moving", "losses")
"""What a memory holds a row of for each site, besides the batches."""


class CannotCompileError(Exception):
    """Why a step cannot be made quicker."""


def as_it_is(program: "Program") -> Run:
    """The step, operation by operation."""
    return Run(program.advance)


@dataclass(frozen=True)
class Room:
    """What a program's memory is made for.

    Args:
      sites:   S.
      samples: rows for the samples of a site.
      symbols: rows of its codebook.
      pool:    entries of its pool.
      steps:   steps in a round.
    """

    sites: int
    samples: int
    symbols: int
    pool: int
    steps: int

    @classmethod
    def needed(cls, group: Sequence[Ready]) -> "Room":
        """What a group of sites needs."""
        lengths = [Lengths.of(ready) for ready in group]
        return cls(
            sites=len(group),
            samples=max(length.samples for length in lengths),
            symbols=max(length.symbols for length in lengths),
            pool=max(length.pool for length in lengths),
            steps=max(len(ready.batches) for ready in group),
        )

    def suits(self, need: "Room") -> bool:
        """Whether a group fits, and does not leave most of the work to nobody."""
        fits = all(getattr(self, part.name) >= getattr(need, part.name) for part in fields(Room))
        return fits and self.sites <= 2 * need.sites

    def spacious(self) -> "Room":
        """Room to spare in memory, none in work: for all but the number of sites."""
        sizes = (self.samples, self.symbols, self.pool, self.steps)
        return Room(self.sites, *map(_rounded_up, sizes))

    @property
    def lengths(self) -> Lengths:
        """Of a site's tensors."""
        return Lengths(self.samples, self.symbols, self.pool)


def _rounded_up(size: int) -> int:
    """To the next power of two, or three quarters of it."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


class Program:
    """A group's memory and its step.

    Args:
      group:   sites of equal signature, for the shapes of all tensors.
      length:  the usual length of their batches.
      room:    what the memory is made for.
      prepare: makes the step quicker.
    """

    def __init__(self, group: Sequence[Ready], length: int, room: Room, prepare: Prepare) -> None:
        first = group[0]
        self.length, self.room = length, room
        self.sample, self.sizes = first.fixed, self.sizes_of(first)
        space = Lengths.of(first), room.lengths, room.sites
        self._samples = Still(samples_tree(first), *space)
        self._fixed = Still(fixed_tree(first), *space)
        (moving,) = self._moving_trees([first])
        self._moving = Block(moving, *space)
        self.memory = self._made(first)
        self._one = _step_of(self.sample, self.sizes)
        self._run = as_it_is(self)
        self.load(group)
        self._run = prepare(self)

    def sizes_of(self, ready: Ready) -> tuple[int, ...]:
        """The parts in which the memory holds vectors: here, each is in one piece."""
        return (len(ready.moving.vector),)

    @property
    def step_key(self) -> Any:
        """The same for programs that can share a compiled step."""
        shapes = tuple((value.shape, value.dtype) for value in leaves(self.memory))
        return self.sample.recipe, self.length, shapes

    def train(self, group: Sequence[Ready]) -> tuple[list[Moved], Tensor]:
        """Take all steps of some sites.

        Returns:
          what moved of each, copied from the memory, and the (S,) sums of their steps' losses.
        """
        self.load(group)
        for number in range(max(len(ready.batches) for ready in group)):
            self.step(group, number)
        changes, personal = self._vectors(group)
        others = self._moving.copied([Lengths.of(ready) for ready in group], but="vector")
        losses = self.memory["losses"][: len(group)].clone()
        moved = zip(changes, personal, others, strict=True)
        return [Moved(change, own, **tree) for change, own, tree in moved], losses

    def _vectors(self, group: Sequence[Ready]) -> tuple[Tensor, Tensor]:
        """(S, P_s) how far each site's θ went from what it received; (S, Q) what is its own.

        Of rows of one matrix, each keeps all alive: they are for what nobody keeps.
        """
        received = [ready.fixed.broadcast.theta for ready in group]
        first, size = received[0], len(received[0])
        start = first if all(theta is first for theta in received) else torch.stack(received)
        parts = [part[: len(group)] for part in leaves(self.memory["moving"]["vector"])]
        if len(parts) == 1:
            parts = list(parts[0].split([size, sum(self.sizes) - size], 1))
        changes = first.new_empty(len(group), size)
        own = [first.new_empty(len(group), 0)]
        begin = 0
        for part in parts:
            end = begin + part.shape[1]
            if end <= size:
                torch.sub(part, start[..., begin:end], out=changes[:, begin:end])
            else:
                own.append(part)
            begin = end
        return changes, torch.cat(own, 1)

    def load(self, group: Sequence[Ready]) -> None:
        """Put some sites into the memory, at the start of their steps."""
        memory = self.memory
        pairs: Pairs = []
        # What the usual step does not look at, one on fewer samples might.
        odd = any(_size(batch) != self.length for ready in group for batch in ready.batches)
        unread = frozenset[int]() if odd else self._run.unread
        for site, ready in enumerate(group):
            pairs += self._samples.place(site, samples_tree(ready))
            pairs += self._fixed.place(site, fixed_tree(ready), unread)
        pairs += self._moving.place_all(self._moving_trees(group))
        rows = each(lambda value: value[: len(group)], memory["batches"])
        pairs += zip(leaves(rows), leaves(self._batches(group)), strict=True)
        copy_all(pairs)
        memory["active"].copy_(self._active(group), non_blocking=True)
        memory["lr"].fill_(group[0].fixed.broadcast.lr)
        memory["losses"].zero_()
        memory["number"].zero_()

    def step(self, group: Sequence[Ready], number: int) -> None:
        """Take step `number` of all sites that were loaded; the steps before it are taken."""
        lengths = [_length(ready, number) for ready in group]
        if self.length in lengths:
            self._run.step(self.memory)
        else:
            self.memory["number"] += 1
        for length, sites in groupby(range(len(group)), key=lengths.__getitem__):
            if length not in (None, self.length):
                self._odd_step(group, list(sites), number)

    def _moving_trees(self, group: Sequence[Ready]) -> list[Tree]:
        """What moves at some sites, as the memory holds it; a vector of several is parted once."""
        parts: dict[int, Any] = {}
        trees = []
        for ready in group:
            tree = moving_tree(ready.moving)
            vector = tree.pop("vector")
            if id(vector) not in parts:
                parts[id(vector)] = in_parts(vector, self.sizes)
            trees.append({"vector": parts[id(vector)], **in_parts(tree, self.sizes)})
        return trees

    def _made(self, ready: Ready) -> Tree:
        """The memory, for sites like this one."""
        sites, like = self.room.sites, ready.moving.vector
        batches = self._batches([ready])
        return {
            "fixed": self._fixed.tree,
            "samples": self._samples.tree,
            "moving": self._moving.tree,
            "batches": each(lambda value: value.new_zeros(sites, *value.shape[1:]), batches),
            "active": like.new_zeros(sites, self.room.steps, dtype=torch.bool),
            # float64, like the Python number it stands for; 0-d tensors promote no others.
            "lr": like.new_zeros((), dtype=torch.float64),
            "losses": like.new_zeros(sites),
            "number": like.new_zeros((), dtype=torch.int64),
        }

    def _batches(self, group: Sequence[Ready]) -> Tree:
        """The sites' batches, (S, steps, ...); others stand in for those of unusual length."""
        steps, there = self.room.steps, list[Tree]()
        for ready in group:
            usual = [batch for batch in ready.batches if _size(batch) == self.length]
            own = [batch if _size(batch) == self.length else usual[0] for batch in ready.batches]
            own += usual[:1] * (steps - len(own))
            there += map(batch_tree, own)
        return each(lambda rows: rows.view(len(group), steps, *rows.shape[1:]), stack(there))

    def _active(self, group: Sequence[Ready]) -> Tensor:
        """(S, steps) which sites have a batch of the usual length at which step."""
        rows = [
            [_length(ready, number) == self.length for number in range(self.room.steps)]
            for ready in group
        ]
        rows += [[False] * self.room.steps] * (self.room.sites - len(rows))
        active = torch.tensor(rows)
        # From pinned memory, so that the host need not wait for a busy GPU.
        return active.pin_memory() if self.memory["active"].is_cuda else active

    def advance(self, memory: Tree) -> None:
        """The usual step of every site of a memory, in place."""
        now = memory["number"].reshape(1)
        # index_select, since plain indexing would fetch the number from the device.
        batch = each(lambda rows: rows.index_select(1, now).squeeze(1), memory["batches"])
        active = memory["active"].index_select(1, now).squeeze(1)
        moving = memory["moving"]
        moved, loss = self._stepped(memory, batch)
        if self.room.sites > 1:
            moved = each(lambda new, old: _where(active, new, old), moved, moving)
            loss = _where(active, loss, torch.zeros_like(loss))
        each(Tensor.copy_, moving, moved)
        memory["losses"].add_(loss)
        memory["number"].add_(1)

    def _odd_step(self, group: Sequence[Ready], sites: Sequence[int], number: int) -> None:
        """The step of neighbouring sites on batches of one other length."""
        batch = stack([batch_tree(group[site].batches[number]) for site in sites])
        rows = slice(sites[0], sites[-1] + 1)
        memory = {
            **each(lambda stacked: stacked[rows], {key: self.memory[key] for key in _BY_SITE}),
            "lr": self.memory["lr"],
        }
        moved, loss = self._stepped(memory, batch)
        each(Tensor.copy_, memory["moving"], moved)
        memory["losses"].add_(loss)

    def _stepped(self, memory: Tree, batch: Tree) -> tuple[Tree, Tensor]:
        """What moves at every site of a memory after a step, and the (S,) losses of the step."""
        trees = (memory["samples"], memory["fixed"], memory["moving"], batch)
        if len(memory["losses"]) > 1:
            together = vmap(self._one, (0, 0, 0, 0, None), randomness="different")
            moved, loss = together(*trees, memory["lr"])
            return moved, loss
        samples, fixed, moving, only = (row(tree, 0) for tree in trees)
        moved, loss = self._one(samples, fixed, moving, only, memory["lr"])
        return each(lambda value: value.unsqueeze(0), moved), loss.unsqueeze(0)


AnyProgram = TypeVar("AnyProgram", bound=Program)


@dataclass(frozen=True)
class Kind:
    """What sites that share a program have in common.

    Args:
      signature: of their tensors; see `trees.signature`.
      length:    the usual length of their batches.
    """

    signature: Any
    length: int


@dataclass
class Programs(Generic[AnyProgram]):
    """The programs of an engine; made when first needed.

    Args:
      make:    makes a program from a group, the usual length of batches, room, and a `Prepare`.
      prepare: makes a program's step quicker.
      most:    so many programs are made quicker; those of rarer shapes run as they are.
      remarks: why some run as they are.
    """

    make: Callable[[Sequence[Ready], int, Room, Prepare], AnyProgram]
    prepare: Prepare
    most: int = 8
    remarks: list[str] = field(default_factory=list)
    _made: dict[Any, list[AnyProgram]] = field(default_factory=dict)

    def of(self, kind: Kind, group: Sequence[Ready], taken: Sequence[Program] = ()) -> AnyProgram:
        """A program for a group of sites of a kind, other than those that are taken."""
        need = Room.needed(group)
        known = self._made.setdefault((kind, group[0].fixed.recipe), [])
        for program in known:
            if program.room.suits(need) and not any(program is other for other in taken):
                return program
        # Memory with room to spare, unless only sites of this very size are alike.
        room = need.spacious() if kind.signature[0] is None else need
        known.append(self._new(group, kind.length, room))
        return known[-1]

    def _new(self, group: Sequence[Ready], length: int, room: Room) -> AnyProgram:
        if sum(map(len, self._made.values())) >= self.most:
            self._remark(f"sites differ so much that {self.most} programs do not cover them")
            return self.make(group, length, room, as_it_is)
        try:
            return self.make(group, length, room, self.prepare)
        except CannotCompileError as reason:
            self._remark(str(reason))
            return self.make(group, length, room, as_it_is)

    def _remark(self, reason: str) -> None:
        remark = f"{reason}; these steps run uncompiled."
        if remark not in self.remarks:
            self.remarks.append(remark)


def alike(sites: Sequence[Ready]) -> dict[Kind, list[Ready]]:
    """The sites that can share a program, together."""
    groups: dict[Kind, list[Ready]] = {}
    for ready in sites:
        groups.setdefault(Kind(signature(ready), usual_length(ready)), []).append(ready)
    return groups


def usual_length(ready: Ready) -> int:
    """The most common length of a site's batches; of equally common ones the greatest."""
    lengths = Counter(map(_size, ready.batches))
    return max(lengths, key=lambda length: (lengths[length], length))


def functional(objective: Objective, vector: Tensor, buffers: Tensors) -> Gradient:
    """Gradients that can be batched; batch-norm statistics in `buffers` move in place."""
    value, (loss, state) = grad_and_value(objective, has_aux=True)(vector, buffers)
    return Gradient(value, loss, state)


def _length(ready: Ready, number: int) -> int | None:
    """How many samples step `number` has; None where the site takes fewer steps."""
    return _size(ready.batches[number]) if number < len(ready.batches) else None


def _size(batch: Batch) -> int:
    return batch.index.shape[0]


One = Callable[[Tree, Tree, Tree, Tree, Tensor], tuple[Tree, Tensor]]
"""A site's step: (samples, what is fixed, what moves, batch, lr) → (what moved, loss)."""


def _step_of(sample: Fixed, sizes: Sequence[int]) -> One:
    """`step` for one site, as a pure function of trees of tensors, vectors in parts."""

    def one(
        samples: Tree, fixed: Tree, moving: Tree, batch: Tree, lr: Tensor
    ) -> tuple[Tree, Tensor]:
        whole = in_one(moving)
        before = {**whole, "buffers": each(Tensor.clone, whole["buffers"])}
        here = as_fixed(sample, samples, fixed, lr)
        moved, loss = step(here, Moving(**before), Batch(**batch), functional)
        return in_parts(moving_tree(moved), sizes), loss

    return one


def _where(active: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """(S, ...) the new rows of the (S,) active sites, the old ones of others."""
    return torch.where(active.view(-1, *(1,) * (new.ndim - 1)), new, old)
