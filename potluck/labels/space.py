"""A label space: an ordered set of names that labels are written in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.labels.arrays import as_array

# How a blank cell of a table reads once it has become text.
BLANKS = frozenset(("", "none", "nan", "nat", "<na>", "null"))


@dataclass(frozen=True)
class LabelSpace:
    """Ordered, distinct names; a label is an index into them.

    The target classes of a federation are a label space, and so are the symbols that a
    site can observe (its coarse classes, its bags, its candidate sets).

    Args:
      names: at least one non-empty name, each once.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        given: object = self.names
        if isinstance(given, str):  # a text is a sequence too: of its letters
            raise PotluckError(
                f'a label space is a list of names, not the text "{given}"; write ["{given}"].'
            )
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        if not self.names:
            raise PotluckError("a label space needs at least one name; none were given.")
        if blank := [i for i, name in enumerate(self.names) if not name.strip()]:
            raise PotluckError(
                f"name number {blank[0] + 1} of the label space is empty; fill it in or remove it."
            )
        if len(self._positions) < len(self.names):
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise PotluckError(
                f"the label space names {_quoted(twice)} more than once; names must be distinct."
            )

    @classmethod
    def numbered(cls, count: int) -> "LabelSpace":
        """The names "0", "1", … for data sets whose classes are numbers."""
        return cls(tuple(str(i) for i in range(count)))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def index(self, name: str) -> int:
        """The position of a name; an unknown name is an error that suggests the nearest one."""
        try:
            return self._positions[name]
        except KeyError:
            raise PotluckError(one_of("label", name, self.names)) from None

    def encode(self, labels: Sequence[str] | Sequence[int] | np.ndarray | Tensor) -> Tensor:
        """Turn labels, written as names or as indices, into indices.

        Args:
          labels: N names, or N whole numbers in [0, len(self)).

        Returns:
          (N,) int64 indices.
        """
        values = as_array("the labels", labels)
        if values.ndim != 1:
            raise PotluckError(
                f"labels must be one value per sample, not an array of shape {values.shape}."
            )
        if values.size == 0:
            return torch.empty(0, dtype=torch.int64)
        if np.issubdtype(values.dtype, np.integer):
            return torch.from_numpy(self._checked(values.astype(np.int64)))
        if np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_:
            raise PotluckError(
                f"labels are {values.dtype} numbers; give names, or whole numbers counted from 0. "
                "(A column with blank cells is often read as such numbers.)"
            )
        distinct, inverse = np.unique(values.astype(str), return_inverse=True)
        self._check_blanks(distinct, inverse)
        positions = np.array([self.index(name) for name in distinct], dtype=np.int64)
        return torch.from_numpy(positions[inverse])

    def _checked(self, values: "np.ndarray[Any, np.dtype[np.int64]]") -> np.ndarray:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= len(self):
            wrong = low if low < 0 else high
            raise PotluckError(
                f"label index {wrong} is outside 0…{len(self) - 1}: whole numbers are positions "
                f"in the list of names, counted from 0 ({_quoted(self.names[:5])}"
                f"{', …' if len(self) > 5 else ''}). Write labels as text if they are names."
            )
        return values

    def _check_blanks(self, distinct: np.ndarray, inverse: np.ndarray) -> None:
        blank = np.array([t not in self and t.strip().lower() in BLANKS for t in distinct])
        if (missing := blank[inverse]).any():
            first = int(np.flatnonzero(missing)[0])
            raise PotluckError(
                f'sample {first} has no label: its entry reads "{distinct[inverse[first]]}" '
                f"({int(missing.sum())} such samples). Fill in the label or leave the sample out."
            )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
