"""Finding files, and saying what was looked for when they are not there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from potluck.data.dataset import Split
from potluck.errors import PotluckError


def require_file(path: Path | str) -> Path:
    """The path, if a file is there."""
    path = Path(path)
    if path.is_dir():
        raise PotluckError(f'"{path}" is a folder; a file is needed here.')
    if not path.is_file():
        raise PotluckError(f'file "{path}" does not exist; check its name and folder.')
    return path


def require_folder(path: Path | str) -> Path:
    """The path, if a folder is there."""
    path = Path(path)
    if path.is_file():
        raise PotluckError(f'"{path}" is a file; a folder is needed here.')
    if not path.is_dir():
        raise PotluckError(f'folder "{path}" does not exist; check its name.')
    return path


@dataclass(frozen=True)
class Layout:
    """One way a data set may lie on disk.

    Attributes:
      form:   what the format is called, for messages.
      marker: the file (a glob) whose presence shows this format.
      read:   reads the data set from the folder with the marker.
    """

    form: str
    marker: str
    read: Callable[[Path], Split]


def read_layout(
    name: str, path: Path | str | None, folders: Sequence[str], layouts: Sequence[Layout]
) -> Split:
    """Read a data set in whichever format is there.

    Args:
      name:    the data set, for messages.
      path:    a folder with the files, or with one of `folders`; or a marker file itself.
      folders: sub-folders the releases of this data set unpack to.
      layouts: the formats, in order of preference.

    Returns:
      The data set from the first format found, in `path` itself before its sub-folders.
    """
    if path is None:
        raise PotluckError(f'data set "{name}" needs a path: the folder its files are in.')
    path = Path(path)
    if not path.exists():
        raise PotluckError(f'path "{path}" of data set "{name}" does not exist.')
    places = [path.parent] if path.is_file() else [path, *(path / folder for folder in folders)]
    for place in places:
        for layout in layouts:
            found = [file for file in place.glob(layout.marker) if file.is_file()]
            if path in found or (found and path.is_dir()):
                return layout.read(place)
    forms = ", ".join(f"{layout.marker} ({layout.form})" for layout in layouts)
    looked = ", ".join(f'"{place}"' for place in ([path] if path.is_file() else places))
    raise PotluckError(f'no files of data set "{name}" found. Looked at {looked} for {forms}.')
