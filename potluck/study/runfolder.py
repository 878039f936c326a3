"""Run folders: everything about a run in one place.

    study.json           the resolved study and its hash
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.files import read_sealed, write_sealed, writing, written_whole


def hash_of(study: Mapping[str, Any]) -> str:
    """Tell studies apart: 16 hexadecimal digits of the SHA-256 of the study as canonical JSON.

    Canonical: keys sorted, no spaces, ASCII. 64 bits are ample to notice a change; they are no
    defence against forgery.

    Args:
      study: JSON values; the order of keys does not matter, that of lists does.
    """
    text = _dumped(study, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finite(value: Any) -> Any:
    """JSON values with None for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    def model(self) -> Path:
        """Where the final model is, without the endings; see `potluck.study.model_files`."""
        return self.path / "model"

    @property
    def finished(self) -> bool:
        """Whether the final model is there."""
        return self.model.with_suffix(".json").exists()

    def study(self) -> dict[str, Any]:
        """The resolved study."""
        return read_sealed(self._study_file)["study"]

    def retell(self, study: Mapping[str, Any]) -> None:
        """Write the study anew, where something has changed in it that does not count (`hash_of`).

        Args:
          study: the resolved study, as JSON values.
        """
        facts = read_sealed(self._study_file)
        if facts["study"] != study:
            write_sealed(self._study_file, {**facts, "study": study})

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


def _dumped(study: Mapping[str, Any], **style: Any) -> str:
    try:
        return json.dumps(study, allow_nan=False, **style)
    except ValueError:
        raise PotluckError(
            "the study has a number that is not finite (inf or nan), which JSON cannot hold; "
            "give a finite one, or leave the setting out."
        ) from None


def _line(record: Record) -> str:
    return json.dumps(finite(record), allow_nan=False) + "\n"
