"""Checkpoints: a run's whole state on disk, so that a run that was stopped goes on unchanged.

A checkpoint is a pair of files. `round-000012.safetensors` has all tensors of the server's
state; `round-000012.json` vouches for it, with its size and SHA-256, and for itself, with a seal.
The JSON is written last: a checkpoint without it does not exist. Every file appears complete or
not at all, whenever the process is killed, and one that was damaged later is refused, not used.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from potluck import __version__
from potluck.engines import ServerState
from potluck.errors import PotluckError
from potluck.messages import SiteState, Tensors

FORMAT = 1
"""Version of the files in a run folder; higher ones are refused."""

# The groups of named tensors in a state, from the types: a new one cannot be forgotten here.
_SITE_PARTS = [field.name for field in fields(SiteState)]
_SERVER_PARTS = [
    field.name for field in fields(ServerState) if field.name not in ("round", "theta", "sites")
]
_RESTORE = "Restore it from a backup, or start the run anew with another --out."


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
    write_pair(stem, tensors, facts)
    # Later rounds belong to a continuation that was given up for an older checkpoint.
    kept = [number for number in available(folder) if number <= state.round][:keep]
    _prune(folder, {_stem(number) for number in kept})
    return stem.with_suffix(".json")


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


def write_pair(stem: Path, tensors: Tensors, facts: Mapping[str, Any]) -> None:
    """Write named tensors to `stem`.safetensors, then the JSON beside it that vouches for them.

    Args:
      stem:    the path of both files without their endings.
      tensors: on any device, of any layout; they may share memory.
      facts:   what else the JSON says.
    """
    # Not `save_file`: killed, it leaves a temporary file under a name of its own, and only the
    # owner may read what it writes.
    data = safetensors.torch.save(
        {
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
    )
    path = stem.with_suffix(".json")
    with writing(path):
        # Else a kill before the new JSON is there would leave the old one with new tensors.
        path.unlink(missing_ok=True)
    with written_whole(stem.with_suffix(".safetensors")) as temporary:
        temporary.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    write_sealed(path, {**facts, "bytes": len(data), "sha256": digest})


def read_tensors(
    stem: Path, facts: Mapping[str, Any], device: torch.device | str
) -> dict[str, Tensor]:
    """Read the tensors of a pair.

    Args:
      stem:   the path of both files without their endings.
      facts:  what the JSON says, from `read_sealed`.
      device: where the tensors go.

    Raises:
      PotluckError: the file is not the one that the JSON vouches for.
    """
    path = stem.with_suffix(".safetensors")
    with _reading(path):
        data = path.read_bytes()
    if len(data) < facts["bytes"]:
        raise PotluckError(
            f"{path}: cut short: {len(data)} of {facts['bytes']} bytes are left. {_RESTORE}"
        )
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise PotluckError(
            f"{path}: its bytes have changed since it was written (SHA-256 differs). {_RESTORE}"
        )
    try:
        tensors = safetensors.torch.load(data)
    except SafetensorError as error:
        raise PotluckError(f"{path}: not a safetensors file ({error}). {_RESTORE}") from None
    # In memory that torch allocated: results of vectorised code may depend on the alignment.
    return {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}


def write_sealed(path: Path, facts: Mapping[str, Any]) -> None:
    """Write JSON that says its format, who wrote it, and, by a seal, whether it was changed.

    Args:
      path:  the file.
      facts: JSON values; numbers must be finite.
    """
    facts = {"format": FORMAT, "potluck": __version__, "torch": torch.__version__, **facts}
    json.dumps(facts, allow_nan=False)  # a ValueError rather than a file that is not JSON
    with written_whole(path) as temporary:
        temporary.write_bytes(_sealed(facts))


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote.

    Raises:
      PotluckError: it is not JSON, has a newer format, or was changed.
    """
    with _reading(path):
        data = path.read_bytes()
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PotluckError(f"{path}: not readable as JSON ({error}). {_RESTORE}") from None
    version = facts.get("format") if isinstance(facts, dict) else None
    if not isinstance(version, int):
        raise PotluckError(f"{path}: the JSON does not say its format. {_RESTORE}")
    if version > FORMAT:
        raise PotluckError(
            f"{path}: format {version}, written by potluck {facts.get('potluck')}; this is "
            f"potluck {__version__}, which reads formats up to {FORMAT}. Upgrade potluck."
        )
    facts.pop("seal", None)
    if data != _sealed(facts):
        raise PotluckError(f"{path}: changed since it was written (its seal is broken). {_RESTORE}")
    return facts


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Let a file appear complete or not at all, even if the machine stops meanwhile.

    Yields:
      the temporary path to write to, in the same folder.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with writing(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk has no room for half a file
            raise
        _sync_folder(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Explain a full disk or missing permissions."""
    try:
        yield
    except OSError as error:
        raise PotluckError(
            f"{path}: cannot be written ({error.strerror}). Free some space or mend the "
            "permissions; what was written before is unharmed."
        ) from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PotluckError(f"{path}: cannot be read ({error.strerror}). {_RESTORE}") from None


def _sync_folder(folder: Path) -> None:
    """Make a renaming last; only POSIX systems can open a folder for this."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sealed(facts: Mapping[str, Any]) -> bytes:
    """The content of a sealed file; a function of the facts, so that reading can compare."""
    seal = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return (json.dumps({**facts, "seal": seal}, indent=1) + "\n").encode()


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
            raise PotluckError(f'{path}: the tensor "{name}" is missing. {_RESTORE}')
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
