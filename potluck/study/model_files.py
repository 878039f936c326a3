"""The final model in a run folder: `model.safetensors` and `model.json`.

The study itself is not copied into them: who gets the model need not learn which site has which
classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from potluck.engines import ServerState
from potluck.errors import PotluckError
from potluck.labels import LabelSpace
from potluck.models import build
from potluck.models.network import Network
from potluck.study.files import read_sealed
from potluck.study.runfolder import RunFolder, finite
from potluck.study.tensor_files import read_tensors, write_tensors
from potluck.training import Trained


def save_model(
    folder: RunFolder,
    trained: Trained,
    model: Mapping[str, Any],
    input_shape: Sequence[int],
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write the final model of a run; from then on the run is finished.

    Args:
      folder:      the run's.
      trained:     the model, with its label space and the number of rounds.
      model:       the `name` of the architecture and its options, for `models.build`.
      input_shape: (C, H, W) of an image or (D,) of a table row.
      made:        further JSON values that say how it was made, e.g. the method's name.
    """
    theta, buffers = trained.state.model
    facts = {
        "classes": list(trained.space),
        "input_shape": list(input_shape),
        "model": dict(model),
        "rounds": trained.state.round,
        "study_hash": folder.study_hash(),
        "made": finite(made or {}),
    }
    tensors = {**trained.network.layout.unflatten(theta), **buffers}
    write_tensors(folder.model, tensors, facts)


def load_model(folder: RunFolder, device: torch.device | str = "cpu") -> Trained:
    """The final model of a run, ready to predict and evaluate, with the run's history.

    Args:
      folder: the run's.
      device: where it is to run.

    Raises:
      PotluckError: the run is not finished, or the model's files are damaged.
    """
    if not folder.finished:
        raise PotluckError(
            f"{folder.path}: the run has no final model yet (rounds done: "
            f"{len(folder.history())}). Finish it: potluck resume {folder.path}"
        )
    try:
        return _read(folder, device)
    except PotluckError as error:
        raise PotluckError(
            f"{error} Or delete {folder.model.with_suffix('.json')} and make the model again "
            f"from the last checkpoint: potluck resume {folder.path}"
        ) from None


def model_facts(folder: RunFolder) -> dict[str, Any]:
    """What model.json says: classes, input shape, model, rounds, study hash, versions, made."""
    return read_sealed(folder.model.with_suffix(".json"))


def _read(folder: RunFolder, device: torch.device | str) -> Trained:
    facts = model_facts(folder)
    tensors = read_tensors(folder.model, facts, device)
    space = LabelSpace(tuple(facts["classes"]))
    shape = tuple(facts["input_shape"])
    network = Network(build(**facts["model"], input_shape=shape, classes=len(space)))
    layout, (_, buffers) = network.layout, network.initial()
    built = dict(zip(layout.names, layout.shapes, strict=True))
    built |= {name: buffer.shape for name, buffer in buffers.items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if odd := [name for name in {**built, **found} if built.get(name) != found.get(name)]:
        raise PotluckError(
            f"{folder.model.with_suffix('.safetensors')}: the tensors are not those of the "
            f'model that this potluck builds; "{odd[0]}" is the first to differ. Use potluck '
            f"{facts['potluck']}, which wrote it."
        )
    state = ServerState(
        round=facts["rounds"],
        theta=layout.flatten(tensors),
        buffers={name: tensors[name] for name in buffers},
    )
    return Trained(space, network, state, folder.history())
