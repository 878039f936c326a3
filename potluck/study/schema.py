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
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from potluck.engines import ENGINES
from potluck.engines.recipe import BatchNorm
from potluck.errors import PotluckError
from potluck.federated import FEDERATED
from potluck.local import LOCAL_OPTIMISERS, SCHEDULES
from potluck.methods import METHODS
from potluck.models import MODELS
from potluck.study.explain import explain
from potluck.study.options import complete
from potluck.study.runfolder import hash_of
from potluck.study.simulation import Simulation
from potluck.study.sitefile import DataSource, read_toml


class Section(BaseModel):
    """A part of the study file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Local(Section):
    """How a site trains within a round; see `potluck.LocalTraining`."""

    lr: PositiveFloat = 0.1
    optimiser: dict[str, Any] = Field(default="sgd", validate_default=True)
    schedule: dict[str, Any] = Field(default="constant", validate_default=True)
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

    engine: dict[str, Any] = Field(default="sequential", validate_default=True)
    device: Literal["cpu", "cuda", "auto"] = "auto"
    threads: PositiveInt | None = None
    evaluate_every: PositiveInt = 1
    checkpoint_every: PositiveInt = 1

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, given: Any) -> dict[str, Any]:
        return complete("run.engine", "engine", ENGINES, given, "sequential")


class RealFederation(Section):
    """Sites with data of their own, each described by a site file."""

    classes: list[str]
    sites: list[str] = Field(min_length=1)
    server: str | None = None
    test: DataSource | None = None


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
    model: dict[str, Any] = Field(default="mlp", validate_default=True)
    method: dict[str, Any] = Field(default="likelihood", validate_default=True)
    federated: dict[str, Any] = Field(default="fedavg", validate_default=True)
    local: Local = Local()
    run: Run = Run()
    simulation: Simulation | None = None
    federation: RealFederation | None = None
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
            raise ValueError(
                "a study needs exactly one of [simulation] (a data set split into sites) and "
                "[federation] (site files)"
            )
        return self

    def resolved(self) -> dict[str, Any]:
        """The study with every default filled in, as plain JSON values."""
        return self.model_dump(mode="json")

    def hash(self) -> str:
        """Tells studies apart; where their files lie does not count."""
        return hash_of({key: value for key, value in self.resolved().items() if key != "folder"})


def read_study(path: Path, overrides: Sequence[str] = (), scale: str | None = None) -> Study:
    """Read and check a study file.

    Args:
      path:      a TOML file, or the study.json of a run.
      overrides: texts like "method.tau=0.9", which replace what the file says.
      scale:     the name of a [scales.NAME] table in the file whose values replace others.
    """
    table = _read_json(path) if path.suffix == ".json" else read_toml(path)
    table.setdefault("folder", str(path.resolve().parent))
    scales = table.pop("scales", {})
    if scale is not None:
        if scale not in scales:
            known = ", ".join(scales) or "none"
            raise PotluckError(f"{path}: there is no [scales.{scale}]; the file has: {known}.")
        table = merged(table, scales[scale])
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
        return Study.model_validate(table)
    except ValidationError as error:
        raise PotluckError(explain(error, Study, where)) from None
    except PotluckError as error:
        raise PotluckError(f"{where}: {error}") from None


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
    model.hidden = [64] give { name = "mlp", hidden = [64] }. Another name starts afresh.
    """
    result = deepcopy(dict(base))
    for key, value in change.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, Mapping) and "name" not in value:
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(value, Mapping) and "name" not in value:
            result[key] = merged(old, value)
        else:
            result[key] = deepcopy(value)
    return result


def _read_json(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        raise PotluckError(f"{path}: there is no such file.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PotluckError(f"{path} is not valid JSON: {error}.") from None
    return stored.get("study", stored)
