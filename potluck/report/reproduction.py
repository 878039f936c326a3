"""The paper's table beside ours: gaps, what its text claims, and a verdict in words.

A cell is reproduced when its mean over seeds is as near the paper's as its goal says; without a
goal, within one point or one of the paper's standard deviations, whichever is more. Claims compare
means over seeds. The rules are the same for every paper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isnan
from pathlib import Path
from statistics import mean

from potluck.history import Record
from potluck.report.metrics import METRICS
from potluck.report.statistics import deviation
from potluck.report.tables import Table
from potluck.study.papers import FULL, Experiment, Paper, Place, pairs_of
from potluck.study.reproduction import Results

REPRODUCED = "reproduced"
ORDERING = "ordering only"
FAILED = "not reproduced"
NOT_RUN = "not run"
MISSING = "–"

POINT = 1.0
"""How far from the paper's number ours may be, at least."""


@dataclass(frozen=True)
class Cell:
    """A number of the paper and ours.

    Args:
      place:  row and column.
      paper:  the paper's mean; None where it gives none, or at another scale.
      sd:     the paper's standard deviation over seeds; None where it gives none.
      goal:   how near ours should be; None for the common rule.
      scores: ours, by seed.
    """

    place: Place
    paper: float | None
    sd: float | None
    goal: float | None
    scores: Mapping[int, float]

    @property
    def mean(self) -> float | None:
        """Ours over the seeds; None when it was not run."""
        return mean(self.scores.values()) if self.scores else None

    @property
    def gap(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    @property
    def tolerance(self) -> float:
        """The gap that still counts as reproduced."""
        return max(POINT, self.sd or 0.0) if self.goal is None else self.goal

    @property
    def near(self) -> bool:
        """Whether ours is as near the paper's number as it should be."""
        return self.gap is not None and abs(self.gap) <= self.tolerance


@dataclass(frozen=True)
class Comparison:
    """A claim about two cells.

    Args:
      where: in which setting.
      cells: the two.
      holds: whether it holds for the means; None while one of them was not run.
      seeds: for how many seeds it holds, and how many both have.
    """

    where: str
    cells: tuple[Place, Place]
    holds: bool | None
    seeds: tuple[int, int]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and whether it holds in each setting."""

    text: str
    comparisons: tuple[Comparison, ...]

    @property
    def line(self) -> str:
        """The claim and what became of it."""
        known = [one for one in self.comparisons if one.holds is not None]
        if not known:
            return f"{self.text}: {NOT_RUN}"
        held = sum(bool(one.holds) for one in known)
        seeds = [sum(one.seeds[i] for one in known) for i in (0, 1)]
        said = f"{self.text}: holds in {held} of {len(known)} ({seeds[0]} of {seeds[1]} by seed)"
        if broken := [one.where for one in known if not one.holds]:
            said += f"; not for {', '.join(broken)}"
        missing = len(self.comparisons) - len(known)
        return f"{said}; {missing} {NOT_RUN}" if missing else said


@dataclass(frozen=True)
class Reproduction:
    """An experiment and what came of it.

    Args:
      paper:      the paper.
      experiment: one of its experiments.
      scale:      the scale; the paper's numbers count at the full one only.
      results:    what was run; None when nothing was.
    """

    paper: Paper
    experiment: Experiment
    scale: str
    results: Results | None

    @cached_property
    def cells(self) -> dict[Place, Cell]:
        """All cells, row by row."""
        metric = self.experiment.metric
        scores = {} if self.results is None else self.results.values(metric)
        names = self.experiment.column_names
        found = {}
        for row, column in self.experiment.cells():
            place, at = (row.name, column.name), names.index(column.name)
            numbers = _number(row.paper, at), _number(row.sd, at)
            paper, sd = numbers if self.scale == FULL else (None, None)
            found[place] = Cell(place, paper, sd, row.goals.get(column.name), scores.get(place, {}))
        return found

    @cached_property
    def claims(self) -> list[Claim]:
        """What the paper says of its numbers, held against ours."""
        return [
            Claim(text, tuple(self._compared(where, cells, least, most) for where, cells in pairs))
            for text, pairs, least, most in _claims(self.experiment)
        ]

    @cached_property
    def counted(self) -> list[Cell]:
        """The cells that the paper has, too."""
        own = [(row, column) for row, column in self.experiment.cells() if not row.beyond]
        return [self.cells[row.name, column.name] for row, column in own]

    @property
    def done(self) -> int:
        """How many of the paper's cells have at least one seed."""
        return sum(bool(cell.scores) for cell in self.counted)

    @property
    def judged(self) -> list[Cell]:
        """The cells that can be held against the paper's numbers."""
        if self.experiment.incomparable:
            return []
        return [cell for cell in self.counted if cell.gap is not None]

    @property
    def verdict(self) -> str:
        """Of the whole experiment, or of what was run of it."""
        if not self.done:
            return NOT_RUN
        return self._verdict if self.done == len(self.counted) else f"{self._verdict} so far"

    @property
    def _verdict(self) -> str:
        held = [one.holds for claim in self.claims for one in claim.comparisons]
        known = [holds for holds in held if holds is not None]
        if not all(known):
            return FAILED
        if self.judged and all(cell.near for cell in self.judged):
            return REPRODUCED
        return ORDERING if known else FAILED if self.judged else MISSING

    def verdict_of(self, cell: Cell) -> str:
        """Of one cell: by its number, else by the claims that it is part of."""
        if not cell.scores:
            return NOT_RUN
        if cell in self.judged and cell.near:
            return REPRODUCED
        own = [
            one.holds
            for claim in self.claims
            for one in claim.comparisons
            if cell.place in one.cells and one.holds is not None
        ]
        if own and all(own):
            return ORDERING
        return FAILED if own or cell in self.judged else MISSING

    def table(self) -> Table:
        """Paper and ours side by side; ours alone where the paper has no numbers."""
        metric = METRICS[self.experiment.metric]
        seeds = {len(cell.scores) for cell in self.cells.values() if cell.scores}
        over = f"{min(seeds)}–{max(seeds)}" if len(seeds) > 1 else str(max(seeds, default=0))
        caption = f"{metric.title}; ours: mean ± sd over {over} seed{'s' * (over != '1')}"
        if all(cell.paper is None for cell in self.cells.values()):
            return self._ours(caption)
        rows = [
            [
                *cell.place,
                _shown(cell.paper, cell.sd, metric.digits + 1),
                self._score(cell),
                MISSING if cell.gap is None else f"{cell.gap:+.{metric.digits + 1}f}",
                self.verdict_of(cell),
            ]
            for cell in self.cells.values()
        ]
        return Table(["method", "setting", "paper", "ours", "gap", "verdict"], rows, caption)

    def _ours(self, caption: str) -> Table:
        names = self.experiment.column_names
        rows = [
            [row.name, *(self._score(self.cells[row.name, name]) for name in names)]
            for row in self.experiment.rows
        ]
        return Table(["method", *names], rows, caption)

    def _score(self, cell: Cell) -> str:
        digits = METRICS[self.experiment.metric].digits + 1
        sd = deviation(list(cell.scores.values())) if len(cell.scores) > 1 else None
        return _shown(cell.mean, sd, digits)

    def _compared(
        self, where: str, places: tuple[Place, Place], least: float, most: float
    ) -> Comparison:
        """Whether the first cell is better than the second by more than `least`, up to `most`."""
        sign = 1 if METRICS[self.experiment.metric].rising else -1
        first, second = (self.cells[place] for place in places)

        def holds(one: float, other: float) -> bool:
            return least < sign * (one - other) <= most

        both = [seed for seed in first.scores if seed in second.scores]
        held = sum(holds(first.scores[seed], second.scores[seed]) for seed in both)
        means = first.mean, second.mean
        known = None if means[0] is None or means[1] is None else holds(means[0], means[1])
        return Comparison(where, places, known, (held, len(both)))


def measured(history: Sequence[Record]) -> dict[str, float]:
    """Every number of a run that its history has, by metric, in the unit for people."""
    found = {name: metric.of(history) for name, metric in METRICS.items() if name != "seconds"}
    return {
        name: METRICS[name].factor * value for name, value in found.items() if value is not None
    }


def reproductions(
    papers: Sequence[Paper], files: Mapping[Path, Results], scale: str = FULL
) -> list[Reproduction]:
    """All experiments of papers, with the results that there are at a scale."""
    found = {(one.paper, one.experiment, one.scale): one for one in files.values()}
    return [
        Reproduction(paper, experiment, scale, found.get((paper.name, experiment.name, scale)))
        for paper in papers
        for experiment in paper.content.experiments
    ]


def page(found: Sequence[Reproduction]) -> str:
    """The page of all papers, as Markdown; nothing but what the results and descriptions say."""
    papers = list({one.paper.name: one.paper for one in found}.values())
    lessons = [
        f"- {paper.content.title}: {paper.content.finding}"
        for paper in papers
        if paper.content.finding
    ]
    run = [one for one in found if one.results is not None]
    parts = [
        _HEAD,
        Table(
            ["experiment", "verdict", "claims that hold", "cells run", "training time"],
            [_summary(one) for one in found],
        ).markdown(),
        *(["## What we learned\n", "\n".join(lessons) + "\n"] if lessons else []),
    ]
    for paper in papers:
        own = [one for one in run if one.paper.name == paper.name]
        if own:
            parts.append(f"## {paper.content.title}\n")
            parts.extend(_section(one) for one in own)
    return "\n".join(parts)


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


_HEAD = f"""\
# What came out

<!-- Made by: potluck reproduce --page docs/reproduction.md. Do not edit: change
     examples/papers/*/reproduce.toml, or run the experiments. -->

The experiments of five papers at the papers' own scale, from the study files in
`examples/papers/`. Each line is a table or a figure; `potluck reproduce PAPER EXPERIMENT` runs it,
and goes on where it was stopped.

- *{REPRODUCED}*: every claim holds, and every number is within its goal of the paper's (one point
  or one of the paper's standard deviations, whichever is more, where no goal is stated).
- *{ORDERING}*: every claim holds, but numbers differ by more, or the paper has none to compare
  with.
- *{FAILED}*: a claim does not hold, or numbers differ and there is no claim.
- *{NOT_RUN}*: there are no results yet.

A claim is something that the paper says of its numbers, such as which method is better. It holds if
it holds for the means over seeds. The model after the last round is reported, or the best round in
validation where the paper does so; nothing is chosen by test samples. All models start at random.
Rows that the paper does not have, such as our own method, count neither as cells nor in verdicts.
"""


def _section(one: Reproduction) -> str:
    experiment, results = one.experiment, one.results
    lines = [f"### {experiment.title}\n", f"**{one.verdict}**: {_reason(one)}\n"]
    lines += [f"{text}\n" for text in (experiment.finding, experiment.note) if text]
    table = one.table()
    lines += [table.markdown(), f"{table.caption}.\n"]
    if one.claims:
        lines.append("\n".join(f"- {claim.line}." for claim in one.claims) + "\n")
    if results is not None:
        if results.overrides:
            lines.append(f"Not as in the paper: `{'`, `'.join(results.overrides)}`.\n")
        where = "; ".join(dict.fromkeys(session.hardware for session in results.sessions))
        lines.append(
            f"`potluck reproduce {one.paper.name} {experiment.name}`, "
            f"{duration(results.seconds)} of training in all ({where}). {_slowest(one, results)}\n"
        )
    return "\n".join(lines)


def _reason(one: Reproduction) -> str:
    """Why the verdict is what it is."""
    near = sum(cell.near for cell in one.judged)
    reasons = [
        f"{near} of {len(one.judged)} numbers are as near as they should be"
        if one.judged
        else one.experiment.incomparable or "the paper gives no numbers",
        f"{_held(one)} comparisons hold" if one.claims else "",
        "" if one.done == len(one.counted) else f"{one.done} of {len(one.counted)} cells were run",
    ]
    return "; ".join(filter(None, reasons)) + "."


def _slowest(one: Reproduction, results: Results) -> str:
    """Seconds of a run of each method, from the fastest setting to the slowest."""
    texts = []
    for row in one.experiment.rows:
        seconds = [run.seconds for run in results.runs if run.row == row.name]
        if seconds:
            low, high = duration(min(seconds)), duration(max(seconds))
            texts.append(f"{row.name} {low if low == high else f'{low} to {high}'}")
    return f"A run takes: {', '.join(texts)}."


def _summary(one: Reproduction) -> list[str]:
    time = MISSING if one.results is None else duration(one.results.seconds)
    name = f"{one.paper.name} {one.experiment.name}"
    return [name, one.verdict, _held(one), f"{one.done} of {len(one.counted)}", time]


def _held(one: Reproduction) -> str:
    known = [c.holds for claim in one.claims for c in claim.comparisons if c.holds is not None]
    return f"{sum(known)} of {len(known)}" if known else MISSING


Pairs = list[tuple[str, tuple[Place, Place]]]


def _claims(experiment: Experiment) -> Iterator[tuple[str, Pairs, float, float]]:
    """Each claim in words, its pairs of cells, and by how much the first must be better."""
    columns, infinity = experiment.column_names, float("inf")
    for ordering in experiment.orderings:
        text = " better than ".join(ordering.rows)
        if ordering.by > 0:
            text += f" by more than {ordering.by:g}"
        elif ordering.by < 0:
            text = f"{' at least as good as '.join(ordering.rows)}, up to {-ordering.by:g}"
        pairs = [
            (_where(first, second, ordering.rows), (first, second))
            for first, second in pairs_of(ordering, columns)
        ]
        yield text, pairs, ordering.by, infinity
    for trend in experiment.trends:
        places = [(trend.row, column) for column in trend.columns]
        steps = [(f"{a[1]} against {b[1]}", (a, b)) for a, b in pairwise(places)]
        yield f"{trend.row}, best first: {', '.join(trend.columns)}", steps, 0.0, infinity
    for near in experiment.near:
        text = f"{near.row} within {near.within:g} of {near.to}"
        both = [(name, ((near.row, name), (near.to, name))) for name in near.columns or columns]
        yield text, both, -near.within, near.within


def _where(first: Place, second: Place, rows: Sequence[str]) -> str:
    """The setting of a comparison, and the two rows where there are more."""
    column = first[1]
    return column if len(rows) == 2 else f"{column} ({first[0]} against {second[0]})"


def _number(numbers: Sequence[float], at: int) -> float | None:
    return None if not numbers or isnan(numbers[at]) else numbers[at]


def _shown(value: float | None, sd: float | None, digits: int) -> str:
    if value is None:
        return MISSING
    text = f"{value:.{digits}f}"
    return text if sd is None else f"{text} ± {sd:.{digits}f}"
