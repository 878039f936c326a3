"""A run that is killed, however often, ends like one that was never stopped."""

import random
import signal
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import safetensors.torch
import torch
from commands import SERVER
from torch import nn

from potluck.engines import Recipe, Sequential, ServerState, run, start
from potluck.federated import Scaffold
from potluck.federation import Federation, Site
from potluck.history import Record
from potluck.labels import LabelSpace, exact
from potluck.local import SGD, LocalTraining
from potluck.methods import Likelihood
from potluck.models import as_classifier
from potluck.models.network import Network
from potluck.study import checkpoint
from potluck.study.runfolder import RunFolder

HASH = "the hash"
ROUNDS = 50


@dataclass(frozen=True)
class Remembering(Likelihood):
    """A method whose states, at the sites and at the server, change every later step."""

    def start(self, site):
        return {"seen": torch.zeros(len(site), dtype=torch.int64)}

    def loss(self, step):
        value, _ = super().loss(step)
        index = step.batch.index
        seen = step.state["seen"].index_add(0, index, torch.ones_like(index))
        factor = step.shared["level"] + 1 / seen[index].double().mean()
        return value * factor.float(), {"seen": seen}

    def report(self, here, plan):
        return {"seen": here.state["seen"].double().mean()}

    def server_start(self, network, federation):
        return {"level": torch.ones((), dtype=torch.float64)}

    def share(self, server, site):
        return server

    def conclude(self, server, extras):
        return {"level": 0.9 * server["level"] + 0.1 / extras["seen"]}


def small_federation(data: Path) -> tuple[Network, Recipe, Federation]:
    """Three sites; SCAFFOLD, kept momentum and local batch norm, so all states matter."""
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
    torch.set_num_threads(1)
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


def launch(path: Path, data: Path) -> BaseProcess:
    """Train in a process of its own, a copy of one that has loaded torch."""
    process = SERVER.Process(target=train_or_go_on, args=(path, data))
    process.start()
    return process


def test_a_run_killed_again_and_again_ends_like_one_never_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data.safetensors"
    generator = torch.Generator().manual_seed(2)
    classes = torch.arange(300) % 10
    inputs = torch.rand(10, 64, generator=generator)[classes]
    inputs = inputs + 0.3 * torch.randn(inputs.shape, generator=generator)
    safetensors.torch.save_file({"inputs": inputs, "classes": classes}, data)

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

    folder = RunFolder.create(tmp_path / "run", {"name": "wards"}, HASH)
    history = folder.path / "history.jsonl"
    rng = random.Random(1)
    killed = 0
    for _ in range(3):
        lines = len(folder.history())
        process = launch(folder.path, data)
        target = lines + rng.randint(2, 6)
        while process.is_alive() and (
            not history.exists() or history.read_bytes().count(b"\n") < target
        ):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.03))  # so as to hit any moment of a round
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        assert len(folder.history()) >= target
    assert killed >= 2, "the rounds are too fast to be killed midway; make them longer"
    last = launch(folder.path, data)
    last.join(600)
    assert last.exitcode == 0

    found = checkpoint.load(folder.checkpoints, HASH)
    assert found.round == ROUNDS
    assert found.theta.numpy().tobytes() == expected.theta.numpy().tobytes()
    for name, kept in expected.sites.items():
        for part in ("method", "federated", "optimiser", "buffers"):
            for key, tensor in getattr(kept, part).items():
                assert torch.equal(getattr(found.sites[name], part)[key], tensor)
    for record, other in zip(folder.history(), undisturbed, strict=True):
        assert {**record, "seconds": 0} == {**other, "seconds": 0}
