"""`auto` chooses by the study alone, and says what it chose."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import potluck as pl
from potluck.engines import Auto, Sequential, Stacked, run, start
from potluck.engines.auto import choose_engine, operations
from potluck.engines.engine import Orders
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace.numbered(3)


def federation(sites, samples=12):
    generator = torch.Generator().manual_seed(0)
    return pl.Federation.of(
        [
            pl.Site.of(
                f"site {number}",
                torch.rand(samples, 1, 8, 8, generator=generator),
                pl.exact(SPACE),
                torch.randint(0, 3, (samples,), generator=generator),
            )
            for number in range(sites)
        ]
    )


def chosen(model, sites, rounds):
    recipe = pl.Recipe(rounds=rounds, local=pl.LocalTraining(batch_size=4))
    network = Network(build(model, (1, 8, 8), 3))
    people = federation(sites)
    return choose_engine(Orders(network, recipe, people.sites, {}, lambda site: None))


@pytest.mark.parametrize(
    ("model", "sites", "rounds", "engine", "reason"),
    [
        ("mlp", 1, 10**6, Sequential(), "one site at a time"),
        ("mlp", 5, 10, Sequential(), "too short for compiling"),
        ("mlp", 5, 10**5, Stacked(compile=True), "saves about"),
        ("lenet", 5, 2, Sequential(), "too short for compiling"),
        ("lenet", 5, 10**4, Stacked(compile=True), "saves about"),
    ],
)
def test_the_choice_on_a_cpu_weighs_compiling_against_the_length_of_the_run(
    model, sites, rounds, engine, reason
):
    found, why = chosen(model, sites, rounds)
    assert type(found) is type(engine)
    assert getattr(found, "compile", None) == getattr(engine, "compile", None)
    assert reason in why


@pytest.mark.parametrize("model", ["linear", "mlp", "lenet", "resnet18", "mobilenet_v2"])
def test_operations_are_counted_as_torch_counts_them(model):
    network, sample = Network(build(model, (3, 32, 32), 5)), torch.ones(1, 3, 32, 32).byte()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.infer(*network.initial(), sample)
    assert operations(network, sample) == counter.get_total_flops()


def test_it_trains_like_the_engine_it_chose_and_the_history_says_which():
    recipe, people = pl.Recipe(rounds=2), federation(3)
    network = Network(build("mlp", (1, 8, 8), 3))
    records = []

    def theta(engine):
        state = start(network, recipe, people, torch.device("cpu"))
        return run(network, recipe, people, engine, state, lambda _, r: records.append(r)).theta

    assert torch.equal(theta(Auto()), theta(Sequential()))
    assert records[0]["engine"] == [
        "engine sequential: the run is too short for compiling to pay back."
    ]
    assert "engine" not in records[-1]
