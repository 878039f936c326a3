"""Checkpoints: a run's whole state on disk, so that a run that was stopped goes on unchanged.

A checkpoint is a pair of files. `round-000012.safetensors` has all tensors of the server's
state; `round-000012.json` vouches for it, with its size and SHA-256, and for itself, with a seal.
The JSON is written last: a checkpoint without it does not exist. Every file appears complete or
not at all, whenever the process is killed, and one that was damaged later is refused, not used.
"""

import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import torch

from potluck.engines import ServerState
from potluck.errors import PotluckError
from potluck.messages import SiteState, Tensors
from potluck.study.files import RESTORE, read_sealed, writing
from potluck.study.tensor_files import read_tensors, write_tensors

# The groups of named tensors in a state, from the types: a new one cannot be forgotten here.
_SITE_PARTS = [field.name for field in fields(SiteState)]
_SERVER_PARTS = [
    field.name for field in fields(ServerState) if field.name not in ("round", "theta", "sites")
]


def save(state: ServerState, study_hash: str, folder: Path, keep: int = 2) -> Path:
    """Write a checkpoint, then delete the ones that are no longer needed.

    Args:
      state:      the server's state after a round.
      study_hash: of the study that the run follows.
      folder:     the run's checkpoints; made where it is missing.
      keep:       how many of the newest checkpoints to keep, this one among them.

    Returns:
      the checkpoint's JSON file.
    """
    if keep < 1:
        raise PotluckError(f"keep is {keep}; at least one checkpoint must be kept.")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    tensors = _flattened(state)
    facts = {
        "round": state.round,
        "study_hash": study_hash,
        "sites": list(state.sites),
        "tensors": list(tensors),
    }
    stem = folder / _stem(state.round)
    write_tensors(stem, tensors, facts)
    # Later rounds belong to a continuation that was given up for an older checkpoint.
    kept = [number for number in available(folder) if number <= state.round][:keep]
    _prune(folder, {_stem(number) for number in kept})
    return stem.with_suffix(".json")


class Writer:
    """Writes checkpoints in the background, one after another, so that rounds need not wait.

    A problem with writing is raised by the next call. States are never changed, only replaced:
    what is being written stays as it is. Leaving the context waits for the last checkpoint.

    Args:
      study_hash: of the study that the run follows.
      folder:     the run's checkpoints.
    """

    def __init__(self, study_hash: str, folder: Path) -> None:
        self._study_hash, self._folder = study_hash, folder
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Path] | None = None

    def save(self, state: ServerState) -> None:
        """Write a checkpoint of this state, after the one before is written."""
        self.wait()
        self._last = self._pool.submit(save, state, self._study_hash, self._folder)

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        if self._last is not None:
            self._last.result()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *problem: object) -> None:
        self._pool.shutdown()
        self.wait()


def available(folder: Path) -> list[int]:
    """The rounds that have a checkpoint, newest first."""
    found = (re.fullmatch(r"round-(\d{6,})\.json", path.name) for path in folder.glob("*.json"))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def load(
    folder: Path, study_hash: str, device: torch.device | str = "cpu", skip: int = 0
) -> ServerState:
    """Read the newest checkpoint, or an older one on request; never an older one by itself.

    Args:
      folder:     the checkpoints of a run: `checkpoints` in its run folder.
      study_hash: of the study that is to go on.
      device:     where the tensors go.
      skip:       how many of the newest checkpoints to pass over.

    Raises:
      PotluckError: there is no such checkpoint, it is damaged, or it belongs to another study.
        Where an older one would do, the message says how to use it.
    """
    rounds = available(folder)
    if not rounds:
        raise PotluckError(
            f"{folder}: there is no checkpoint; the run stopped before it wrote one. "
            "Start it anew with another --out."
        )
    if skip >= len(rounds):
        raise PotluckError(
            f"{folder}: the oldest checkpoint there is that of round {rounds[-1]}; there is no "
            "previous one. Resume without --previous."
        )
    try:
        return _read(folder, rounds[skip], study_hash, device)
    except PotluckError as error:
        older = _older(folder, rounds[skip + 1 :], study_hash)
        if older is None:
            raise
        again = " --previous" * rounds.index(older)
        raise PotluckError(
            f"{error} Or go on from the checkpoint of round {older}, which is whole: "
            f"potluck resume {folder.parent}{again}"
        ) from None


def _read(
    folder: Path, round_number: int, study_hash: str, device: torch.device | str
) -> ServerState:
    stem = folder / _stem(round_number)
    path = stem.with_suffix(".json")
    facts = read_sealed(path)
    if facts["study_hash"] != study_hash:
        raise PotluckError(
            f"{path}: made by another study (hash {facts['study_hash']}, not {study_hash}): the "
            "study was changed after the run started. Undo the change, or start a new run with "
            "another --out."
        )
    tensors = read_tensors(stem, facts, device)
    for name in facts["tensors"]:
        if name not in tensors:
            path = stem.with_suffix(".safetensors")
            raise PotluckError(f'{path}: the tensor "{name}" is missing. {RESTORE}')
    return _restored(facts, tensors)


def _older(folder: Path, rounds: list[int], study_hash: str) -> int | None:
    """The newest of some rounds whose checkpoint is whole."""
    for round_number in rounds:
        try:
            _read(folder, round_number, study_hash, "cpu")
        except PotluckError:
            continue
        return round_number
    return None


def _prune(folder: Path, kept: set[str]) -> None:
    """Delete all checkpoints but some, and what a killed process left half-written."""
    with writing(folder):
        for path in [*folder.glob("round-*.tmp"), *folder.glob("round-*.json")]:
            if path.stem not in kept:
                path.unlink()
        # After the JSON: so a kill in between leaves no checkpoint without its tensors.
        for path in folder.glob("round-*.safetensors"):
            if path.stem not in kept:
                path.unlink()


def _stem(round_number: int) -> str:
    return f"round-{round_number:06d}"


def _flattened(state: ServerState) -> Tensors:
    """All tensors under names like `theta`, `buffers/NAME` or `sites/SITE/optimiser/NAME`.

    Parts are percent-encoded, so that a slash always separates them.
    """
    groups: dict[tuple[str, ...], Tensors] = {
        (part,): getattr(state, part) for part in _SERVER_PARTS
    }
    for site, kept in state.sites.items():
        groups |= {("sites", site, part): getattr(kept, part) for part in _SITE_PARTS}
    return {"theta": state.theta} | {
        "/".join(quote(part, safe="", errors="surrogatepass") for part in (*address, name)): tensor
        for address, tensors in groups.items()
        for name, tensor in tensors.items()
    }


def _restored(facts: Mapping[str, Any], tensors: Tensors) -> ServerState:
    """The inverse of `_flattened`; sites that kept nothing are known by name alone."""
    server: dict[str, Tensors] = {part: {} for part in _SERVER_PARTS}
    sites: dict[str, dict[str, Tensors]] = {
        site: {part: {} for part in _SITE_PARTS} for site in facts["sites"]
    }
    for flat in facts["tensors"]:
        match [unquote(part, errors="surrogatepass") for part in flat.split("/")]:
            case ["sites", site, part, name]:
                sites[site][part][name] = tensors[flat]
            case [part, name]:
                server[part][name] = tensors[flat]
    return ServerState(
        round=facts["round"],
        theta=tensors["theta"],
        sites={site: SiteState(**parts) for site, parts in sites.items()},
        **server,
    )
