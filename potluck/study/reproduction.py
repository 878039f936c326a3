"""Run the experiments of papers and keep what came out, as it comes.

Each experiment at each scale has one JSON file of results. A run is known by what is learned in it
(`papers.learned`), so a run that any file of the folder has is not repeated: not after a stop, not
in another table of the paper, and not on another machine that has the results but no run folders.
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError

from potluck import __version__
from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.explain import explain
from potluck.study.files import writing, written_whole
from potluck.study.limit import Limit, TimeIsUpError
from potluck.study.papers import FULL, Experiment, Paper, Place, data_set, learned
from potluck.study.runfolder import RunFolder
from potluck.study.schema import Section, Study
from potluck.study.sitefile import read_text
from potluck.study.sweep import OnRound, rounds_done, run_folder, run_one

CHECKOUT = Path(__file__).parents[2]
"""Where the source lies, with examples and results, unless potluck was installed without them."""

CURVE = 20
"""How many rounds of a run's test accuracy are kept, evenly spaced."""

Measure = Callable[[Sequence[Record]], dict[str, float]]
"""The numbers of a run, by metric, from its history."""

# Neither changes what is learned.
_ASIDE = ("run.", "simulation.path")

_FILES = {
    "mnist": "the four idx files that its authors publish (train-images-idx3-ubyte …)",
    "fashion-mnist": "the four idx files that its authors publish (train-images-idx3-ubyte …)",
    "cifar10": "the python or binary release, unpacked (data_batch_1 …)",
    "cifar100": "the python or binary release, unpacked (train, test, meta)",
    "svhn": "the cropped digits (train_32x32.mat, test_32x32.mat)",
}


class Session(Section):
    """With what, and on what, some of the runs were made."""

    command: str
    commit: str
    hardware: str
    python: str
    versions: dict[str, str]


class Run(Section):
    """What came of one run of a cell.

    `study` tells it from other runs (`papers.learned`), `session` is the number of the session
    that trained it, `values` has its numbers by metric, and `curve` the test accuracy in percent
    after some of the rounds.
    """

    row: str
    column: str
    seed: int
    study: str
    session: int = Field(ge=0)
    rounds: int
    seconds: float
    values: dict[str, float]
    curve: dict[int, float]


class Results(Section):
    """The results of an experiment at a scale; `overrides` are those that the paper has not."""

    paper: str
    experiment: str
    scale: str
    overrides: list[str]
    sessions: list[Session]
    runs: list[Run]

    def values(self, metric: str) -> dict[Place, dict[int, float]]:
        """A metric of each cell, by seed."""
        found: dict[Place, dict[int, float]] = {}
        for run in self.runs:
            if metric in run.values:
                found.setdefault((run.row, run.column), {})[run.seed] = run.values[metric]
        return found

    @property
    def seconds(self) -> float:
        """Training time of all runs; one that several cells share counts once."""
        return sum({run.study: run.seconds for run in self.runs}.values())


@dataclass(frozen=True)
class Planned:
    """One run of a cell: where it belongs, its study, and what tells it from others."""

    place: Place
    seed: int
    study: Study
    key: str


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment.

    Args:
      paper:      the paper.
      experiment: one of its experiments.
      scale:      the scale.
      overrides:  further ones, which change what is learned.
      runs:       the runs of all cells; the first seed of all comes first.
      chosen:     the cells to train; results of others are kept where there are any.
    """

    paper: Paper
    experiment: Experiment
    scale: str
    overrides: tuple[str, ...]
    runs: tuple[Planned, ...]
    chosen: frozenset[Place]

    def distinct(self) -> list[Planned]:
        """The runs to train, without those that are the same as others."""
        chosen = [run for run in self.runs if run.place in self.chosen]
        return list({run.key: run for run in reversed(chosen)}.values())[::-1]

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.paper.name} {self.experiment.name}"

    def file(self, results: Path) -> Path:
        """Where the results go."""
        return results / f"{self.paper.name}-{self.experiment.name}-{self.scale}.json"


def plan(
    paper: Paper,
    experiment: Experiment,
    scale: str = FULL,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    only: Sequence[str] = (),
) -> Plan:
    """Make and check all studies of an experiment; no data is read.

    Args:
      paper:      the paper.
      experiment: one of its experiments.
      scale:      FULL, or a scale of the study files.
      seeds:      the seeds; as many as in the paper when None.
      overrides:  texts like "rounds=5", for all of them.
      data:       the folder that has a folder for each data set; see `Paper.study`.
      only:       rows and columns to train; see `Experiment.places`.
    """
    chosen = experiment.places(only)
    runs = []
    for seed in range(paper.seeds(experiment)) if seeds is None else seeds:
        for row, column in experiment.cells():
            study = paper.study(experiment, row, column, scale, seed, overrides, data)
            runs.append(Planned((row.name, column.name), seed, study, learned(study)))
    aside = tuple(text for text in overrides if not text.strip().startswith(_ASIDE))
    return Plan(paper, experiment, scale, aside, tuple(runs), chosen)


def check_data(plans: Sequence[Plan]) -> None:
    """Find out before training whether every data set is there."""
    for planned in plans:
        if problem := _missing_data(planned):
            raise PotluckError(problem)


def with_data(plans: Sequence[Plan]) -> list[Plan]:
    """The plans whose data are there; an error where there are none."""
    found = [planned for planned in plans if _missing_data(planned) is None]
    if not found:
        check_data(plans)
    return found


def _missing_data(planned: Plan) -> str | None:
    for name, path in dict.fromkeys(data_set(run.study) for run in planned.runs):
        if path is not None and not path.exists():
            where = Path(os.path.normpath(path))
            files = _FILES.get(name, "its files")
            return (
                f'data set "{name}" is needed in the folder {where}, which does not exist. '
                f"Nothing is downloaded: put {files} there, or say where your data sets are: "
                f'--path DIR, with a folder "{where.name}" in it. To try it without: '
                "--scale small."
            )
    return None


def read_results(path: Path) -> Results:
    """Read and check a file of results."""
    try:
        return Results.model_validate_json(read_text(path))
    except ValidationError as error:
        raise PotluckError(explain(error, Results, str(path))) from None


def all_results(folder: Path) -> dict[Path, Results]:
    """All results of a folder."""
    return {path: read_results(path) for path in sorted(folder.glob("*.json"))}


def with_earlier_seeds(planned: Plan, results: Path, data: Path | None = None) -> Plan:
    """The plan with the seeds that its results already have, which must not be lost.

    Args:
      planned: the plan.
      results: the folder of results.
      data:    as for `plan`.
    """
    path = planned.file(results)
    if not path.exists():
        return planned
    stored = read_results(path)
    if tuple(stored.overrides) != planned.overrides:
        said = " ".join(f"-o {text}" for text in stored.overrides) or "no overrides"
        raise PotluckError(
            f"{path}: holds results with {said}; give the same, or another --results."
        )
    more = {run.seed for run in stored.runs} - {run.seed for run in planned.runs}
    earlier = plan(
        planned.paper, planned.experiment, planned.scale, sorted(more), planned.overrides, data
    )
    known = _known(all_results(results))
    kept = tuple(run for run in earlier.runs if run.key in known)
    return replace(planned, runs=(*planned.runs, *kept))


def progress_of(planned: Plan, results: Path, runs: Path) -> tuple[int, int, int, int]:
    """How far an experiment is.

    Args:
      planned: the plan.
      results: the folder of results.
      runs:    the folder of run folders.

    Returns:
      how many different runs it has, how many of them are finished, and the same in rounds.
    """
    known = _known(all_results(results))
    distinct = planned.distinct()
    done = [run for run in distinct if run.key in known]
    rounds = sum(
        run.study.rounds if run.key in known else rounds_done(run.study, runs) for run in distinct
    )
    return len(distinct), len(done), sum(run.study.rounds for run in distinct), rounds


def reproduce(
    planned: Plan,
    results: Path,
    runs: Path,
    measure: Measure,
    on_round: OnRound,
    limit: Limit | None = None,
) -> list[str]:
    """Train what is missing of an experiment, and write its results after each run.

    Finished runs keep their folders, but not their checkpoints, which nothing would go on from.
    Runs that would not be finished in time are passed over, and one that is not finished when time
    is up goes on from its last checkpoint when this is called again.

    Args:
      planned:  the plan.
      results:  the folder of results; made where it is missing.
      runs:     the folder of run folders.
      measure:  makes numbers of a run's history.
      on_round: called with the study and each new round's record.
      limit:    how long it may take; None for as long as it takes.

    Returns:
      what went wrong with runs that failed, e.g. since training diverged.
    """
    with writing(results):
        results.mkdir(parents=True, exist_ok=True)
    here, failures = _session(), []
    limit = limit or Limit()
    known = _known(all_results(results))
    for run in planned.distinct():
        if run.key in known:
            continue
        folder = RunFolder(run_folder(run.study, runs))
        if not limit.allows(_expected_seconds(run, folder, _alike(run, planned, known, here))):
            continue
        try:
            ran = run_one(run.study, folder.path, limit.kept(on_round))
        except TimeIsUpError:
            break
        if ran.error is not None:
            failures.append(f"{run.place[0]}, {run.place[1]}, seed {run.seed}: {ran.error}")
            continue
        known[run.key] = (_numbers(run, folder.history(), measure), here)
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        _write(planned, known, results)
    _write(planned, known, results)
    return failures


def default_folders(papers: Path | None, results: Path | None) -> tuple[Path, Path]:
    """The folders of papers and of results: those of the source, unless told otherwise."""
    ours = CHECKOUT / "examples" / "papers"
    if papers is None:
        papers = ours if ours.is_dir() else Path("examples", "papers")
    if results is None:
        own = papers.resolve() == ours
        results = CHECKOUT / "benchmarks" / "results" / "papers" if own else Path("results")
    return papers, results


def _known(files: Mapping[Path, Results]) -> dict[str, tuple[Run, Session]]:
    """All runs that are finished, by what is learned in them."""
    return {
        run.study: (run, stored.sessions[run.session])
        for stored in files.values()
        for run in stored.runs
    }


def _alike(
    run: Planned, planned: Plan, known: Mapping[str, tuple[Run, Session]], here: Session
) -> list[Run]:
    """The finished runs of the same method in an experiment, on hardware as it is here."""
    keys = {one.key for one in planned.runs if one.place[0] == run.place[0]}
    found = [known[key] for key in keys if key in known]
    # Somebody may have added a remark, such as that several processes shared it.
    return [one for one, session in found if session.hardware.startswith(here.hardware)]


def _expected_seconds(run: Planned, folder: RunFolder, alike: Sequence[Run]) -> float:
    """How long a run still takes, by its own rounds or else by others'; 0 where nobody knows."""
    done = folder.history()
    own = [sum(record.get("seconds", 0.0) for record in done) / len(done)] if done else []
    paces = own or [one.seconds / one.rounds for one in alike]
    return (run.study.rounds - len(done)) * max(paces, default=0.0)


def _write(planned: Plan, known: Mapping[str, tuple[Run, Session]], results: Path) -> None:
    """Write what is known of an experiment."""
    sessions: list[Session] = []
    runs = []
    for run in planned.runs:
        if run.key not in known:
            continue
        found, session = known[run.key]
        if session not in sessions:
            sessions.append(session)
        row, column = run.place
        changed = {"row": row, "column": column, "session": sessions.index(session)}
        runs.append(found.model_copy(update=changed))
    if not runs:
        return
    stored = Results(
        paper=planned.paper.name,
        experiment=planned.experiment.name,
        scale=planned.scale,
        overrides=list(planned.overrides),
        sessions=sessions,
        runs=runs,
    )
    with written_whole(planned.file(results)) as temporary:
        text = json.dumps(stored.model_dump(mode="json"), indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _numbers(run: Planned, history: Sequence[Record], measure: Measure) -> Run:
    row, column = run.place
    return Run(
        row=row,
        column=column,
        seed=run.seed,
        study=run.key,
        session=0,
        rounds=len(history),
        seconds=round(sum(record.get("seconds", 0.0) for record in history), 3),
        values={name: round(value, 6) for name, value in measure(history).items()},
        curve=dict(_curve(history)),
    )


def _curve(history: Sequence[Record]) -> Iterator[tuple[int, float]]:
    tested = [record for record in history if "test" in record]
    every = max(1, len(tested) // CURVE)
    for record in tested[::-1][::every][::-1]:  # the last one always
        yield record["round"], round(100 * record["test"]["accuracy"], 3)


def _session() -> Session:
    return Session(
        command=shlex.join(["potluck", *sys.argv[1:]]),
        commit=_commit(),
        hardware=_hardware(),
        python=platform.python_version(),
        versions={
            "potluck": __version__,
            "torch": str(torch.__version__),
            "numpy": version("numpy"),
        },
    )


def _commit() -> str:
    def git(*words: str) -> Any:
        return subprocess.run(
            ["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--short", "--", "potluck", "examples")
        return git("rev-parse", "HEAD") + (" and changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # an installed package, or a copy without its history


def _hardware() -> str:
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return f"{torch.cuda.get_device_name()}; {cores}" if torch.cuda.is_available() else cores
