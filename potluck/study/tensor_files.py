"""Named tensors on disk, as a pair of files (`files.py`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from potluck.messages import Tensors
from potluck.study.files import read_pair, write_pair


def write_tensors(stem: Path, tensors: Tensors, facts: Mapping[str, Any]) -> None:
    """Write named tensors, and the JSON that vouches for them.

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
    write_pair(stem, data, facts)


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
    tensors = read_pair(stem, facts, safetensors.torch.load)
    # In memory that torch allocated: results of vectorised code may depend on the alignment.
    return {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}
