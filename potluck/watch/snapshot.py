"""What the live page shows, read from a run folder.

Nothing here writes, and nothing but the run folder is read: `study.json`, `sites.json`,
`history.jsonl`, `presence.json`, and whether `model.json` is there.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.files import read_sealed
from potluck.study.presence import Presence, read_presence
from potluck.study.runfolder import RunFolder

RECENT = 10
"""How many of the last rounds the time left is reckoned from."""

QUIET = 60.0
"""Seconds without a new round after which a run may have stopped, for rounds that are short."""


@dataclass
class Watched:
    """A run folder that is read again and again; unchanged files are not read twice.

    Args:
      path: the run folder.
    """

    path: Path

    def __post_init__(self) -> None:
        self._folder = RunFolder(self.path)
        self._known: dict[str, tuple[tuple[int, int], Any]] = {}

    def snapshot(self, after: int = 0) -> dict[str, Any]:
        """The run as it is now, as JSON values.

        Args:
          after: how many rounds the page already has; only later ones are in `records`, unless
                 the history is shorter than that (a run that was resumed from a checkpoint).
        """
        try:
            study = self._read("study.json", self._folder.study) or {}
            brought = self._read("sites.json", self._brought) or []
            history: list[Record] = self._read("history.jsonl", self._folder.history) or []
            presence = read_presence(self.path)
        except PotluckError as error:
            return {"problem": str(error)}
        if not study:
            return {"problem": f"{self.path}: there is no study.json (any more)."}
        done, rounds, silent = len(history), study["rounds"], self._silent()
        return {
            "problem": None,
            "folder": self.path.resolve().name,
            "study": {
                "name": study["name"],
                "rounds": rounds,
                "seed": study["seed"],
                "method": study["method"]["name"],
                "federated": study["federated"]["name"],
                "model": study["model"]["name"],
            },
            "state": _state(history, rounds, self._folder.finished, silent),
            "done": done,
            "elapsed": sum(_seconds(history)),
            "left": _left(history, rounds),
            "silent": silent,
            "after": min(after, done),
            "records": [_shown(record) for record in history[min(after, done) :]],
            "sites": _sites(brought, history, presence),
        }

    def _read(self, name: str, read: Callable[[], Any]) -> Any:
        """What a file says, read only when the file has changed; None without a file."""
        try:
            stat = (self.path / name).stat()
        except FileNotFoundError:
            return None
        state = (stat.st_mtime_ns, stat.st_size)
        if name not in self._known or self._known[name][0] != state:
            self._known[name] = (state, read())
        return self._known[name][1]

    def _brought(self) -> list[dict[str, Any]]:
        return read_sealed(self.path / "sites.json")["sites"]

    def _silent(self) -> float:
        """Seconds since the last round was written, or since the run began."""
        for name in ("history.jsonl", "study.json"):
            if (file := self.path / name).exists():
                return max(0.0, time.time() - file.stat().st_mtime)
        return 0.0


def newest_run(runs: Path) -> Path:
    """The run folder in `runs` where something was written last.

    Args:
      runs: a folder of run folders, as `potluck run` makes them.
    """
    files = [file for name in ("study.json", "history.jsonl") for file in runs.glob(f"*/{name}")]
    if not files:
        raise PotluckError(
            f"there is no run in {runs.resolve()} to watch; say which: potluck watch FOLDER, with "
            "the run folder that potluck run names when it starts."
        )
    return max(files, key=lambda file: file.stat().st_mtime).parent


def as_json(snapshot: dict[str, Any]) -> bytes:
    """A snapshot as the page reads it."""
    return json.dumps(snapshot, allow_nan=False, separators=(",", ":")).encode()


def _state(history: Sequence[Record], rounds: int, finished: bool, silent: float) -> str:
    if finished:
        return "finished"
    if silent > max(QUIET, RECENT * max(_seconds(history), default=0.0)):
        return "quiet"
    if not history:
        return "starting"
    return "running" if len(history) < rounds else "finishing"


def _left(history: Sequence[Record], rounds: int) -> float | None:
    """Seconds until the last round, if further rounds take as long as the latest did."""
    recent = _seconds(history[-RECENT:])
    if not recent:
        return None
    return sum(recent) / len(recent) * max(0, rounds - len(history))


def _seconds(history: Sequence[Record]) -> list[float]:
    return [record["seconds"] for record in history if "seconds" in record]


def _shown(record: Record) -> dict[str, Any]:
    """The part of a round's record that the page shows."""
    test = record.get("test") or {}
    return {
        "round": record["round"],
        "seconds": record.get("seconds"),
        "accuracy": test.get("accuracy"),
        "loss": test.get("loss"),
        "validation": record.get("validation"),
        "cohort": record["cohort"],
        "sat_out": record["sat_out"],
        "failed": record.get("failed", {}),
        "sites": record["sites"],
    }


def _sites(
    brought: Sequence[Mapping[str, Any]],
    history: Sequence[Record],
    presence: Mapping[str, Presence],
) -> list[dict[str, Any]]:
    """Every site that is known of, in the order in which it was first heard of.

    A site of which `presence.json` does not tell is present, as all are in a run on one machine,
    unless it failed to answer in the latest round.
    """
    facts = {site["name"]: site for site in brought}
    cohorts = _in_order(name for record in history for name in record["cohort"])
    trained = _in_order(name for record in history for name in record["sites"])
    failed = history[-1].get("failed", {}) if history else {}
    return [
        {
            "name": name,
            "server": facts[name]["server"] if name in facts else name not in {*presence, *cohorts},
            "labels": _labels(facts.get(name)),
            **asdict(presence.get(name) or _heard_of(name, failed)),
        }
        for name in _in_order([*facts, *presence, *cohorts, *trained])
    ]


def _heard_of(name: str, failed: Mapping[str, str]) -> Presence:
    """The presence of a site of which only the latest round tells."""
    return Presence(present=name not in failed, since="", reason=failed.get(name, ""))


def _labels(facts: Mapping[str, Any] | None) -> str:
    """What a site brought, in a few words."""
    if facts is None:
        return ""
    kind = f"{facts['kind']}, private" if facts["private"] else facts["kind"]
    return f"{kind}; {facts['samples']:,} samples"


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
