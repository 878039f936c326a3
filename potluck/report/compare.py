"""Compare runs: settings with several seeds each, their means, deviations and paired tests.

Runs are grouped by what differs in their resolved studies, apart from the seed and from what does
not change what is learned (the folder, and [run]).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from potluck.errors import PotluckError, one_of
from potluck.history import Record
from potluck.report.metrics import METRICS, Metric
from potluck.report.statistics import TESTS, Test, deviation, holm, paired_p
from potluck.report.tables import Cell, Table
from potluck.study.runfolder import RunFolder

Value = str | float | None
"""A value of a study: numbers and words as they are, lists as JSON text."""

LEVEL = 0.05
MISSING = "–"

# Looked at first when settings are to be told apart by as few keys as possible.
_TELLING = ("method.name", "federated.name", "model.name", "name")
_IGNORED = ("seed", "folder", "run")


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished run."""

    path: Path
    study: Mapping[str, Value]
    seed: int
    history: Sequence[Record]


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that differ in their seeds only.

    Args:
      values: of the comparison's keys, as texts or numbers; None where the study has no such key.
      runs:   the runs, by seed.
    """

    values: tuple[Value, ...]
    runs: Mapping[int, Finished]


@dataclass(frozen=True, eq=False)
class Row:
    """What came of a setting.

    Args:
      setting:  the setting.
      scores:   the metric of each seed, in the unit for people.
      p:        adjusted p-value of the paired test against the best of its group; None for the
                best itself, or with fewer than two common seeds.
      best:     whether its mean is the best of its group.
    """

    setting: Setting
    scores: Mapping[int, float]
    p: float | None
    best: bool

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return mean(self.scores.values())

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds."""
        return deviation(list(self.scores.values()))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Settings side by side.

    Args:
      keys:     the fewest keys of the study that tell the settings apart.
      also:     further keys that differ along with them.
      settings: the settings, in the order in which their first runs were given.
      metric:   what they are compared by.
      test:     the paired test.
      x:        the key whose values are the columns of the table and the axis of the figure.
    """

    keys: tuple[str, ...]
    also: tuple[str, ...]
    settings: tuple[Setting, ...]
    metric: Metric
    test: Test
    x: str | None

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The keys other than x."""
        return tuple(key for key in self.keys if key != self.x)

    @property
    def crossed(self) -> bool:
        """Whether settings differ in x and in something else: a table with rows and columns."""
        return self.x is not None and bool(self.lines)

    @cached_property
    def rows(self) -> list[Row]:
        """What came of each setting; in a crossed comparison the best is that of its column."""
        scored = [(setting, _scores(setting, self.metric)) for setting in self.settings]
        columns = [self.at(setting) if self.crossed else None for setting in self.settings]
        rows: dict[int, Row] = {}
        for value in dict.fromkeys(columns):
            members = [i for i, column in enumerate(columns) if column == value]
            for i, row in zip(members, self._judged([scored[i] for i in members]), strict=True):
                rows[i] = row
        return [rows[i] for i in range(len(scored))]

    def at(self, setting: Setting) -> Value:
        """The value of x in a setting."""
        return None if self.x is None else setting.values[self.keys.index(self.x)]

    def label(self, setting: Setting) -> str:
        """What tells a setting from the others (of its column, in a crossed comparison)."""
        named = dict(zip(self.keys, setting.values, strict=True))
        keys = self.lines if self.crossed else self.keys
        texts = [
            shown(named[key]) if key.endswith("name") else f"{short(key)} {shown(named[key])}"
            for key in keys
        ]
        return ", ".join(texts) or "all runs"

    def table(self) -> Table:
        """A column for each value of x, or one row per setting with its p-value."""
        if self.x is None or not self.crossed:
            return self._long()
        places = list(dict.fromkeys(self.at(setting) for setting in self.settings))
        places = sorted(places, key=_order)
        by_line: dict[str, dict[Value, Row]] = {}
        for row in self.rows:
            by_line.setdefault(self.label(row.setting), {})[self.at(row.setting)] = row
        rows: list[list[str | Cell]] = [
            [label, *(self._cell(found.get(place)) for place in places)]
            for label, found in by_line.items()
        ]
        first = ", ".join(map(short, self.lines)) or "runs"
        columns = [first, *(f"{short(self.x)} = {shown(place)}" for place in places)]
        return Table(columns, rows, self.caption())

    def full_table(self) -> Table:
        """One row per setting with plain numbers, for further work: keys, n, mean, sd, p."""
        digits = self.metric.digits + 3
        rows = [
            [
                *map(shown, row.setting.values),
                f"{len(row.scores)}",
                f"{row.mean:.{digits}f}",
                f"{row.deviation:.{digits}f}",
                "" if row.p is None else f"{row.p:.4g}",
            ]
            for row in self.rows
        ]
        return Table([*self.keys, "seeds", f"mean {self.metric.title}", "sd", "p"], rows)

    def caption(self) -> str:
        """How to read the table."""
        counts = sorted({len(setting.runs) for setting in self.settings})
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        over = "one seed" if counts == [1] else f"mean ± sd over {number} seeds"
        text = f"{_sentence(self.metric.title)}, {over}."
        if len(self.settings) > 1:
            text += " Best in bold."
        if any(row.p is not None for row in self.rows):
            where = " of its column" if self.crossed else ""
            text += (
                f" p: {TESTS[self.test]} over common seeds against "
                f"the best{where}, two-sided, adjusted for their number after Holm"
                + (f"; † no significant difference (p ≥ {LEVEL})." if self.crossed else ".")
            )
        if self.also:
            text += f" Along with these differ: {', '.join(self.also)}."
        return text

    def _long(self) -> Table:
        tested = any(row.p is not None for row in self.rows)
        rows: list[list[str | Cell]] = [
            [
                self.label(row.setting),
                f"{len(row.scores)}",
                self._cell(row),
                *([_p(row.p)] if tested else []),
            ]
            for row in self.rows
        ]
        first = ", ".join(map(short, self.keys)) or "runs"
        columns = [first, "seeds", self.metric.title, *(["p"] if tested else [])]
        return Table(columns, rows, self.caption())

    def _cell(self, row: Row | None) -> Cell:
        if row is None:
            return Cell(MISSING)
        digits = self.metric.digits
        text = f"{row.mean:.{digits}f}"
        if len(row.scores) > 1:
            text += f" ± {row.deviation:.{digits}f}"
        if self.crossed and row.p is not None and row.p >= LEVEL:
            text += " †"
        return Cell(text, row.best and len(self.settings) > 1)

    def _judged(self, scored: Sequence[tuple[Setting, dict[int, float]]]) -> list[Row]:
        choose = max if self.metric.rising else min
        means = [mean(scores.values()) for _, scores in scored]
        top = means.index(choose(means))
        best = scored[top][1]
        raw: list[float | None] = []
        for i, (_, scores) in enumerate(scored):
            common = [seed for seed in best if seed in scores]
            first, second = [scores[s] for s in common], [best[s] for s in common]
            raw.append(None if i == top else paired_p(first, second, self.test))
        return [
            Row(setting, scores, p, i == top)
            for i, ((setting, scores), p) in enumerate(zip(scored, holm(raw), strict=True))
        ]


def compare(
    folders: Sequence[Path], metric: str = "accuracy", x: str | None = None, test: Test = "t"
) -> Comparison:
    """Compare finished runs.

    Args:
      folders: run folders, or folders that hold them, such as a sweep's.
      metric:  a key of `METRICS`.
      x:       the key of the study to compare along; the numeric one with most values when left
               out, if there is one.
      test:    the paired test over common seeds.

    Raises:
      PotluckError: there is no finished run, or one lacks the metric.
    """
    if metric not in METRICS:
        raise PotluckError(one_of("metric", metric, METRICS))
    runs = finished_runs(folders)
    keys, also = telling_keys([run.study for run in runs])
    settings = _settings(runs, keys)
    chosen = _numeric(keys, settings) if x is None else _named(x, keys, also)
    if chosen is not None and chosen not in keys:
        keys, also = (*keys, chosen), tuple(key for key in also if key != chosen)
        settings = _settings(runs, keys)
    comparison = Comparison(keys, also, settings, METRICS[metric], test, chosen)
    _ = comparison.rows  # fails here, where the caller expects it, if a run lacks the metric
    return comparison


def finished_runs(folders: Sequence[Path]) -> list[Finished]:
    """The finished runs in some folders; runs that are still going on are left out."""
    paths = [path for folder in folders for path in _run_folders(folder)]
    runs = []
    for path in dict.fromkeys(paths):
        folder = RunFolder.open(path)
        if folder.finished:
            study = folder.study()
            runs.append(Finished(path, flattened(study), study["seed"], folder.history()))
    if not runs:
        raise PotluckError(
            f"none of the {len(paths)} runs is finished, so there is nothing to compare yet."
        )
    return runs


def flattened(study: Mapping[str, Any]) -> dict[str, Value]:
    """A resolved study as {"local.lr": 0.1, …}, without what makes no difference."""
    flat: dict[str, Value] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                add(f"{prefix}.{key}", item)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for index, item in enumerate(value):
                add(f"{prefix}.{index}", item)
        else:
            flat[prefix] = json.dumps(value) if isinstance(value, list) else value

    for key, value in study.items():
        if key not in _IGNORED:
            add(key, value)
    return flat


def telling_keys(
    studies: Sequence[Mapping[str, Value]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fewest keys that tell studies apart, found greedily, and others in all that differ."""
    every = dict.fromkeys(key for study in studies for key in study)
    differing = [key for key in every if len({study.get(key) for study in studies}) > 1]
    ordered = sorted(differing, key=lambda key: (key not in _TELLING, *_place(key)))
    needed = _parts(studies, differing)
    kept: list[str] = []
    for key in ordered:
        if _parts(studies, kept) == needed:
            break
        if _parts(studies, [*kept, key]) > _parts(studies, kept):
            kept.append(key)
    for key in list(reversed(kept)):
        without = [other for other in kept if other != key]
        if _parts(studies, without) == needed:
            kept = without
    shared = [key for key in differing if all(key in study for study in studies)]
    return tuple(kept), tuple(key for key in shared if key not in kept)


def short(key: str) -> str:
    """The last parts of a key, as far as they say something: "local.lr" → "lr"."""
    parts = [part for part in key.split(".") if not part.isdigit()]
    return parts[-2] if parts[-1] in ("name", "kind") and len(parts) > 1 else parts[-1]


def shown(value: Value) -> str:
    """A value of a study for people."""
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(runs: Sequence[Finished], keys: tuple[str, ...]) -> tuple[Setting, ...]:
    groups: dict[tuple[Value, ...], dict[int, Finished]] = {}
    for run in runs:
        group = groups.setdefault(tuple(run.study.get(key) for key in keys), {})
        if run.seed in group:
            raise PotluckError(
                f"{group[run.seed].path} and {run.path} are the same study with the same seed "
                f"({run.seed}); give only one of them."
            )
        group[run.seed] = run
    return tuple(Setting(values, seeds) for values, seeds in groups.items())


def _scores(setting: Setting, metric: Metric) -> dict[int, float]:
    scores = {}
    for seed, run in setting.runs.items():
        value = metric.of(run.history)
        if value is None:
            raise PotluckError(
                f"{run.path}: its history has no {metric.title}; the study needs a test set (and "
                "for the best round in validation, validation samples)."
            )
        scores[seed] = metric.factor * value
    return scores


def _run_folders(folder: Path) -> list[Path]:
    if (folder / "study.json").exists() or not folder.is_dir():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/study.json"))
    if not found:
        raise PotluckError(f"{folder}: neither a run folder nor a folder of runs.")
    return found


def _numeric(keys: Sequence[str], settings: Sequence[Setting]) -> str | None:
    """The key with most values, among those whose values are all numbers."""
    values = {
        key: {setting.values[i] for setting in settings if setting.values[i] is not None}
        for i, key in enumerate(keys)
    }
    numeric = [
        key
        for key, found in values.items()
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
    ]
    return max(numeric, key=lambda key: len(values[key]), default=None)


def _named(x: str, keys: Sequence[str], also: Sequence[str]) -> str:
    if x not in (*keys, *also):
        raise PotluckError(one_of("key that differs between these runs", x, [*keys, *also]))
    return x


def _parts(studies: Sequence[Mapping[str, Value]], keys: Sequence[str]) -> int:
    return len({tuple(study.get(key) for key in keys) for study in studies})


def _place(key: str) -> tuple[int, ...]:
    return (_TELLING.index(key),) if key in _TELLING else ()


def _order(value: Value) -> tuple[bool, float, str]:
    if isinstance(value, int | float):
        return (False, float(value), "")
    return (True, 0.0, str(value))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
