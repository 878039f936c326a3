"""Fixed memory for the tensors of some sites, stacked.

Sites that are alike have trees (`trees.py`) with the same keys, and tensors of the same types and
shapes but for their `Lengths`: a block has a row for each site, with room for the longest.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from potluck.engines.trees import Lengths, Tree, copy_all, each, kinds, leaves, row

Pairs = list[tuple[Tensor, Tensor]]
"""Targets, and the values of the same shape that belong there."""


class Block:
    """The trees of S sites, (S, ...) each tensor.

    Args:
      tree:    of one of the sites.
      lengths: that site's.
      room:    the lengths to make room for.
      sites:   S.
    """

    def __init__(self, tree: Tree, lengths: Lengths, room: Lengths, sites: int) -> None:
        def made(value: Tensor, kind: str) -> Tensor:
            shape = (getattr(room, kind), *value.shape[1:]) if kind else value.shape
            return value.new_zeros(sites, *shape)

        self._kinds = kinds(tree, lengths)
        self.tree: Tree = each(made, tree, self._kinds)
        self._rows = [row(self.tree, site) for site in range(sites)]
        # In order, since a round walks through them for every site.
        self._order = leaves(self._kinds)
        self._stacked = leaves(self.tree)
        self._targets = [leaves(one) for one in self._rows]

    def place(self, site: int, tree: Tree, unread: Collection[int] = ()) -> Pairs:
        """Where a site's tensors go, to be copied.

        What lies beyond a site's own lengths is never looked at, but for the codebook: a symbol
        that does not exist has likelihood 0.

        Args:
          site:   which row.
          tree:   what goes there.
          unread: numbers of tensors that nobody looks at.
        """
        return self._place(site, dict(enumerate(leaves(tree))), unread)

    def _place(self, site: int, tensors: Mapping[int, Tensor], unread: Collection[int]) -> Pairs:
        """Where tensors go, by number; see `place`."""
        pairs: Pairs = []
        targets = self._targets[site]
        for number, value in tensors.items():
            if number in unread:
                continue
            here = targets[number]
            if here.shape != value.shape:
                if self._order[number] == "symbols":
                    here[value.shape[0] :] = -torch.inf
                here = here[: value.shape[0]]
            pairs.append((here, value))
        return pairs

    def place_all(self, trees: Sequence[Tree]) -> Pairs:
        """Where the tensors of the first sites go; what all of them share is copied here at once.

        Args:
          trees: of each of these sites.
        """
        pairs: Pairs = []
        for number, values in enumerate(zip(*map(leaves, trees), strict=True)):
            first, stacked = values[0], self._stacked[number]
            if not self._order[number] and all(value is first for value in values):
                stacked[: len(trees)].copy_(first)
                continue
            for site, value in enumerate(values):
                here = self._targets[site][number]
                pairs.append((here if here.shape == value.shape else here[: len(value)], value))
        return pairs

    def share(self, site: int, lengths: Lengths) -> Tree:
        """A site's tree in the memory itself, cut to its own lengths."""

        def cut(value: Tensor, kind: str) -> Tensor:
            return value[: getattr(lengths, kind)] if kind else value

        found: Tree = each(cut, self._rows[site], self._kinds)
        return found

    def copied(self, lengths: Sequence[Lengths], but: str) -> list[Tree]:
        """Copies of the first sites' trees; vectors held in parts are in one piece.

        Args:
          lengths: the sites' own.
          but:     the key of what is not wanted.
        """
        pairs: Pairs = []

        def copy(tree: Any) -> Any:
            if isinstance(tree, Tensor):
                pairs.append((torch.empty_like(tree), tree))
                return pairs[-1][0]
            if 0 in tree:
                return torch.cat(list(tree.values()), -1)
            return {key: copy(value) for key, value in tree.items() if key != but}

        made = [copy(self.share(site, own)) for site, own in enumerate(lengths)]
        copy_all(pairs)
        return made


class Still(Block):
    """A block that no step changes: what lies there from the round before is not copied again."""

    def __init__(self, tree: Tree, lengths: Lengths, room: Lengths, sites: int) -> None:
        super().__init__(tree, lengths, room, sites)
        self._there: list[dict[int, Tensor]] = [{} for _ in range(sites)]

    def place(self, site: int, tree: Tree, unread: Collection[int] = ()) -> Pairs:
        """Where those of a site's tensors go that are not there yet; see `Block.place`."""
        there = self._there[site]
        new = {n: value for n, value in enumerate(leaves(tree)) if there.get(n) is not value}
        there.update((n, value) for n, value in new.items() if n not in unread)
        return self._place(site, new, unread)
