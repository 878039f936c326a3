"""The view that a site declares in its file, for labels it really has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from potluck.data.readers.candidates import read_candidates
from potluck.data.readers.tables import read_table
from potluck.errors import PotluckError, one_of
from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidate_mask,
    candidates,
    coarse,
    exact,
    noisy,
    unlabeled,
)
from potluck.labels.subset import Softmax, declared_subset
from potluck.study.explain import about

Matrix = list[list[float]]


class Declared(BaseModel):
    """What every declared view has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def reads_labels(self) -> bool:
        """Whether the labels are in the site's data."""
        return True


class Exact(Declared):
    """The label names the target class."""

    kind: Literal["exact"]

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        _check_written(
            labels,
            space,
            "Correct the label, or declare what the site's own labels mean with a view of kind "
            "coarse.",
        )
        return exact(space), labels


class Coarse(Declared):
    """The label is of another space; `mapping` says which target classes each label covers.

    Instead of a mapping, `matrix` gives P(label | class) with one row per label in `labels`.
    `labels` alone names labels whose meaning nobody wrote down: FedMT estimates it.
    """

    kind: Literal["coarse"]
    mapping: dict[str, list[str]] | None = None
    matrix: Matrix | None = None
    labels: list[str] | None = None

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        if self.mapping is None and self.matrix is None and self.labels:
            # As far as anybody knows, every label is as likely under one class as under another.
            unknown = np.full((len(self.labels), len(space)), 1 / len(self.labels))
            return coarse(space, unknown, self.labels), labels
        if (self.mapping is None) == (self.matrix is None):
            found = "neither is" if self.mapping is None else "both are"
            raise PotluckError(
                "a coarse view needs either view.mapping (which classes each label covers) or "
                f"view.matrix; {found} given."
            )
        if self.mapping is None:
            return coarse(space, self.matrix, self.labels), labels
        if self.labels is not None:
            raise PotluckError("view.labels names the rows of a matrix; leave it out of a mapping.")
        view = coarse(space, self.mapping)
        remedy = "Add the label to view.mapping with the target classes that it covers."
        _check_written(labels, view.symbols, remedy)
        return view, labels


class Noisy(Declared):
    """The label names the target class, but errs with P(written | true) = matrix."""

    kind: Literal["noisy"]
    matrix: Matrix

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        _check_written(labels, space, "Correct the label; noisy labels are target classes too.")
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
        with about("view.priors"):
            names, priors = self._table(space, folder)
            known = LabelSpace(tuple(names))
        present = np.asarray(labels).astype(str)
        for name in np.unique(present):
            if name not in known:
                raise PotluckError(
                    f'bag "{name}" occurs in the data but not in view.priors; '
                    f"add its class proportions (known bags: {', '.join(names[:10])})."
                )
        sizes = [int((present == name).sum()) for name in names]
        if 0 in sizes:
            raise PotluckError(
                f'view.priors has bag "{names[sizes.index(0)]}", but no sample is in it; remove '
                "the bag, or check how its name is written in the data."
            )
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
    """The label is a set of class names joined by `separator`, or a row of a 0/1 matrix.

    The matrix has a row for each sample and a column for each target class. It is the label
    array of the data itself, or the file `matrix`: a SciPy sparse matrix or a dense array
    (.npz, .npy), or a table with a column named after each class.
    """

    kind: Literal["candidates"]
    separator: str = Field(default="|", min_length=1)
    matrix: str | None = None

    @property
    def reads_labels(self) -> bool:
        """Whether the labels are in the site's data."""
        return self.matrix is None

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        if self.matrix is not None:
            with about("view.matrix"):
                mask: Any = read_candidates(folder / self.matrix, space.names)
                return candidates(space, mask), mask
        values = np.asarray(labels)
        with about(f'candidates, separated by "{self.separator}" (view.separator)'):
            mask = values if values.ndim == 2 else candidate_mask(space, values, self.separator)
        return candidates(space, mask), mask


class Subset(Declared):
    """Only these classes occur here; private = true keeps secret from other sites which.

    softmax = "own" compares a label with the site's classes only, "all" with all target classes.
    """

    kind: Literal["subset"]
    classes: list[str]
    private: bool = False
    softmax: Softmax = "own"

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view, and the labels as it reads them."""
        with about("view.classes"):
            view = declared_subset(space, self.classes, self.private, self.softmax)
        remedy = "Add the class to view.classes, or leave these samples out."
        _check_written(labels, view.symbols, remedy)
        return view, labels


class Unlabeled(Declared):
    """Nothing is known about any sample."""

    kind: Literal["unlabeled"]

    @property
    def reads_labels(self) -> bool:
        """Whether the labels are in the site's data."""
        return False

    def view(self, space: LabelSpace, labels: Any, folder: Path) -> tuple[LabelView, Any]:
        """The view; labels, if there are any, are not looked at."""
        return unlabeled(space), None


DeclaredView = Annotated[
    Exact | Coarse | Noisy | Bags | Candidates | Subset | Unlabeled, Field(discriminator="kind")
]


def _check_written(labels: Any, known: LabelSpace, remedy: str) -> None:
    """Refuse labels that the view does not know, and say how often they occur.

    Blank labels, and numbers that count from 0, are judged where labels are encoded.
    """
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "US":
        return
    for name in np.unique(values):
        if str(name) not in known and str(name).strip():
            rows = np.flatnonzero(values == name)
            raise PotluckError(
                f"{one_of('label', name, known)} It stands in {len(rows)} of {len(values)} "
                f"samples, first in number {rows[0] + 1}. {remedy}"
            )
