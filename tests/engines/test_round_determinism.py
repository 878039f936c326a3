"""The same recipe gives the same bits, whatever else happens in the process."""

import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from by_hand import CPU, Spy, play
from torch import nn

import potluck as pl
from potluck.engines import Sequential, run, start
from potluck.engines.rounds import choose
from potluck.models import as_classifier
from potluck.models.network import Network
from potluck.training import make_network

SPACE = pl.LabelSpace.numbered(3)


def images(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 1, 6, 6), generator=generator, dtype=torch.uint8)


def site(number, count=12):
    return pl.Site.of(
        f"site-{number}", images(count, number), pl.exact(SPACE), torch.arange(count) % 3
    )


def federation(numbers=range(5)):
    test = (images(20, 99), torch.arange(20) % 3)
    return pl.Federation.of([site(n, 10 + 4 * n) for n in numbers], test=test)


class Pixels(nn.Module):
    def forward(self, x):
        return x.flatten(1) / 255 if x.dtype == torch.uint8 else x.flatten(1)


def dropping():
    torch.manual_seed(1)  # the model's own start
    return nn.Sequential(
        Pixels(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def recipe(seed=0, **changes):
    local = pl.LocalTraining(lr=0.1, batch_size=4, optimiser=pl.SGD(momentum=0.9))
    settings = {"local": local, "method": pl.Likelihood(augment="weak"), **changes}
    return pl.Recipe(rounds=4, seed=seed, **settings)


def without_seconds(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def same_state(one, other):
    return (
        one.round == other.round
        and torch.equal(one.theta, other.theta)
        and same(one.buffers, other.buffers)
        and same(one.federated, other.federated)
        and one.sites.keys() == other.sites.keys()
        and all(
            same(getattr(one.sites[name], part), getattr(other.sites[name], part))
            for name in one.sites
            for part in ("method", "personal", "federated", "optimiser", "buffers")
        )
    )


@pytest.mark.parametrize("batch_norm", ["average", "local", "static"])
@pytest.mark.parametrize("model", ["mlp", dropping()], ids=["mlp", "dropout"])
def test_a_repeated_run_is_the_same_bit_for_bit_and_leaves_global_randomness_alone(
    model, batch_norm
):
    results = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        random.seed(global_seed)
        np.random.seed(global_seed)  # noqa: NPY002 - the global state is what is tested
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
        results.append(pl.train(federation(), recipe(batch_norm=batch_norm), model))
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == random.getstate()
        assert np.array_equal(before[2], np.random.get_state()[1])  # noqa: NPY002
    one, other = results
    assert same_state(one.state, other.state)
    assert without_seconds(one.history) == without_seconds(other.history)


@pytest.mark.parametrize("model", ["mlp", dropping()], ids=["mlp", "dropout"])
def test_another_seed_gives_another_result(model):
    ends = [pl.train(federation(), recipe(seed), model).state.theta for seed in (0, 1)]
    assert not torch.allclose(*ends)


def test_the_seed_decides_the_dropout_of_a_given_model():
    # All samples alike, in one batch, without augmentation: only the dropout can differ.
    torch.manual_seed(1)  # the model's own start
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    alike = images(1, 0).expand(12, 1, 6, 6)
    alone = pl.Federation.of([pl.Site.of("a", alike, pl.exact(SPACE), [1] * 12)])

    def end(seed):
        recipe = pl.Recipe(rounds=1, seed=seed, local=pl.LocalTraining(batch_size=12))
        return pl.train(alone, recipe, model).state.theta

    assert torch.equal(end(0), end(0))
    assert not torch.allclose(end(0), end(1))


def test_a_sites_draws_do_not_depend_on_who_else_takes_part():
    updates = {}
    for numbers in ([3], [1, 3], [4, 3, 0]):
        spy, joint = Spy(), federation(numbers)
        play(make_network(joint, recipe(), "mlp"), recipe(), joint, engine=spy)
        updates[len(numbers)] = next(u for u in spy.updates if u.site == "site-3").delta
    assert torch.equal(updates[1], updates[2])
    assert torch.equal(updates[1], updates[3])


def test_sites_are_averaged_in_the_federations_order():
    spy = Spy()
    joint = federation([4, 0, 3, 1])
    play(make_network(joint, recipe(), "mlp"), recipe(), joint, engine=spy)
    assert [update.site for update in spy.updates] == ["site-4", "site-0", "site-3", "site-1"]
    # Another order is another order of summation, and nothing else.
    ends = [
        pl.train(federation(numbers), recipe()).state.theta for numbers in ([4, 0, 1], [0, 1, 4])
    ]
    assert torch.allclose(*ends, atol=1e-5)


def test_rounds_draw_anew():
    joint = federation([0])
    still = recipe(local=pl.LocalTraining(lr=1e-12, batch_size=4))
    states, records = play(make_network(joint, still, "mlp"), still, joint, rounds=2)
    assert torch.equal(states[0].theta, states[1].theta)  # the model stood still,
    losses = [record["sites"]["site-0"]["loss"] for record in records]
    assert losses[0] != losses[1]  # but saw other views of the images


RESUMABLE = {
    "scaffold": recipe(
        federated=pl.Scaffold(),
        cohort=3,
        local=pl.LocalTraining(
            lr=0.05,
            batch_size=4,
            optimiser=pl.SGD(momentum=0.9),
            optimiser_state="keep",
            schedule=pl.Cosine(),
        ),
    ),
    "fedadam-local-norm": recipe(federated=pl.FedAdam(), cohort=2, batch_norm="local"),
    "fedbn-adam": recipe(
        federated=pl.FedBN(),
        batch_norm="local",
        local=pl.LocalTraining(lr=0.01, batch_size=4, optimiser=pl.Adam(), optimiser_state="keep"),
    ),
    "static": recipe(federated=pl.FedAvgM(), batch_norm="static", cohort=4),
}


class Interrupted(Exception):  # noqa: N818 - not an error
    """Carries the state at which a run was stopped."""


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("name", RESUMABLE)
def test_an_interrupted_run_goes_on_as_if_it_had_not_stopped(name, stop):
    chosen, joint = RESUMABLE[name], federation()

    def go_on(state, keep):
        network = Network(as_classifier(dropping()))
        return run(network, chosen, joint, Sequential(), state, keep)

    def begin():
        return start(Network(as_classifier(dropping())), chosen, joint, CPU)

    uninterrupted, history = [], []
    end = go_on(begin(), lambda _, record: uninterrupted.append(record))

    def keep_until_the_stop(state, record):
        history.append(record)
        if state.round == stop:
            raise Interrupted(state)

    with pytest.raises(Interrupted) as interrupted:
        go_on(begin(), keep_until_the_stop)
    checkpoint = deepcopy(interrupted.value.args[0])
    resumed = go_on(checkpoint, lambda _, record: history.append(record))
    assert same_state(end, resumed)
    assert without_seconds(uninterrupted) == without_seconds(history)


def test_a_round_does_not_change_the_state_it_started_from():
    chosen, joint = RESUMABLE["scaffold"], federation()
    network = Network(as_classifier(dropping()))
    (first, _), _ = play(network, chosen, joint, rounds=2)
    copy = deepcopy(first)
    play(network, chosen, joint, state=first, rounds=2)
    assert same_state(copy, first)


def test_a_cohort_has_its_size_no_repeats_and_reaches_everybody():
    joint = federation(range(7))
    chosen = recipe(cohort=3)
    order = [s.name for s in joint.sites]
    seen = set()
    for number in range(30):
        names = [s.name for s in choose(chosen, joint.sites, number)]
        assert len(names) == len(set(names)) == 3
        assert names == sorted(names, key=order.index)  # the federation's order
        assert names == [s.name for s in choose(chosen, joint.sites, number)]
        seen |= set(names)
    assert seen == set(order)


def test_all_sites_take_part_when_no_cohort_is_set():
    joint = federation(range(4))
    assert choose(recipe(), joint.sites, 3) == list(joint.sites)


def test_cohorts_differ_between_rounds_and_seeds():
    joint = federation(range(7))

    def cohorts(seed):
        rounds = (choose(recipe(seed, cohort=3), joint.sites, r) for r in range(6))
        return [tuple(s.name for s in cohort) for cohort in rounds]

    assert len(set(cohorts(0))) > 1
    assert cohorts(0) != cohorts(1)


def test_a_site_outside_the_cohort_keeps_its_state_and_is_not_in_the_record():
    chosen, joint = RESUMABLE["scaffold"], federation()
    (first, second), records = play(Network(as_classifier(dropping())), chosen, joint, rounds=2)
    for state, record in ((first, records[0]), (second, records[1])):
        assert set(record["sites"]) == set(record["cohort"])
        assert record["sat_out"] == []
        assert set(record["cohort"]) <= set(state.sites)
    away = set(first.sites) - set(records[1]["cohort"])
    assert away
    for name in away:
        assert second.sites[name] is first.sites[name]
