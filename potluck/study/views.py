"""The view that a site declares in its file, for labels it really has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from potluck.data.readers.tables import read_table
from potluck.errors import PotluckError
from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidate_mask,
    candidates,
    coarse,
    exact,
    noisy,
    private_subset,
    subset,
    unlabeled,
)

Matrix = list[list[float]]


class Declared(BaseModel):
    """What every declared view has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Exact(Declared):
    """The label names the target class."""

    kind: Literal["exact"]

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        return exact(space), labels


class Coarse(Declared):
    """The label is of another space; `mapping` says which target classes each label covers.

    Instead of a mapping, `matrix` gives P(label | class) with one row per label in `labels`.
    """

    kind: Literal["coarse"]
    mapping: dict[str, list[str]] | None = None
    matrix: Matrix | None = None
    labels: list[str] | None = None

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        if (self.mapping is None) == (self.matrix is None):
            raise PotluckError("view: a coarse view needs either a mapping or a matrix.")
        if self.mapping is not None:
            return coarse(space, self.mapping), labels
        return coarse(space, self.matrix, self.labels), labels


class Noisy(Declared):
    """The label names the target class, but errs with P(written | true) = matrix."""

    kind: Literal["noisy"]
    matrix: Matrix

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        return noisy(space, self.matrix), labels


class Bags(Declared):
    """The label names the bag; `priors` is a table of the class proportions of each bag.

    `priors` is a CSV or Parquet file with a column `bag` and one column per target class, or
    {bag = [proportions in the order of the target classes]}.
    """

    kind: Literal["bags"]
    priors: str | dict[str, list[float]]
    target_prior: list[float] | None = None
    minimum_rank: int | None = None
    maximum_condition: float = 1e4

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        names, priors = self._table(space, folder)
        known = LabelSpace(tuple(names))
        present = np.asarray(labels).astype(str)
        for name in np.unique(present):
            if name not in known:
                raise PotluckError(
                    f'bag "{name}" occurs in the data but not in the priors table; '
                    f"add its class proportions (known bags: {', '.join(names[:10])})."
                )
        sizes = [int((present == name).sum()) for name in names]
        view = bags(
            space,
            priors,
            sizes=sizes,
            target_prior=self.target_prior,
            names=names,
            minimum_rank=self.minimum_rank,
            maximum_condition=self.maximum_condition,
        )
        return view, present

    def _table(self, space: LabelSpace, folder: Path) -> tuple[Sequence[str], Any]:
        if isinstance(self.priors, dict):
            return list(self.priors), list(self.priors.values())
        table = read_table(folder / self.priors, features=space.names, label="bag")
        assert table.labels is not None
        return [str(name) for name in table.labels], table.features.double()


class Candidates(Declared):
    """The label is a set of class names joined by `separator`, or a row of a 0/1 matrix."""

    kind: Literal["candidates"]
    separator: str = "|"

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        values = np.asarray(labels)
        mask = values if values.ndim == 2 else candidate_mask(space, values, self.separator)
        return candidates(space, mask), mask


class Subset(Declared):
    """Only these classes occur here; private = true keeps secret from other sites which."""

    kind: Literal["subset"]
    classes: list[str]
    private: bool = False

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        make = private_subset if self.private else subset
        return make(space, self.classes), labels


class Unlabeled(Declared):
    """Nothing is known about any sample."""

    kind: Literal["unlabeled"]

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view; labels, if there are any, are not looked at."""
        return unlabeled(space), None


DeclaredView = Annotated[
    Exact | Coarse | Noisy | Bags | Candidates | Subset | Unlabeled, Field(discriminator="kind")
]
