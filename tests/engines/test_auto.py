"""`auto` chooses by the study alone, and says what it chose."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import potluck as pl
from potluck.engines import Auto, Sequential, Stacked, Threaded, run, start
from potluck.engines.auto import choose_engine, for_gpu, operations
from potluck.engines.engine import Orders
from potluck.models import as_classifier, build
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


class Noise(nn.Sequential):
    """A model with a layer that draws for itself."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.RReLU(), nn.Linear(64, 3))


def chosen(model, sites, rounds, cores):
    recipe = pl.Recipe(rounds=rounds, local=pl.LocalTraining(batch_size=4))
    made = build(model, (1, 8, 8), 3) if isinstance(model, str) else as_classifier(model)
    people = federation(sites)
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        return choose_engine(Orders(Network(made), recipe, people.sites, {}, lambda site: None))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("model", "sites", "rounds", "engine", "reason"),
    [
        ("mlp", 1, 10**6, Sequential(), "one site at a time"),
        ("mlp", 5, 10, Threaded(), "each core trains its own sites; the run is too short"),
        ("mlp", 5, 10**5, Stacked(compile=True), "saves about"),
        ("lenet", 5, 2, Threaded(), "each core trains its own sites; the run is too short"),
        ("lenet", 5, 10**5, Threaded(compile=True), "its own sites; compiling takes about"),
        (Noise(), 5, 10, Sequential(), "too short for compiling"),
        (Noise(), 5, 10**5, Stacked(compile=True), "saves about"),
    ],
)
def test_the_choice_on_a_cpu_weighs_compiling_against_the_length_of_the_run(
    model, sites, rounds, engine, reason
):
    found, why = chosen(model, sites, rounds, cores=2)
    assert type(found) is type(engine)
    assert getattr(found, "compile", None) == getattr(engine, "compile", None)
    assert reason in why


@pytest.mark.parametrize(
    ("model", "rounds", "engine"),
    [("lenet", 2, Sequential()), ("mlp", 10**5, Stacked()), ("lenet", 10**5, Threaded())],
)
def test_one_core_is_not_shared(model, rounds, engine):
    found, why = chosen(model, 5, rounds, cores=1)
    assert type(found) is type(engine)
    assert "each core" not in why


@pytest.mark.parametrize(
    ("model", "sites", "batch", "streams", "group"),
    [
        ("mlp", 100, 4, 4, 25),  # small steps are stacked, whatever the batch
        ("mlp", 100, 4096, 4, 25),
        ("mlp", 1, 4, 1, 1),
        ("cnn", 10, 1, 4, 3),
        ("cnn", 10, 512, 10, 1),  # convolutions that are work enough by themselves are not
        ("cnn", 3, 512, 3, 1),
        ("resnet18", 10, 4, 5, 1),  # 11 million parameters
        (Noise(), 10, 4, 1, 10),
    ],
)
@pytest.mark.parametrize("rounds", [1, 10**6])
def test_the_choice_on_a_gpu_weighs_the_arithmetic_of_a_step(
    model, sites, batch, streams, group, rounds
):
    recipe = pl.Recipe(rounds=rounds, local=pl.LocalTraining(batch_size=batch))
    made = build(model, (1, 8, 8), 3) if isinstance(model, str) else as_classifier(model)
    people = federation(sites, samples=512)
    engine, why = for_gpu(Orders(Network(made), recipe, people.sites, {}, lambda site: None))
    assert (engine.streams, engine.group) == (streams, group)
    assert engine.compile == (rounds > 1)
    assert ("too short for compiling" in why) == (rounds == 1)


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


def test_the_server_trains_on_an_engine_of_its_own():
    """The sites' choice does not matter: a server is one site, with all cores."""
    recipe, joint = pl.Recipe(rounds=10**6), federation(3)
    network, engine = Network(build("mlp", (1, 8, 8), 3)), Auto()

    sites = Orders(network, recipe, joint.sites, {}, lambda site: None)
    server = Orders(network, recipe, joint.sites[:1], {}, lambda site: None)
    for orders in (sites, server, sites):
        engine.run(orders)
    for_sites, for_server = engine._choices
    assert isinstance(for_sites.engine, Stacked)
    assert isinstance(for_server.engine, Sequential)
    assert len(engine.remarks) == 1
    assert "stacked" in engine.remarks[0]
