"""The threaded engine agrees with the sequential reference, whoever is quicker."""

import threading
import time

import pytest
import torch
from test_stacked import SPACE, Noise, assert_agree, federation, network, trained, with_body
from test_stacked_methods import suitable
from torch import nn

import potluck as pl
from potluck.engines import Threaded
from potluck.methods import METHODS

__all__ = ["federation"]  # a fixture


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_agrees(name):
    recipe = pl.Recipe(
        rounds=2, method=METHODS[name](), local=pl.LocalTraining(lr=0.05, batch_size=16)
    )
    assert_agree(recipe, suitable(recipe.method), network("mlp"), Threaded(3))


def test_batch_norm_and_a_federated_optimiser_with_a_memory_agree(federation):
    recipe = pl.Recipe(rounds=3, federated=pl.Scaffold(), cohort=7)
    assert_agree(recipe, federation, network("convolutional"), Threaded(2))


def test_dropout_agrees(federation):
    recipe = pl.Recipe(rounds=2, local=pl.LocalTraining(batch_size=8))
    assert_agree(recipe, federation, with_body(nn.Conv2d(1, 4, 3), nn.Dropout(0.5)), Threaded(3))


def test_compiled_steps_agree(federation):
    alike = [
        pl.Site.of(f"site {n}", site.inputs[:19], pl.exact(SPACE), torch.arange(19) % 10)
        for n, site in enumerate(federation.sites[:6])
    ]
    recipe = pl.Recipe(rounds=2, local=pl.LocalTraining(batch_size=8))
    engine = Threaded(2, group=2, compile=True)
    dropping = with_body(nn.Conv2d(1, 4, 3), nn.Dropout(0.5))
    assert_agree(recipe, pl.Federation.of(alike), dropping, engine)
    assert len(engine._compiled) == 1


def test_threads_share_the_cores_and_give_them_back(federation):
    used = set()

    class Watching(pl.Likelihood):
        def loss(self, step):
            used.add((threading.get_ident(), torch.get_num_threads()))
            return super().loss(step)

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        trained(Threaded(2), network("mlp"), pl.Recipe(rounds=2, method=Watching()), federation)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert len(used) == 2
    assert {cores for _, cores in used} == {2}
    assert threading.get_ident() not in {thread for thread, _ in used}


def test_a_server_that_trains_by_itself_has_all_cores(federation):
    used = {}

    class Watching(pl.Likelihood):
        def plan(self, here, generator):
            used.setdefault(len(here.site), set()).add(torch.get_num_threads())
            return super().plan(here, generator)

    server = pl.Site.of("server", federation.sites[0].inputs[:9], pl.exact(SPACE), [0] * 9)
    joint = pl.Federation.of(federation.sites[:3], server=server)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        trained(Threaded(2), network("mlp"), pl.Recipe(rounds=2, method=Watching()), joint)
    finally:
        torch.set_num_threads(before)
    assert used.pop(9) == {4}
    assert set.union(*used.values()) == {2}


def test_no_more_threads_than_sites(federation):
    engine, few = Threaded(8), pl.Federation.of(federation.sites[:2])
    trained(engine, network("mlp"), pl.Recipe(rounds=1), few)
    assert set(engine._crews) == {2}


def test_sites_come_back_in_the_same_order_whoever_is_quicker(federation):
    class Slow(pl.Likelihood):
        def plan(self, here, generator):
            time.sleep(0.2 if len(here.site) == slowest else 0)
            return super().plan(here, generator)

    slowest = max(map(len, federation.sites))
    recipe = pl.Recipe(rounds=1, method=Slow())
    _, (record,) = trained(Threaded(3), network("mlp"), recipe, federation)
    sizes = [len(next(s for s in federation.sites if s.name == name)) for name in record["sites"]]
    assert sizes == sorted(sizes, reverse=True)


def test_layers_that_draw_for_themselves_are_trained_on_one_thread(federation):
    recipe, model = pl.Recipe(rounds=2), with_body(nn.Conv2d(1, 4, 3), Noise())
    engine = Threaded(3)
    state, records = trained(engine, model, recipe, federation)
    assert set(engine._crews) == {1}
    assert records[0]["engine"] == [
        "engine threaded: layers of the model draw random numbers for themselves, so that it is "
        "trained on one thread."
    ]
    again, _ = trained(Threaded(3), model, recipe, federation)
    assert torch.equal(state.theta, again.theta)


def test_a_sites_error_ends_the_round_with_its_own_message(federation):
    class Broken(pl.Likelihood):
        def plan(self, here, generator):
            raise pl.PotluckError("this site cannot be read")

    with pytest.raises(pl.PotluckError, match="this site cannot be read"):
        trained(Threaded(2), network("mlp"), pl.Recipe(rounds=1, method=Broken()), federation)
    assert torch.get_num_threads() == 1  # as conftest.py set it


def test_after_an_error_nobody_waits_for_sites_in_training(federation):
    first, second = sorted(federation.sites, key=len)[-2:]
    began, ended = threading.Event(), threading.Event()

    class Endless(pl.Likelihood):
        def plan(self, here, generator):
            if len(here.site) == len(second):
                began.wait()
                raise pl.PotluckError("this site cannot be read")
            try:
                began.set()
                while True:
                    time.sleep(0.01)
            finally:
                ended.set()

    assert len(first) < len(second)
    recipe, both = pl.Recipe(rounds=1, method=Endless()), pl.Federation.of([first, second])
    with pytest.raises(pl.PotluckError, match="this site cannot be read"):
        trained(Threaded(2), network("mlp"), recipe, both)
    assert ended.wait(30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads is 0; at least 1 is needed"),
        ({"group": 4}, "group is 4, but only compiled steps.*set compile = true"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(pl.PotluckError, match=message):
        Threaded(**options)
