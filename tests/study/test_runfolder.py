import json
import math
import os
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from potluck.engines import Recipe, Record, Sequential, ServerState, run, start
from potluck.errors import PotluckError
from potluck.federated import Scaffold
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace, exact
from potluck.local import SGD, LocalTraining
from potluck.methods import Likelihood
from potluck.models import as_classifier, build
from potluck.models.network import Network
from potluck.study import checkpoint
from potluck.study.runfolder import RunFolder, hash_of
from potluck.training import Trained

STUDY = {"name": "wards", "rounds": 3, "local": {"lr": 0.1, "clip": None}, "classes": ["a", "ß"]}
HASH = hash_of(STUDY)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "wards", STUDY, HASH)


# The hash of a study


def test_the_hash_is_stable() -> None:
    """Runs of earlier versions must stay resumable: this value may never change."""
    assert hash_of({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == "5ae6711a7b0bec94"


def test_the_hash_sees_values_but_not_the_order_of_keys() -> None:
    assert hash_of(dict(reversed(STUDY.items()))) == HASH
    assert hash_of({**STUDY, "rounds": 4}) != HASH
    assert hash_of({**STUDY, "classes": ["ß", "a"]}) != HASH
    assert hash_of({**STUDY, "extra": None}) != HASH


def test_the_hash_survives_the_way_through_the_file(folder: RunFolder) -> None:
    assert hash_of(folder.study()) == HASH


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_study_with_a_number_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    study = {"local": {"clip": value}}
    with pytest.raises(PotluckError, match="not finite"):
        hash_of(study)
    with pytest.raises(PotluckError, match="not finite"):
        RunFolder.create(tmp_path / "run", study, "x")
    assert not (tmp_path / "run").exists()


# Creating and opening


def test_a_new_run_folder_holds_the_study(folder: RunFolder) -> None:
    again = RunFolder.open(folder.path)
    assert again == folder
    assert again.study() == STUDY
    assert again.study_hash() == HASH
    assert again.history() == []
    assert not again.finished
    assert [path.name for path in folder.path.iterdir()] == ["study.json"]


def test_the_hash_is_the_one_given(tmp_path: Path) -> None:
    """A caller may leave out of the hash what does not change the results."""
    assert RunFolder.create(tmp_path, STUDY, "mine").study_hash() == "mine"


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, STUDY, HASH).study() == STUDY


def test_a_run_is_never_overwritten(folder: RunFolder) -> None:
    with pytest.raises(PotluckError, match="there is a run here already") as caught:
        RunFolder.create(folder.path, STUDY, HASH)
    assert f"potluck resume {folder.path}" in str(caught.value)
    assert "--out" in str(caught.value)


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(PotluckError, match=r"not empty.*potluck resume.*another --out"):
        RunFolder.create(tmp_path, STUDY, HASH)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(PotluckError, match=r"run: this is a file.*--out"):
        RunFolder.create(tmp_path / "run", STUDY, HASH)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PotluckError, match=r"cannot be written \(Not a directory\)"):
        RunFolder.create(tmp_path / "file" / "run", STUDY, HASH)


def test_opening_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(PotluckError, match=r"not a run folder: it has no study.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(PotluckError, match=r"not a run folder: there is no such folder"):
        RunFolder.open(tmp_path / "nowhere")


def test_a_study_edited_after_the_run_started_is_refused(folder: RunFolder) -> None:
    path = folder.path / "study.json"
    path.write_text(path.read_text().replace('"rounds": 3', '"rounds": 5'))
    with pytest.raises(PotluckError, match=r"study.json: changed since it was written"):
        RunFolder.open(folder.path).study()


# The history


def test_history_gives_back_what_was_appended(folder: RunFolder) -> None:
    records = [{"round": i, "lr": 0.1 / i, "cohort": ["a", "東京"], "sites": {}} for i in (1, 2, 3)]
    for record in records:
        folder.append(record)
    assert folder.history() == records
    assert len((folder.path / "history.jsonl").read_text().splitlines()) == 3


def test_history_is_strict_json(folder: RunFolder) -> None:
    losses = {"loss": math.nan, "bound": -math.inf, "fine": 1.5}
    folder.append({"round": 1, "sites": {"a": losses}, "test": {"per_class": (math.inf, 0.5)}})
    text = (folder.path / "history.jsonl").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert folder.history() == [
        {
            "round": 1,
            "sites": {"a": {"loss": None, "bound": None, "fine": 1.5}},
            "test": {"per_class": [None, 0.5]},
        }
    ]


def test_a_half_written_last_line_is_dropped_wherever_it_ends(folder: RunFolder) -> None:
    for i in (1, 2):
        folder.append({"round": i, "lr": 0.1})
    path = folder.path / "history.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        assert [record["round"] for record in folder.history()] == [1]
    folder.truncate_history(1)
    folder.append({"round": 2, "lr": 0.1})
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", ["{", "", "7", '{"lr": 0.1}', '{"round": "2"}', "\x00"])
def test_a_damaged_line_is_named(folder: RunFolder, line: str) -> None:
    (folder.path / "history.jsonl").write_text(f'{{"round": 1}}\n{line}\n{{"round": 3}}\n')
    with pytest.raises(PotluckError, match=r"history.jsonl: line 2 .*backup"):
        folder.history()


def test_truncating_keeps_the_rounds_of_the_checkpoint(folder: RunFolder) -> None:
    for i in range(1, 6):
        folder.append({"round": i})
    folder.truncate_history(3)
    assert [record["round"] for record in folder.history()] == [1, 2, 3]
    folder.truncate_history(9)
    assert [record["round"] for record in folder.history()] == [1, 2, 3]
    folder.truncate_history(0)
    assert folder.history() == []


def test_truncating_a_history_that_was_never_begun(folder: RunFolder) -> None:
    folder.truncate_history(0)
    assert folder.history() == []


def test_a_failed_truncation_leaves_the_history_whole(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder.append({"round": 1})
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PotluckError, match=r"history.jsonl: cannot be written \(No space left"):
        folder.truncate_history(0)
    assert folder.history() == [{"round": 1}]
    assert not list(folder.path.glob("*.tmp"))


def test_a_full_disk_while_appending_is_explained(folder: RunFolder) -> None:
    folder.append({"round": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(PotluckError, match=r"history.jsonl: cannot be written"):
            folder.append({"round": 2, "note": "x" * 200})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.history() == [{"round": 1}]


# The final model

MODELS = [
    ({"name": "linear"}, (64,)),
    ({"name": "mlp", "hidden": (16, 8), "dropout": 0.1}, (1, 8, 8)),
    ({"name": "lenet"}, (1, 4, 4)),
]


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
    folder.save_model(original, model, shape)
    assert folder.finished
    found = RunFolder.open(folder.path).load_model()
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
    folder.save_model(original, model, shape)
    tensors = safetensors.torch.load_file(folder.path / "model.safetensors")
    module = build(input_shape=shape, classes=3, **model).eval()
    module.load_state_dict(tensors)
    inputs = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module(inputs), original.module()(inputs))


def test_the_model_says_how_it_was_made_but_not_who_has_what(folder: RunFolder) -> None:
    model, shape = MODELS[1]
    made = {"method": "likelihood", "test": {"accuracy": 0.9, "per_class": [math.nan, 1.0]}}
    folder.save_model(trained(model, shape), model, shape, made)
    facts = folder.model_facts()
    assert facts["classes"] == ["cat", "dog", "Süß/wasser"]
    assert facts["input_shape"] == [1, 8, 8]
    assert facts["model"] == {"name": "mlp", "hidden": [16, 8], "dropout": 0.1}
    assert facts["rounds"] == 2
    assert facts["study_hash"] == HASH
    assert facts["made"] == {
        "method": "likelihood",
        "test": {"accuracy": 0.9, "per_class": [None, 1.0]},
    }
    assert "study" not in facts


def test_a_run_without_a_model_is_not_finished(folder: RunFolder) -> None:
    folder.append({"round": 1})
    with pytest.raises(PotluckError, match=r"no final model yet \(rounds done: 1\)") as caught:
        folder.load_model()
    assert f"potluck resume {folder.path}" in str(caught.value)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_damaged_model_is_refused(folder: RunFolder, name: str) -> None:
    model, shape = MODELS[0]
    folder.save_model(trained(model, shape), model, shape)
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
                folder.load_model()
            assert f"delete {folder.path / 'model.json'}" in str(caught.value)
    path.write_bytes(whole)
    assert folder.load_model().state.round == 2


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
    folder.save_model(replace(original, state=state), model, shape)
    with pytest.raises(PotluckError, match=r'"encoder.normalise.st[dx]" is the first to differ'):
        folder.load_model()


def test_the_model_can_be_made_again(folder: RunFolder) -> None:
    model, shape = MODELS[0]
    folder.save_model(trained(model, shape), model, shape)
    (folder.path / "model.json").unlink()
    assert not folder.finished
    (folder.path / "model.safetensors.tmp").write_bytes(b"left by a kill")
    folder.save_model(trained(model, shape), model, shape)
    assert folder.load_model().state.round == 2
    assert not list(folder.path.glob("*.tmp"))


# kill -9

ROUNDS = 80


@dataclass(frozen=True)
class Remembering(Likelihood):
    """A method whose states, at the sites and at the server, change every later step."""

    def start(self, site):
        return {"seen": torch.zeros(len(site), dtype=torch.int64)}

    def loss(self, model, site, plan, batch, shared, state):
        value, _ = super().loss(model, site, plan, batch, shared, state)
        seen = state["seen"].index_add(0, batch.index, torch.ones_like(batch.index))
        factor = shared["level"] + 1 / seen[batch.index].double().mean()
        return value * factor.float(), {"seen": seen}

    def report(self, model, site, plan, state):
        return {"seen": state["seen"].double().mean()}

    def server_start(self, network, federation):
        return {"level": torch.ones((), dtype=torch.float64)}

    def share(self, server, site):
        return server

    def conclude(self, server, extras):
        return {"level": 0.9 * server["level"] + 0.1 / extras["seen"]}


def small_federation(data: Path) -> tuple[Network, Recipe, Federation]:
    """Three sites of digits; SCAFFOLD, kept momentum and local batch norm, so all states matter."""
    stored = safetensors.torch.load_file(data)
    view = exact(LabelSpace.numbered(10))
    sites = [
        Site(f"site {i}/3", stored["inputs"][i::3], view, stored["classes"][i::3]) for i in range(3)
    ]
    recipe = Recipe(
        rounds=ROUNDS,
        seed=3,
        method=Remembering(),
        federated=Scaffold(),
        local=LocalTraining(lr=0.02, optimiser=SGD(momentum=0.8), optimiser_state="keep"),
        cohort=2,
        batch_norm="local",
    )
    module = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1, generator=generator)
    return Network(as_classifier(module)), recipe, Federation.of(sites)


def train_or_go_on(path: Path, data: Path) -> None:
    """What a process does that may be killed at any moment."""
    folder = RunFolder.open(path)
    network, recipe, federation = small_federation(data)
    if checkpoint.available(folder.checkpoints):
        state = checkpoint.load(folder.checkpoints, folder.study_hash())
    else:
        state = start(network, recipe, federation, torch.device("cpu"))
    folder.truncate_history(state.round)

    def keep(state: ServerState, record: Record) -> None:
        folder.append(record)
        checkpoint.save(state, HASH, folder.checkpoints)

    run(network, recipe, federation, Sequential(), state, keep)


def launch(path: Path, data: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, __file__, str(path), str(data)], env=environment)


def test_a_run_killed_again_and_again_ends_like_one_never_stopped(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits  # here: children need not import it

    data = tmp_path / "digits.safetensors"
    inputs, classes = (torch.from_numpy(part[:300]) for part in load_digits(return_X_y=True))
    safetensors.torch.save_file({"inputs": inputs.float() / 16, "classes": classes.long()}, data)

    network, recipe, federation = small_federation(data)
    undisturbed: list[Record] = []
    state = start(network, recipe, federation, torch.device("cpu"))
    expected = run(
        network,
        recipe,
        federation,
        Sequential(),
        state,
        lambda _, record: undisturbed.append(record),
    )
    for kept in expected.sites.values():
        assert all([kept.method, kept.federated, kept.optimiser, kept.buffers])

    folder = RunFolder.create(tmp_path / "run", STUDY, HASH)
    history = folder.path / "history.jsonl"
    rng = random.Random(1)
    killed = 0
    for _ in range(3):
        lines = len(folder.history())
        process = launch(folder.path, data)
        target = lines + rng.randint(2, 6)
        while process.poll() is None and (
            not history.exists() or history.read_bytes().count(b"\n") < target
        ):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))  # so as to hit any moment of a round
        process.kill()
        killed += process.wait() == -9
        assert len(folder.history()) >= target
    assert killed >= 2, "the rounds are too fast to be killed midway; make them longer"
    assert launch(folder.path, data).wait(timeout=120) == 0

    found = checkpoint.load(folder.checkpoints, HASH)
    assert found.round == ROUNDS
    assert found.theta.numpy().tobytes() == expected.theta.numpy().tobytes()
    for name, kept in expected.sites.items():
        for part in ("method", "federated", "optimiser", "buffers"):
            for key, tensor in getattr(kept, part).items():
                assert torch.equal(getattr(found.sites[name], part)[key], tensor)
    for record, other in zip(folder.history(), undisturbed, strict=True):
        assert {**record, "seconds": 0} == {**other, "seconds": 0}


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_or_go_on(Path(sys.argv[1]), Path(sys.argv[2]))
