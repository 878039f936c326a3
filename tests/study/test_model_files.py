"""The final model in a run folder."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from potluck.engines import ServerState
from potluck.errors import PotluckError
from potluck.labels import LabelSpace
from potluck.models import build
from potluck.models.network import Network
from potluck.study.model_files import load_model, model_facts, save_model
from potluck.study.runfolder import RunFolder
from potluck.training import Trained

MODELS = [
    ({"name": "linear"}, (64,)),
    ({"name": "mlp", "hidden": (16, 8), "dropout": 0.1}, (1, 8, 8)),
    ({"name": "lenet"}, (1, 4, 4)),
]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"name": "wards"}, "the hash")


def trained(model: dict[str, object], shape: tuple[int, ...]) -> Trained:
    """A model whose every parameter and buffer differs from what `build` starts with."""
    generator = torch.Generator().manual_seed(5)
    statistics = {"mean": torch.rand(shape[0], generator=generator), "std": 0.3}
    network = Network(
        build(input_shape=shape, classes=3, generator=generator, **statistics, **model)
    )
    theta, buffers = network.initial()
    theta = theta + 0.1 * torch.randn(theta.shape, generator=generator)
    buffers = {
        name: value + (0.5 if value.is_floating_point() else 3) for name, value in buffers.items()
    }
    space = LabelSpace(("cat", "dog", "Süß/wasser"))
    history = [{"round": 1, "lr": 0.5}, {"round": 2, "lr": 0.25}]
    return Trained(space, network, ServerState(2, theta, buffers), history)


@pytest.mark.parametrize(("model", "shape"), MODELS, ids=["linear", "mlp", "lenet"])
def test_a_saved_model_predicts_the_same_bits(
    folder: RunFolder, model: dict[str, object], shape: tuple[int, ...]
) -> None:
    original = trained(model, shape)
    for record in original.history:
        folder.append(record)
    save_model(folder, original, model, shape)
    assert folder.finished
    found = load_model(RunFolder.open(folder.path))
    inputs = torch.randint(256, (20, *shape), generator=torch.Generator().manual_seed(1)).byte()
    assert torch.equal(found.probabilities(inputs), original.probabilities(inputs))
    assert found.predict(inputs) == original.predict(inputs)
    assert found.space == original.space
    assert found.history == original.history
    assert found.state.round == 2
    assert torch.equal(found.state.theta, original.state.theta)
    assert list(found.state.buffers) == list(original.state.buffers)
    for name, value in original.state.buffers.items():
        assert found.state.buffers[name].dtype == value.dtype
        assert torch.equal(found.state.buffers[name], value)


def test_the_model_file_has_the_names_of_an_ordinary_module(folder: RunFolder) -> None:
    model, shape = MODELS[1]
    original = trained(model, shape)
    save_model(folder, original, model, shape)
    tensors = safetensors.torch.load_file(folder.path / "model.safetensors")
    module = build(input_shape=shape, classes=3, **model).eval()
    module.load_state_dict(tensors)
    inputs = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module(inputs), original.module()(inputs))


def test_the_model_says_how_it_was_made_but_not_who_has_what(folder: RunFolder) -> None:
    model, shape = MODELS[1]
    made = {"method": "likelihood", "test": {"accuracy": 0.9, "per_class": [math.nan, 1.0]}}
    save_model(folder, trained(model, shape), model, shape, made)
    facts = model_facts(folder)
    assert facts["classes"] == ["cat", "dog", "Süß/wasser"]
    assert facts["input_shape"] == [1, 8, 8]
    assert facts["model"] == {"name": "mlp", "hidden": [16, 8], "dropout": 0.1}
    assert facts["rounds"] == 2
    assert facts["study_hash"] == "the hash"
    assert facts["made"] == {
        "method": "likelihood",
        "test": {"accuracy": 0.9, "per_class": [None, 1.0]},
    }
    assert "study" not in facts


def test_a_run_without_a_model_is_not_finished(folder: RunFolder) -> None:
    folder.append({"round": 1})
    with pytest.raises(PotluckError, match=r"no final model yet \(rounds done: 1\)") as caught:
        load_model(folder)
    assert f"potluck resume {folder.path}" in str(caught.value)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_damaged_model_is_refused(folder: RunFolder, name: str) -> None:
    model, shape = MODELS[0]
    save_model(folder, trained(model, shape), model, shape)
    path = folder.path / name
    whole = path.read_bytes()
    rng = random.Random(0)
    for position in rng.sample(range(len(whole)), 60):
        flipped = whole[position] ^ 1 << rng.randrange(8)
        for damaged in (
            whole[:position],
            whole[:position] + bytes([flipped]) + whole[position + 1 :],
        ):
            path.write_bytes(damaged)
            with pytest.raises(PotluckError, match=name) as caught:
                load_model(folder)
            assert f"delete {folder.path / 'model.json'}" in str(caught.value)
    path.write_bytes(whole)
    assert load_model(folder).state.round == 2


@pytest.mark.parametrize("change", ["missing", "superfluous", "reshaped"])
def test_a_model_that_this_version_would_build_otherwise_is_refused(
    folder: RunFolder, change: str
) -> None:
    model, shape = MODELS[1]
    original = trained(model, shape)
    buffers = dict(original.state.buffers)
    if change == "missing":
        del buffers["encoder.normalise.std"]
    elif change == "superfluous":
        buffers["encoder.normalise.stx"] = torch.ones(1)
    else:
        buffers["encoder.normalise.std"] = torch.ones(1)
    state = replace(original.state, buffers=buffers)
    save_model(folder, replace(original, state=state), model, shape)
    with pytest.raises(PotluckError, match=r'"encoder.normalise.st[dx]" is the first to differ'):
        load_model(folder)


def test_the_model_can_be_made_again(folder: RunFolder) -> None:
    model, shape = MODELS[0]
    save_model(folder, trained(model, shape), model, shape)
    (folder.path / "model.json").unlink()
    assert not folder.finished
    (folder.path / "model.safetensors.tmp").write_bytes(b"left by a kill")
    save_model(folder, trained(model, shape), model, shape)
    assert load_model(folder).state.round == 2
    assert not list(folder.path.glob("*.tmp"))
