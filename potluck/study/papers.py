"""The tables of a paper, as data: `reproduce.toml` beside the paper's study files.

An experiment is a table or a figure. Its rows are methods and its columns settings; each cell is a
study file with overrides, in which `$name` stands for a value of the column. Beside them are the
paper's numbers, and what its text says must hold: which row is better than which, and how a row
changes along the columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from potluck.errors import PotluckError, one_of
from potluck.study.explain import about, explain
from potluck.study.runfolder import hash_of
from potluck.study.schema import Section, Study, read_study
from potluck.study.sitefile import read_toml

FILE = "reproduce.toml"
FULL = "full"
"""The scale of the paper; every other one is a [scales.NAME] table of the study files."""

Metric = Literal["accuracy", "validated", "error", "validated-error", "correspondence-error"]
Place = tuple[str, str]
"""A cell: its row and its column."""


class Settings(Section):
    """Overrides of a study file at all scales, and further ones at some."""

    overrides: list[str] = Field(default_factory=list)
    scales: dict[str, list[str]] = Field(default_factory=dict)

    def at(self, scale: str) -> list[str]:
        """The overrides at a scale."""
        return [*self.overrides, *self.scales.get(scale, ())]


class Column(Section):
    """A setting: its values replace `$name` in the overrides and file names of the rows."""

    name: str = Field(min_length=1)
    values: dict[str, str | int | float] = Field(default_factory=dict)


class Row(Settings):
    """A method: its study, and the paper's mean and deviation in each column (nan: not given).

    `goals` says for some columns how near the paper's number ours should be. A row that is
    `beyond` the paper, such as our own method, is shown, but no verdict depends on it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)

    name: str = Field(min_length=1)
    study: str
    paper: list[float] = Field(default_factory=list)
    sd: list[float] = Field(default_factory=list)
    goals: dict[str, PositiveFloat] = Field(default_factory=dict)
    beyond: bool = False

    @model_validator(mode="after")
    def _beyond_has_no_numbers(self) -> "Row":
        if self.beyond and (self.paper or self.sd or self.goals):
            raise PotluckError(
                f'row "{self.name}" is beyond the paper, so it has no paper, sd or goals; '
                "leave them out."
            )
        return self


class Ordering(Section):
    """Rows, the best first, in each of the columns (all when left out), each better by `by`."""

    rows: list[str] = Field(min_length=2)
    columns: list[str] = Field(default_factory=list)
    by: float = 0.0


class Trend(Section):
    """Columns in the order in which a row does best."""

    row: str
    columns: list[str] = Field(min_length=2)


class Near(Section):
    """Two rows that differ by no more than `within` in each column."""

    row: str
    to: str
    within: PositiveFloat
    columns: list[str] = Field(default_factory=list)


class Experiment(Settings):
    """A table or figure of a paper.

    `incomparable` says why the paper's numbers are shown but not held against ours, `note` what
    else a reader must know, and `finding` what came out, once it has been run.
    """

    name: str = Field(pattern="^[a-z0-9-]+$")
    title: str = Field(min_length=1)
    metric: Metric
    seeds: PositiveInt | None = None
    note: str = ""
    incomparable: str = ""
    finding: str = ""
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)
    orderings: list[Ordering] = Field(default_factory=list)
    trends: list[Trend] = Field(default_factory=list)
    near: list[Near] = Field(default_factory=list)

    @model_validator(mode="after")
    def _refers_to_itself(self) -> "Experiment":
        rows, columns = [row.name for row in self.rows], self.column_names
        with about(f'experiment "{self.name}"'):
            for what, names in (("row", rows), ("column", columns)):
                if len(set(names)) < len(names):
                    raise PotluckError(f"two {what}s have the same name; rename one.")
            for row in self.rows:
                for key, numbers in (("paper", row.paper), ("sd", row.sd)):
                    if len(numbers) not in (0, len(columns)):
                        raise PotluckError(
                            f'row "{row.name}": {key} has {len(numbers)} numbers for '
                            f"{len(columns)} columns; write nan where there is none."
                        )
                _all_known("column", row.goals, columns)
            for ordering in self.orderings:
                self._check_claimed(ordering.rows)
                _all_known("column", ordering.columns, columns)
            for trend in self.trends:
                self._check_claimed([trend.row])
                _all_known("column", trend.columns, columns)
            for near in self.near:
                self._check_claimed([near.row, near.to])
                _all_known("column", near.columns, columns)
        return self

    def _check_claimed(self, names: Sequence[str]) -> None:
        _all_known("row", names, [row.name for row in self.rows])
        for row in self.rows:
            if row.beyond and row.name in names:
                raise PotluckError(
                    f'row "{row.name}" is beyond the paper, which so claims nothing about it; '
                    "leave it out of orderings, trends and near."
                )

    @property
    def column_names(self) -> list[str]:
        """The settings, by name."""
        return [column.name for column in self.columns]

    def cells(self) -> Iterator[tuple[Row, Column]]:
        """All cells, row by row."""
        for row in self.rows:
            for column in self.columns:
                yield row, column

    def places(self, names: Sequence[str] = ()) -> frozenset[Place]:
        """The cells of some rows and columns.

        Args:
          names: of rows, of columns or of both; all rows when none of these is named, and likewise
                 for columns.
        """
        rows, columns = [row.name for row in self.rows], self.column_names
        with about(f'experiment "{self.name}"'):
            _all_known("row or column", names, [*rows, *columns])
        return frozenset(
            (row, column)
            for row in [name for name in rows if name in names] or rows
            for column in [name for name in columns if name in names] or columns
        )


class PaperFile(Section):
    """A paper as people write it, in TOML.

    `order` is its place among the papers, the lowest first.
    """

    title: str = Field(min_length=1)
    order: int = 0
    seeds: PositiveInt
    finding: str = ""
    experiments: list[Experiment] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> "PaperFile":
        names = [experiment.name for experiment in self.experiments]
        if len(set(names)) < len(names):
            raise PotluckError("two experiments have the same name; rename one.")
        return self


@dataclass(frozen=True)
class Paper:
    """A paper and the folder of its study files.

    Args:
      folder:  with `reproduce.toml` and the study files; its name is the paper's.
      content: what `reproduce.toml` says.
    """

    folder: Path
    content: PaperFile

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.folder.name

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name."""
        for experiment in self.content.experiments:
            if experiment.name == name:
                return experiment
        known = [experiment.name for experiment in self.content.experiments]
        raise PotluckError(f"{self.name}: {one_of('experiment', name, known)}")

    def seeds(self, experiment: Experiment) -> int:
        """How many seeds the paper has."""
        return experiment.seeds or self.content.seeds

    def study(
        self,
        experiment: Experiment,
        row: Row,
        column: Column,
        scale: str = FULL,
        seed: int = 0,
        overrides: Sequence[str] = (),
        data: Path | None = None,
    ) -> Study:
        """The study of a cell.

        Args:
          experiment: the experiment.
          row:        the method.
          column:     the setting.
          scale:      FULL, or the name of a scale of the study file.
          seed:       the seed.
          overrides:  further ones, which win over those of the paper.
          data:       the folder that has a folder for each data set; where the study file says
                      when None.
        """
        with about(f"{self.name} {experiment.name}, {row.name}, {column.name}"):
            texts = [_filled(text, column) for text in (*experiment.at(scale), *row.at(scale))]
            file = self.folder / _filled(row.study, column)
            study = read_study(
                file, (*texts, *overrides, f"seed={seed}"), None if scale == FULL else scale
            )
            return study if data is None else _moved(study, data.absolute())


def paper_names(folder: Path) -> list[str]:
    """The papers of a folder."""
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))


def read_paper(folder: Path, name: str) -> Paper:
    """Read and check the tables of a paper (not yet the studies they are made of).

    Args:
      folder: of all papers.
      name:   the paper's own folder in it.
    """
    known = paper_names(folder)
    if not known:
        raise PotluckError(
            f"{folder}: no paper here (no NAME/{FILE}). Papers come with the source of potluck, "
            "in examples/papers; say where that is with --papers DIR."
        )
    if name not in known:
        raise PotluckError(one_of("paper", name, known))
    path = folder / name / FILE
    try:
        with about(path):
            return Paper(folder / name, PaperFile.model_validate(read_toml(path)))
    except ValidationError as error:
        raise PotluckError(explain(error, PaperFile, str(path))) from None


def read_papers(folder: Path) -> list[Paper]:
    """All papers of a folder, in their order."""
    papers = [read_paper(folder, name) for name in paper_names(folder)]
    return sorted(papers, key=lambda paper: (paper.content.order, paper.name))


def read_experiments(folder: Path, names: Sequence[str]) -> list[tuple[Paper, Experiment]]:
    """The experiments that some names stand for, in the order of the names.

    Args:
      folder: of all papers.
      names:  papers, each followed by experiments of it, or by none for all of them; when empty,
              all experiments of all papers.
    """
    known = paper_names(folder)
    groups: list[tuple[Paper, list[Experiment]]] = []
    for name in names:
        if not groups or name in known:
            groups.append((read_paper(folder, name), []))
        else:
            paper, chosen = groups[-1]
            chosen.append(paper.experiment(name))
    if not names:
        groups = [(paper, []) for paper in read_papers(folder)]
    return [
        (paper, experiment)
        for paper, chosen in groups
        for experiment in chosen or paper.content.experiments
    ]


def learned(study: Study) -> str:
    """Tells studies apart by what is learned in them: not by name, place or engine.

    Tables of a paper often share cells; those are trained once.
    """
    aside = ("name", "folder", "network", "run")
    table = {key: value for key, value in study.resolved().items() if key not in aside}
    if table["simulation"] is not None:
        table["simulation"] = {**table["simulation"], "path": None}
    return hash_of(table)


def data_set(study: Study) -> tuple[str, Path | None]:
    """The data set that a study simulates with, and its folder; None for one that is built in."""
    if study.simulation is None:
        raise PotluckError("the study of a paper needs [simulation].")
    path = study.simulation.path
    return study.simulation.dataset, Path(study.folder, path) if path else None


def pairs_of(ordering: Ordering, columns: Sequence[str]) -> Iterator[tuple[Place, Place]]:
    """The cells that an ordering compares, the better one first."""
    for column in ordering.columns or columns:
        for better, worse in pairwise(ordering.rows):
            yield (better, column), (worse, column)


def _moved(study: Study, data: Path) -> Study:
    """The study with its data set in another folder."""
    simulation = study.simulation
    if simulation is None or not simulation.path:
        return study
    there = str(data / Path(simulation.path).name)
    return study.model_copy(update={"simulation": simulation.model_copy(update={"path": there})})


def _filled(text: str, column: Column) -> str:
    try:
        return Template(text).substitute(column.values)
    except (KeyError, ValueError):
        raise PotluckError(
            f'"{text}": $NAME must be a value of the column, one of: '
            f"{', '.join(column.values) or 'none'}."
        ) from None


def _all_known(what: str, names: Sequence[str] | dict[str, float], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise PotluckError(one_of(what, name, known))
