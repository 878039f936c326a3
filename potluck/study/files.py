"""Files that appear complete or not at all, and whose damage is noticed.

Numbers go to a safetensors file with a JSON file beside it that vouches for them, by size and
SHA-256, and for itself, by a seal. The JSON is written last: without it, the pair does not exist.
Here the numbers are bytes; `array_files.py` and `tensor_files.py` know what they mean.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from potluck import __version__
from potluck.errors import PotluckError

Loaded = TypeVar("Loaded")

FORMAT = 1
"""Version of the files in a run folder; higher ones are refused."""

WRITERS = {"potluck": __version__, "torch": version("torch")}
"""Whose versions every sealed file says."""

RESTORE = "Restore it from a backup, or start the run anew with another --out."


def write_pair(stem: Path, data: bytes, facts: Mapping[str, Any]) -> None:
    """Write bytes to `stem`.safetensors, then the JSON beside it that vouches for them.

    Args:
      stem:  the path of both files without their endings.
      data:  the content of a safetensors file.
      facts: what else the JSON says.
    """
    path = stem.with_suffix(".json")
    with writing(path):
        # Else a kill before the new JSON is there would leave the old one with new numbers.
        path.unlink(missing_ok=True)
    with written_whole(stem.with_suffix(".safetensors")) as temporary:
        temporary.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    write_sealed(path, {**facts, "bytes": len(data), "sha256": digest})


def read_pair(stem: Path, facts: Mapping[str, Any], load: Callable[[bytes], Loaded]) -> Loaded:
    """Read what a pair holds.

    Args:
      stem:  the path of both files without their endings.
      facts: what the JSON says, from `read_sealed`.
      load:  what the bytes of a safetensors file mean.

    Raises:
      PotluckError: the file is not the one that the JSON vouches for.
    """
    path = stem.with_suffix(".safetensors")
    with _reading(path):
        data = path.read_bytes()
    if len(data) < facts["bytes"]:
        raise PotluckError(
            f"{path}: cut short: {len(data)} of {facts['bytes']} bytes are left. {RESTORE}"
        )
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise PotluckError(
            f"{path}: its bytes have changed since it was written (SHA-256 differs). {RESTORE}"
        )
    try:
        return load(data)
    except SafetensorError as error:
        raise PotluckError(f"{path}: not a safetensors file ({error}). {RESTORE}") from None


def write_sealed(path: Path, facts: Mapping[str, Any]) -> None:
    """Write JSON that says its format, who wrote it, and, by a seal, whether it was changed.

    Args:
      path:  the file.
      facts: JSON values; numbers must be finite.
    """
    facts = {"format": FORMAT, **WRITERS, **facts}
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
        raise PotluckError(f"{path}: not readable as JSON ({error}). {RESTORE}") from None
    version = facts.get("format") if isinstance(facts, dict) else None
    if not isinstance(version, int):
        raise PotluckError(f"{path}: the JSON does not say its format. {RESTORE}")
    if version > FORMAT:
        raise PotluckError(
            f"{path}: format {version}, written by potluck {facts.get('potluck')}; this is "
            f"potluck {__version__}, which reads formats up to {FORMAT}. Upgrade potluck."
        )
    facts.pop("seal", None)
    if data != _sealed(facts):
        raise PotluckError(f"{path}: changed since it was written (its seal is broken). {RESTORE}")
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


def check_writable(out: Path, what: str) -> None:
    """Find out before the work, not after.

    Args:
      out:  the file to write.
      what: the kind of file, for the message.
    """
    if out.is_dir():
        raise PotluckError(f"--out {out} is a folder; give the name of {what}.")
    if not out.parent.is_dir():
        raise PotluckError(f"--out {out}: there is no folder {out.parent}; make it first.")


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
        raise PotluckError(f"{path}: cannot be read ({error.strerror}). {RESTORE}") from None


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
