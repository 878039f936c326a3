"""Run folders: everything about a run in one place.

    study.json           the resolved study and its hash, written once
    sites.*              what each site brought (`inventory.py`), for the report
    history.jsonl        one record per round
    checkpoints/         what `potluck resume` goes on from
    evaluation.*         what the final model does (`outcome.py`), for the report
    model.safetensors    the final model's parameters and buffers, by name
    model.json           its label space, input shape and architecture; here = the run is finished

After a round, append to the history first and write the checkpoint second. A process killed in
between leaves a record too many, which `truncate_history` takes back; never one too few.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from potluck.engines import Record, ServerState
from potluck.errors import PotluckError
from potluck.labels import LabelSpace
from potluck.models import build
from potluck.models.network import Network
from potluck.study.files import (
    read_sealed,
    read_tensors,
    write_pair,
    write_sealed,
    writing,
    written_whole,
)
from potluck.training import Trained


def hash_of(study: Mapping[str, Any]) -> str:
    """Tell studies apart: 16 hexadecimal digits of the SHA-256 of the study as canonical JSON.

    Canonical: keys sorted, no spaces, ASCII. 64 bits are ample to notice a change; they are no
    defence against forgery.

    Args:
      study: JSON values; the order of keys does not matter, that of lists does.
    """
    text = _dumped(study, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Args:
      path: where it is.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, study: Mapping[str, Any], study_hash: str) -> "RunFolder":
        """Make the folder of a new run; one that already has something in it is refused.

        Args:
          path:       a folder that is empty or not there yet.
          study:      the resolved study, as JSON values.
          study_hash: of whatever must not change while the run goes on.
        """
        _dumped(study)
        folder = cls(path)
        if path.exists() and not path.is_dir():
            raise PotluckError(f"{path}: this is a file, not a folder; choose another --out.")
        if path.is_dir() and any(path.iterdir()):
            if folder._study_file.exists():
                raise PotluckError(
                    f"{path}: there is a run here already. Go on with it: potluck resume {path}, "
                    "or choose another --out."
                )
            raise PotluckError(
                f"{path}: the folder is not empty, and what is in it is no run that "
                "potluck resume could go on with. Choose another --out."
            )
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        write_sealed(folder._study_file, {"hash": study_hash, "study": study})
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that was started before."""
        folder = cls(path)
        if not folder._study_file.exists():
            why = "it has no study.json" if path.is_dir() else "there is no such folder"
            raise PotluckError(
                f"{path}: not a run folder: {why}. Give the folder that potluck run wrote to."
            )
        return folder

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are; see `potluck.study.checkpoint`."""
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        """Whether the final model is there."""
        return self._model.with_suffix(".json").exists()

    def study(self) -> dict[str, Any]:
        """The resolved study."""
        return read_sealed(self._study_file)["study"]

    def study_hash(self) -> str:
        """The hash that the run was started with."""
        return read_sealed(self._study_file)["hash"]

    def made_by(self) -> dict[str, str]:
        """The versions of potluck and PyTorch that the run was started with."""
        facts = read_sealed(self._study_file)
        return {name: facts[name] for name in ("potluck", "torch")}

    def append(self, record: Record) -> None:
        """Add a round's record to the history; numbers that are not finite become null."""
        line = _line(record)
        with writing(self._history), self._history.open("a", encoding="ascii") as file:
            file.write(line)

    def history(self) -> list[Record]:
        """One record per round; a last line that a kill left half-written does not count."""
        if not self._history.exists():
            return []
        *lines, _ = self._history.read_bytes().split(b"\n")
        return [self._record(number, line) for number, line in enumerate(lines, 1)]

    def truncate_history(self, rounds: int) -> None:
        """Keep the records of the first rounds only, as when resuming from a checkpoint.

        Args:
          rounds: how many rounds the checkpoint has completed.
        """
        kept = [record for record in self.history() if record["round"] <= rounds]
        with written_whole(self._history) as temporary:
            temporary.write_text("".join(map(_line, kept)), encoding="ascii")

    def save_model(
        self,
        trained: Trained,
        model: Mapping[str, Any],
        input_shape: Sequence[int],
        made: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the final model; from then on the run is finished.

        The study itself is not copied into the model's files: who gets the model need not learn
        which site has which classes.

        Args:
          trained:     the model, with its label space and the number of rounds.
          model:       the `name` of the architecture and its options, for `models.build`.
          input_shape: (C, H, W) of an image or (D,) of a table row.
          made:        further JSON values that say how it was made, e.g. the method's name.
        """
        theta, buffers = trained.state.theta, trained.state.buffers
        facts = {
            "classes": list(trained.space),
            "input_shape": list(input_shape),
            "model": dict(model),
            "rounds": trained.state.round,
            "study_hash": self.study_hash(),
            "made": _finite(made or {}),
        }
        write_pair(self._model, {**trained.network.layout.unflatten(theta), **buffers}, facts)

    def load_model(self, device: torch.device | str = "cpu") -> Trained:
        """The final model, ready to predict and evaluate, with the run's history.

        Args:
          device: where it is to run.

        Raises:
          PotluckError: the run is not finished, or the model's files are damaged.
        """
        if not self.finished:
            raise PotluckError(
                f"{self.path}: the run has no final model yet (rounds done: "
                f"{len(self.history())}). Finish it: potluck resume {self.path}"
            )
        try:
            return self._read_model(device)
        except PotluckError as error:
            raise PotluckError(
                f"{error} Or delete {self._model.with_suffix('.json')} and make the model again "
                f"from the last checkpoint: potluck resume {self.path}"
            ) from None

    def model_facts(self) -> dict[str, Any]:
        """What model.json says: classes, input shape, model, rounds, study hash, versions, made."""
        return read_sealed(self._model.with_suffix(".json"))

    def _read_model(self, device: torch.device | str) -> Trained:
        facts = self.model_facts()
        tensors = read_tensors(self._model, facts, device)
        space = LabelSpace(tuple(facts["classes"]))
        shape = tuple(facts["input_shape"])
        network = Network(build(**facts["model"], input_shape=shape, classes=len(space)))
        layout, (_, buffers) = network.layout, network.initial()
        built = dict(zip(layout.names, layout.shapes, strict=True))
        built |= {name: buffer.shape for name, buffer in buffers.items()}
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if odd := [name for name in {**built, **found} if built.get(name) != found.get(name)]:
            raise PotluckError(
                f"{self._model.with_suffix('.safetensors')}: the tensors are not those of the "
                f'model that this potluck builds; "{odd[0]}" is the first to differ. Use potluck '
                f"{facts['potluck']}, which wrote it."
            )
        state = ServerState(
            round=facts["rounds"],
            theta=layout.flatten(tensors),
            buffers={name: tensors[name] for name in buffers},
        )
        return Trained(space, network, state, self.history())

    def _record(self, number: int, line: bytes) -> Record:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("round"), int):
            raise PotluckError(
                f"{self._history}: line {number} is not a round's record. Restore the file from a "
                "backup, or delete the line if you can do without it."
            )
        return record

    @property
    def _study_file(self) -> Path:
        return self.path / "study.json"

    @property
    def _history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def _model(self) -> Path:
        return self.path / "model"


def _dumped(study: Mapping[str, Any], **style: Any) -> str:
    try:
        return json.dumps(study, allow_nan=False, **style)
    except ValueError:
        raise PotluckError(
            "the study has a number that is not finite (inf or nan), which JSON cannot hold; "
            "give a finite one, or leave the setting out."
        ) from None


def _line(record: Record) -> str:
    return json.dumps(_finite(record), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON values with None for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
