"""The study file: what is trained, how, and on which federation."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from potluck.engines import ENGINES
from potluck.engines.recipe import BatchNorm
from potluck.errors import PotluckError, one_of
from potluck.federated import FEDERATED
from potluck.labels import LabelSpace
from potluck.local import LOCAL_OPTIMISERS, SCHEDULES
from potluck.methods import METHODS
from potluck.models import MODELS
from potluck.study.explain import about, explain
from potluck.study.options import complete
from potluck.study.runfolder import hash_of
from potluck.study.simulation import Simulation
from potluck.study.sitefile import DataSource, describes_site, read_text, read_toml


class Section(BaseModel):
    """A part of the study file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Local(Section):
    """How a site trains within a round; see `potluck.LocalTraining`."""

    lr: PositiveFloat = 0.1
    optimiser: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    schedule: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    epochs: PositiveInt = 1
    steps: PositiveInt | None = None
    batch_size: PositiveInt = 32
    last_batch: Literal["keep", "drop"] = "keep"
    l1: NonNegativeFloat = 0.0
    clip: PositiveFloat | None = None
    optimiser_state: Literal["reset", "keep"] = "reset"

    @field_validator("optimiser", mode="before")
    @classmethod
    def _optimiser(cls, given: Any) -> dict[str, Any]:
        return complete("local.optimiser", "optimiser", LOCAL_OPTIMISERS, given, "sgd")

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule(cls, given: Any) -> dict[str, Any]:
        return complete("local.schedule", "schedule", SCHEDULES, given, "constant")


class Run(Section):
    """Where and how the study runs; nothing here changes what is learned."""

    engine: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    device: Literal["cpu", "cuda", "auto"] = "auto"
    threads: PositiveInt | None = None
    evaluate_every: PositiveInt = 1
    checkpoint_every: PositiveInt = 1

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, given: Any) -> dict[str, Any]:
        return complete("run.engine", "engine", ENGINES, given, "auto")


class RealFederation(Section):
    """Sites with data of their own, each described by a site file.

    Over a network (`potluck coordinate`) the coordinator has no site files: `sites` may be left
    out.
    """

    classes: list[str] = Field(min_length=2)
    sites: list[str] = Field(default_factory=list)
    server: str | None = None
    test: DataSource | None = None

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[str]) -> list[str]:
        with about("federation.classes"):
            return list(LabelSpace(tuple(classes)))


class Network(Section):
    """How `potluck coordinate` deals with sites that come late, hang or fail.

    `sites` names those that may take part, in the order in which updates are averaged: all that
    have keys when left out. Training starts when `start` of them are there (all when left out); a
    round waits at most `deadline` seconds for answers, and at most `absence` for a site that is not
    connected any more; it needs `minimum` of them to count, and is tried again up to `retries`
    times before the run stops.
    """

    sites: list[str] | None = Field(default=None, min_length=1)
    start: PositiveInt | None = None
    deadline: PositiveFloat = 600.0
    absence: NonNegativeFloat = 30.0
    minimum: PositiveInt = 1
    retries: NonNegativeInt = 3


class Study(Section):
    """A whole study. Either `simulation` or `federation` says where the data comes from.

    `folder` is what relative paths are relative to; reading a file sets it to the file's folder.
    """

    name: str = Field(default="study", min_length=1)
    seed: int = 0
    rounds: PositiveInt
    cohort: PositiveInt | None = None
    batch_norm: BatchNorm = "average"
    standardise: Literal["none", "federation"] = "none"
    model: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    method: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    federated: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    local: Local = Local()
    run: Run = Run()
    simulation: Simulation | None = None
    federation: RealFederation | None = None
    network: Network = Network()
    folder: str = "."

    @field_validator("model", mode="before")
    @classmethod
    def _model(cls, given: Any) -> dict[str, Any]:
        return complete("model", "model", MODELS, given, "mlp")

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, given: Any) -> dict[str, Any]:
        return complete("method", "method", METHODS, given, "likelihood")

    @field_validator("federated", mode="before")
    @classmethod
    def _federated(cls, given: Any) -> dict[str, Any]:
        return complete("federated", "federated optimiser", FEDERATED, given, "fedavg")

    @model_validator(mode="after")
    def _one_source(self) -> "Study":
        if (self.simulation is None) == (self.federation is None):
            found = "neither is" if self.simulation is None else "both are"
            raise ValueError(
                "a study needs exactly one of [simulation] (a data set split into sites) and "
                f"[federation] (site files); {found} here."
            )
        return self

    def resolved(self) -> dict[str, Any]:
        """The study with every default filled in, as plain JSON values."""
        return self.model_dump(mode="json")

    def hash(self) -> str:
        """Tells studies apart; where their files lie, and how failures are met, do not count."""
        aside = ("folder", "network")
        return hash_of({key: value for key, value in self.resolved().items() if key not in aside})


def read_study(path: Path, overrides: Sequence[str] = (), scale: str | None = None) -> Study:
    """Read and check a study file.

    Args:
      path:      a TOML file, or the study.json of a run.
      overrides: texts like "method.tau=0.9", which replace what the file says.
      scale:     the name of a [scales.NAME] table in the file whose values replace others.
    """
    table = _read_json(path) if path.suffix == ".json" else read_toml(path)
    if describes_site(table):
        raise PotluckError(
            f"{path} is a site file, not a study. Give the study that lists it; to check the site "
            f"file itself: potluck check {path} --study study.toml"
        )
    table.setdefault("folder", str(path.resolve().parent))
    scales = table.pop("scales", {})
    if scale is not None:
        table = merged(table, _scaled(scales, scale, path))
    for text in overrides:
        table = merged(table, parse_override(text))
    return parse_study(table, str(path))


def parse_study(table: Mapping[str, Any], where: str) -> Study:
    """Check a study given as a table.

    Args:
      table: the study.
      where: its origin, for messages.
    """
    try:
        with about(where):
            return Study.model_validate(table)
    except ValidationError as error:
        raise PotluckError(explain(error, Study, where)) from None


def parse_override(text: str) -> dict[str, Any]:
    """Turn "method.tau=0.9" into {"method": {"tau": 0.9}}; values are TOML, or plain text."""
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise PotluckError(f'override "{text}": write KEY=VALUE, e.g. -o method.tau=0.9.')
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(parts):
        parsed = {part: parsed}
    return parsed


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `change`; tables merge, everything else is replaced.

    A bare name merges with options like the table it stands for: model = "mlp" and
    model.hidden = [64] give { name = "mlp", hidden = [64] }. A table with a name or a kind of
    its own starts afresh. A number names an entry of a list: simulation.sites.0.view.rho = 0.3.
    """
    result = deepcopy(dict(base))
    for key, value in change.items():
        old = result.get(key)
        options = isinstance(value, Mapping) and not {"name", "kind"} & set(value)
        if isinstance(old, str) and options:
            old = {"name": old}
        if isinstance(old, Mapping) and options:
            result[key] = merged(old, value)
        elif isinstance(old, list) and isinstance(value, Mapping):
            result[key] = _merged_entries(key, old, value)
        else:
            result[key] = deepcopy(value)
    return result


def _merged_entries(name: str, base: list[Any], change: Mapping[str, Any]) -> list[Any]:
    """A list with some entries changed; the keys of `change` are their numbers."""
    result = deepcopy(base)
    for key, value in change.items():
        if key not in map(str, range(len(base))):
            raise PotluckError(
                f'override of {name}: it is a list of {len(base)}, and "{key}" is none of its '
                f"entries; count them from 0, e.g. {name}.0."
            )
        old = result[int(key)]
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[int(key)] = merged(old, value) if both else deepcopy(value)
    return result


def _scaled(scales: Any, scale: str, path: Path) -> Mapping[str, Any]:
    known = list(scales) if isinstance(scales, Mapping) else []
    if not known:
        raise PotluckError(f"{path} has no scales, so leave out --scale {scale}.")
    if scale not in known:
        raise PotluckError(f"{path}: {one_of('scale', scale, known)}")
    if not isinstance(scales[scale], Mapping):
        raise PotluckError(f"{path}: scales.{scale} must be a table of values: [scales.{scale}].")
    return scales[scale]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise PotluckError(f"{path} is not valid JSON: {error}.") from None
    study = stored.get("study", stored) if isinstance(stored, dict) else None
    if not isinstance(study, dict):
        raise PotluckError(f"{path} is no study; give a study file, or a run's study.json.")
    return study
