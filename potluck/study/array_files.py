"""Named arrays on disk, as a pair of files (`files.py`): what is shown, which needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray

from potluck.study.files import read_pair, write_pair

Array = NDArray[Any]


def write_arrays(stem: Path, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    """Write named arrays, and the JSON that vouches for them.

    Args:
      stem:   the path of both files without their endings.
      arrays: of any layout.
      facts:  what else the JSON says.
    """
    write_pair(stem, safetensors.numpy.save(dict(arrays)), facts)


def read_arrays(stem: Path, facts: Mapping[str, Any]) -> dict[str, Array]:
    """Read the arrays of a pair.

    Args:
      stem:  the path of both files without their endings.
      facts: what the JSON says, from `read_sealed`.

    Raises:
      PotluckError: the file is not the one that the JSON vouches for.
    """
    return read_pair(stem, facts, safetensors.numpy.load)
