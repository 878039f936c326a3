"""A method may serve another model than the one that sites go on from."""

from dataclasses import replace

import pytest
import torch
from test_stacked import CPU, federation, network, trained

import potluck as pl
from potluck.engines import Sequential, evaluate
from potluck.engines.rounds import run, start
from potluck.study import checkpoint

__all__ = ["federation"]  # a fixture


class Behind(pl.Likelihood):
    """Serves the model that sites received."""

    def serve(self, server, theta, layout):
        return theta


def equal(one, other):
    """Whether two models, parameters and buffers, are the same."""
    (theta, buffers), (others, there) = one, other
    same = buffers.keys() == there.keys() and torch.equal(theta, others)
    return same and all(torch.equal(value, there[name]) for name, value in buffers.items())


@pytest.mark.parametrize("batch_norm", ["average", "static"])
def test_the_model_that_is_served_is_evaluated_and_kept_with_its_own_buffers(
    federation, batch_norm
):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (20, 1, 8, 8), generator=generator, dtype=torch.uint8)
    test = images, torch.arange(20) % 10
    tested = pl.Federation.of(federation.sites, test=test)
    model = network("convolutional")
    recipe = pl.Recipe(rounds=3, method=Behind(), batch_norm=batch_norm)
    states, records = [], []

    def keep(state, record):
        states.append(state)
        records.append(record)

    run(model, recipe, tested, Sequential(), start(model, recipe, tested, CPU), keep)
    for before, after, record in zip(states, states[1:], records[1:], strict=False):
        assert equal(after.model, (before.theta, before.buffers))
        assert not equal(after.model, (after.theta, after.buffers))
        found = evaluate(model, before.theta, before.buffers, *test)
        assert record["test"]["loss"] == pytest.approx(found.loss)


def test_sites_go_on_from_the_average_whatever_is_served(federation):
    recipe = pl.Recipe(rounds=2)
    plain, _ = trained(Sequential(), network("convolutional"), recipe, federation)
    behind, _ = trained(
        Sequential(), network("convolutional"), pl.Recipe(rounds=2, method=Behind()), federation
    )
    assert equal((plain.theta, plain.buffers), (behind.theta, behind.buffers))
    assert plain.model[0] is plain.theta


def test_a_checkpoint_has_the_model_that_is_served(federation, tmp_path):
    recipe = pl.Recipe(rounds=2, method=Behind())
    state, _ = trained(Sequential(), network("convolutional"), recipe, federation)
    checkpoint.save(state, "hash", tmp_path)
    found = checkpoint.load(tmp_path, "hash", CPU)
    assert equal(found.model, state.model)
    assert equal((found.theta, found.buffers), (state.theta, state.buffers))


class Once(Behind):
    """Trains in the first round only."""

    def plan(self, here, generator):
        plan = super().plan(here, generator)
        return plan if here.model.round == 0 else replace(plan, pool=plan.pool[:0])


def test_a_round_without_updates_leaves_what_is_served(federation):
    ends = [
        trained(
            Sequential(), network("convolutional"), pl.Recipe(rounds=n, method=Once()), federation
        )[0]
        for n in (1, 2)
    ]
    assert equal(ends[0].model, ends[1].model)
    assert not equal(ends[1].model, (ends[1].theta, ends[1].buffers))
