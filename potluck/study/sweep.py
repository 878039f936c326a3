"""Many studies in one go: every combination of studies, methods, settings and seeds.

`Sweep.studies` lists them; `run_studies` trains each into a folder of its own, named after the
study's hash. Called again, it skips what is finished and resumes what was stopped, so an
interrupted sweep goes on where it was, and a larger one trains only what is new.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.execute import open_run, prepare, resume_run, run_name, run_study
from potluck.study.explain import about, explain
from potluck.study.runfolder import RunFolder, hash_of
from potluck.study.schema import Study, read_study
from potluck.study.sitefile import read_toml

OnRound = Callable[[Study, Record], None]


@dataclass(frozen=True)
class Sweep:
    """Which studies to run: every combination of what is listed here.

    Args:
      files:     study files.
      methods:   methods by name, or as tables with options; the studies' own when empty.
      grid:      for keys of the study, e.g. "local.lr", the values to try.
      seeds:     the seeds.
      overrides: texts like "rounds=5", for all of them.
      scale:     the name of a [scales.NAME] table that all files have.
    """

    files: tuple[Path, ...]
    methods: tuple[Any, ...] = ()
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    overrides: tuple[str, ...] = ()
    scale: str | None = None

    def studies(self) -> list[Study]:
        """All studies, checked; those that come out the same are listed once."""
        tried = [[f"{key}={_toml(value)}" for value in some] for key, some in self.grid.items()]
        if self.methods:
            tried.insert(0, [f"method={_toml(method)}" for method in self.methods])
        tried.append([f"seed={seed}" for seed in self.seeds])
        found = {}
        for file in self.files:
            for chosen in product(*tried):
                with about(" ".join(chosen)):
                    study = read_study(file, (*self.overrides, *chosen), self.scale)
                found[study.hash()] = study
        return list(found.values())


class SweepFile(BaseModel):
    """A sweep as people write it, in TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    studies: list[str] = Field(min_length=1)
    methods: list[str | dict[str, Any]] = Field(default_factory=list)
    grid: dict[str, Any] = Field(default_factory=dict)
    seeds: PositiveInt | list[int] = 3
    overrides: list[str] = Field(default_factory=list)
    scale: str | None = None

    def sweep(self, folder: Path) -> Sweep:
        """The sweep; paths are relative to `folder`."""
        seeds = range(self.seeds) if isinstance(self.seeds, int) else self.seeds
        return Sweep(
            files=tuple(folder / name for name in self.studies),
            methods=tuple(self.methods),
            grid=dict(_lists(self.grid)),
            seeds=tuple(seeds),
            overrides=tuple(self.overrides),
            scale=self.scale,
        )


@dataclass(frozen=True)
class Ran:
    """What became of one study of a sweep.

    Args:
      study: the study.
      path:  its run folder.
      error: why it has no model, in words; None for a finished run.
    """

    study: Study
    path: Path
    error: str | None = None


def read_sweep(path: Path) -> Sweep:
    """Read and check a sweep file (not yet the studies it lists)."""
    try:
        with about(path):
            return SweepFile.model_validate(read_toml(path)).sweep(path.parent)
    except ValidationError as error:
        raise PotluckError(explain(error, SweepFile, str(path))) from None


def is_sweep_file(path: Path) -> bool:
    """Whether a TOML file describes a sweep: it lists studies."""
    return path.suffix == ".toml" and "studies" in read_toml(path)


def parse_values(text: str) -> tuple[str, tuple[Any, ...]]:
    """Turn "local.lr=0.1,0.01" into ("local.lr", (0.1, 0.01)); values are TOML, or plain words."""
    key, equals, listed = text.partition("=")
    if not equals or not key.strip() or not listed.strip():
        raise PotluckError(f'grid "{text}": write KEY=VALUE,VALUE, e.g. -g local.lr=0.1,0.01.')
    inner = listed.strip()
    try:
        values = tomllib.loads(f"values = [{inner}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [word.strip() for word in inner.split(",")]
    return key.strip(), tuple(values)


def run_folder(study: Study, out: Path) -> Path:
    """Where a sweep in a folder keeps the run of a study."""
    return out / run_name(study, study.method["name"], study.seed)


def rounds_done(study: Study, out: Path) -> int:
    """How many rounds of a study a sweep's folder already has."""
    path = run_folder(study, out)
    return len(RunFolder(path).history()) if (path / "study.json").exists() else 0


def run_studies(studies: Sequence[Study], out: Path, on_round: OnRound) -> list[Ran]:
    """Train studies one after another, each into a folder of its own.

    Before anything trains, every setting that still has work to do is prepared once, so that a
    mistake in the last one does not come to light after hours. A run that fails later, e.g.
    since training diverges, does not stop the others.

    Args:
      studies:  the studies.
      out:      the folder of the sweep; made where it is missing.
      on_round: called with the study and each new round's record.

    Returns:
      what became of each study, in order.
    """
    waiting = [study for study in studies if not RunFolder(run_folder(study, out)).finished]
    for study in _one_per_setting(waiting):
        with about(f"{study.name}, method {study.method['name']}"):
            prepare(study)
    return [run_one(study, run_folder(study, out), on_round) for study in studies]


def run_one(study: Study, path: Path, on_round: OnRound) -> Ran:
    """Train a study into a folder, go on with it there, or find that it is finished.

    Args:
      study:    the study.
      path:     its run folder.
      on_round: called with the study and each new round's record.
    """
    folder = RunFolder(path)
    started = (path / "study.json").exists()
    if started and folder.study_hash() != study.hash():
        raise PotluckError(f"{path}: holds the run of another study; choose another --out.")
    if folder.finished:
        return Ran(study, path)

    def tell(record: Record) -> None:
        on_round(study, record)

    try:
        if started:
            stored, opened = open_run(path)
            resume_run(stored, prepare(stored), opened, tell)
        else:
            run_study(study, prepare(study), path, tell)
    except PotluckError as error:
        return Ran(study, path, str(error))
    return Ran(study, path)


def _one_per_setting(studies: Sequence[Study]) -> Iterator[Study]:
    """The first study of each group that differs in the seed only."""
    seen = set()
    for study in studies:
        setting = hash_of({**study.resolved(), "seed": 0, "folder": ""})
        if setting not in seen:
            seen.add(setting)
            yield study


def _lists(grid: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The values of each key; keys may be dotted or nested, which TOML treats alike."""
    for key, value in grid.items():
        if isinstance(value, Mapping):
            yield from _lists(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            yield f"{prefix}{key}", tuple(value)
        else:
            raise PotluckError(
                f"grid.{prefix}{key} must be a list of values to try, e.g. [0.1, 0.01]."
            )


def _toml(value: Any) -> str:
    """A value as TOML text on one line."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
