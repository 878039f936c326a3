"""The same study over Flower and in one process: the same bytes."""

from pathlib import Path

import pytest
import torch
from federations import SITES, a_grid, a_study, in_process, over_flower

from potluck.study.model_files import load_model
from potluck.study.schema import read_study

PAPERS = Path(__file__).parents[2] / "examples" / "papers"

OTHER_RECORDS = ("seconds", "bytes", "failed", "engine")
"""What a network adds or changes in a round's record."""


def assert_same(network, here):
    one, two = load_model(network), load_model(here)
    assert torch.equal(one.state.theta, two.state.theta)
    assert one.state.buffers.keys() == two.state.buffers.keys()
    for name, value in one.state.buffers.items():
        assert torch.equal(value, two.state.buffers[name]), name
    for sent, kept in zip(one.history, two.history, strict=True):
        assert {k: v for k, v in sent.items() if k not in OTHER_RECORDS} == {
            k: v for k, v in kept.items() if k not in OTHER_RECORDS
        }


@pytest.mark.parametrize(
    "file",
    [
        "fedmt-2023/table1.toml",
        "fedmt-2024/table2.toml",
        "fedul/mnist.toml",
        "private-label-sets/cifar10-private.toml",
        "fedpll-laar/cifar10.toml",
    ],
)
def test_a_study_of_each_paper_gives_the_same_bytes(file, tmp_path):
    study = read_study(PAPERS / file, ["rounds=2", "local.steps=3"], "small")
    grid = a_grid(study, tmp_path)
    assert_same(over_flower(study, grid, tmp_path / "flower"), in_process(study, tmp_path / "here"))


def test_a_head_that_no_site_trains_gives_the_same_bytes(tmp_path):
    """Evaluated and validated with, and kept, but never sent for training."""
    file = PAPERS / "private-label-sets" / "cifar10-private.toml"
    study = read_study(file, ["rounds=3", "local.steps=3", "method=potluck"], "small")
    grid = a_grid(study, tmp_path)
    network = over_flower(study, grid, tmp_path / "flower")
    assert "validation" in network.history()[-1]
    assert_same(network, in_process(study, tmp_path / "here"))
    averaged = study.model_copy(update={"method": {"name": "potluck", "head": "averaged"}})
    other = load_model(in_process(averaged, tmp_path / "averaged"))
    assert not torch.equal(load_model(network).state.theta, other.state.theta)


@pytest.mark.parametrize(
    "federated",
    [
        "fedprox",
        "scaffold",
        "fednova",
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
    ],
)
def test_every_federated_optimiser_gives_the_same_bytes(federated, tmp_path):
    study = a_study(federated=federated, cohort=4)
    grid = a_grid(study, tmp_path)
    assert_same(over_flower(study, grid, tmp_path / "flower"), in_process(study, tmp_path / "here"))


@pytest.mark.parametrize("batch_norm", ["local", "static"])
def test_batch_norm_and_validation_give_the_same_bytes(batch_norm, tmp_path):
    study = a_study(
        batch_norm=batch_norm,
        federated="fedbn" if batch_norm == "local" else "fedavg",
        model="lenet",
        run={"device": "cpu", "evaluate_every": 2},
        local={"lr": 0.05, "steps": 1},
        simulation={
            "dataset": "digits",
            "validation": 0.2,
            "sites": [{**SITES[i], "samples": 20} for i in (0, 4)],
        },
    )
    grid = a_grid(study, tmp_path)
    network = over_flower(study, grid, tmp_path / "flower")
    assert "validation" in network.history()[-1]
    assert_same(network, in_process(study, tmp_path / "here"))


@pytest.mark.parametrize("method", ["fedcorr", "rofl", "candidate-targets", "fedtrans", "fedrep"])
def test_methods_that_remember_or_send_more_give_the_same_bytes(method, tmp_path):
    sites = [
        {"name": "a", "samples": 40, "view": {"kind": "exact"}},
        {"name": "b", "samples": 50, "view": {"kind": "candidates", "rho": 0.2}},
    ]
    if method in ("fedtrans", "fedrep"):
        sites[1]["view"] = {"kind": "coarse", "mapping": {"x": list("012345"), "y": list("6789")}}
    study = a_study(method=method, rounds=3, simulation={"dataset": "digits", "sites": sites})
    grid = a_grid(study, tmp_path)
    assert_same(over_flower(study, grid, tmp_path / "flower"), in_process(study, tmp_path / "here"))


def test_the_history_has_the_bytes_of_every_site_in_every_round(tmp_path):
    study = a_study()
    grid = a_grid(study, tmp_path)
    run = over_flower(study, grid, tmp_path / "flower")
    carried = {node.name: node for node in grid.nodes.values()}
    for name, node in carried.items():
        counted = [record["bytes"][name] for record in run.history()]
        down, up = sum(map(len, node.received)), sum(map(len, node.sent))
        # What was counted is most of what was carried, which has the handshake and framing too.
        assert 0 < sum(one["down"] for one in counted) <= down
        assert 0 < sum(one["up"] for one in counted) <= up
    entries = len(load_model(run).network.layout)
    assert all(r["bytes"]["clinic"]["down"] >= 4 * entries for r in run.history())
