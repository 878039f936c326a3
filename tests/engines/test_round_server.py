"""What the server adds to a round: its own data, and the method's hooks."""

from dataclasses import dataclass

import pytest
import torch
from by_hand import (
    TWO,
    descend,
    gradient_a,
    gradient_b,
    play,
    seesaw,
    seesaw_network,
    sigmoid,
    whole,
)
from torch import nn

import potluck as pl
from potluck.methods import AtServer, Plan
from potluck.models import Classifier
from potluck.models.network import Network


def gradient_server(a):
    """Of the server's one sample, x = −1 of class 0: p₀ = σ(−2a)."""
    return -(sigmoid(-2 * a) - 1)


def server(view=None, labels=(0,)):
    inputs = torch.full((1, 1), -1.0).double()
    return pl.Site.of("server", inputs, view or pl.exact(TWO), list(labels))


def test_the_server_trains_on_its_own_data_after_averaging():
    joint, recipe = seesaw(server=server()), pl.Recipe(rounds=2, local=whole(0.5, steps=2))
    states, records = play(seesaw_network(), recipe, joint, rounds=2)
    a = 0.0
    for state in states:
        a = 0.75 * descend(gradient_a, a, 0.5, 2) + 0.25 * descend(gradient_b, a, 0.5, 2)
        a = descend(gradient_server, a, 0.5, 2)
        assert float(state.theta[0]) == pytest.approx(a, abs=1e-13)
    assert set(records[0]["sites"]) == {"A", "B", "server"}
    assert records[0]["cohort"] == ["A", "B"]


def test_the_servers_step_does_not_go_through_the_federated_optimiser():
    joint = seesaw(server=server())
    federated = pl.FedAvgM(momentum=0.5, server_lr=0.5)
    recipe = pl.Recipe(rounds=1, federated=federated, local=whole())
    states, _ = play(seesaw_network(), recipe, joint)
    averaged = 0.5 * 0.125
    assert float(states[0].theta[0]) == pytest.approx(descend(gradient_server, averaged, 1.0, 1))
    assert float(states[0].federated["velocity"][0]) == pytest.approx(0.125)


def test_a_server_with_some_classes_moves_their_rows_only():
    space = pl.LabelSpace(("a", "b", "c"))
    head = nn.Linear(1, 3, bias=False).double()
    nn.init.zeros_(head.weight)
    one = torch.ones(1, 1).double()
    own = pl.Site.of("server", one, pl.subset(space, ["c", "a"]), ["c"])
    idle = pl.Site.of("idle", one, pl.unlabeled(space))
    joint = pl.Federation.of([idle], server=own)
    states, _ = play(
        Network(Classifier(nn.Identity(), head)), pl.Recipe(rounds=1, local=whole()), joint
    )
    assert states[0].theta.tolist() == pytest.approx([-0.5, 0.0, 0.5], abs=1e-15)


def test_the_servers_momentum_is_kept_when_the_sites_is():
    local = whole(0.5, optimiser=pl.SGD(momentum=0.9), optimiser_state="keep")
    recipe = pl.Recipe(rounds=2, local=local)
    states, _ = play(seesaw_network(), recipe, seesaw(server=server()), rounds=2)
    a, velocity = 0.0, {"A": 0.0, "B": 0.0, "server": 0.0}

    def step(name, gradient, a):
        velocity[name] = 0.9 * velocity[name] + gradient(a)
        return a - 0.5 * velocity[name]

    for state in states:
        a = 0.75 * step("A", gradient_a, a) + 0.25 * step("B", gradient_b, a)
        a = step("server", gradient_server, a)
        assert float(state.theta[0]) == pytest.approx(a, abs=1e-13)


@dataclass(frozen=True)
class OwnPace(pl.Likelihood):
    def at_server(self):
        return AtServer(self, whole(0.1, steps=5))


def test_a_method_may_give_the_server_its_own_pace():
    recipe = pl.Recipe(rounds=1, method=OwnPace(), local=whole())
    states, records = play(seesaw_network(), recipe, seesaw(server=server()))
    assert float(states[0].theta[0]) == pytest.approx(descend(gradient_server, 0.125, 0.1, 5))
    assert records[0]["sites"]["server"]["steps"] == 5


@dataclass(frozen=True)
class NotAtServer(pl.Likelihood):
    def at_server(self):
        return None


def test_a_method_may_leave_the_servers_data_alone():
    recipe = pl.Recipe(rounds=1, method=NotAtServer(), local=whole())
    states, records = play(seesaw_network(), recipe, seesaw(server=server()))
    assert float(states[0].theta[0]) == pytest.approx(0.125)
    assert set(records[0]["sites"]) == {"A", "B"}


@dataclass(frozen=True)
class Choosy(pl.Likelihood):
    """Sites with fewer samples than `least` have nothing to train on."""

    least: int = 2

    def plan(self, here, generator):
        pool = torch.arange(len(here.site) if len(here.site) >= self.least else 0)
        return Plan(pool, metrics={"kept": float(len(pool))})


def test_a_site_with_an_empty_plan_sits_out_and_is_named():
    recipe = pl.Recipe(rounds=1, method=Choosy(), local=whole())
    states, records = play(seesaw_network(), recipe, seesaw())
    assert float(states[0].theta[0]) == pytest.approx(0.5)  # A alone
    assert records[0]["cohort"] == ["A", "B"]
    assert records[0]["sat_out"] == ["B"]
    assert set(records[0]["sites"]) == {"A"}
    assert records[0]["sites"]["A"]["kept"] == 3


@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.FedAvgM(), pl.Scaffold(), pl.FedAdam()])
def test_when_all_sit_out_the_model_stays_as_it_is(federated):
    recipe = pl.Recipe(rounds=3, federated=federated, local=whole())
    (before,), _ = play(seesaw_network(), recipe, seesaw())
    idle = pl.Recipe(rounds=3, federated=federated, method=Choosy(least=9), local=whole())
    (after,), (record,) = play(seesaw_network(), idle, seesaw(), state=before)
    assert torch.equal(before.theta, after.theta)
    assert all(torch.equal(before.federated[k], after.federated[k]) for k in before.federated)
    assert after.round == 2
    assert record["sat_out"] == ["A", "B"]
    assert record["sites"] == {}


@dataclass(frozen=True)
class Talkative(pl.Likelihood):
    """Sends a number each way, to see who gets what and when."""

    def server_start(self, network, federation):
        return {"mean": torch.zeros(()), "heard": torch.zeros(0)}

    def share(self, server, site):
        return {"hint": server["mean"] + (1.0 if site == "A" else 2.0)}

    def report(self, here, plan):
        return {"count": torch.tensor(float(len(here.site)))}

    def receive(self, server, arrival):
        heard = torch.cat([server["heard"], arrival.theta[:1]])
        assert arrival.classes.tolist() == [0, 1]
        return {**server, "heard": heard}

    def conclude(self, server, extras):
        return {**server, "mean": extras["count"]}

    def start(self, site):
        return {"hints": torch.zeros(0)}

    def loss(self, step):
        value, _ = super().loss(step)
        return value, {"hints": torch.cat([step.state["hints"], step.shared["hint"].reshape(1)])}


@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.FedNova()])
def test_a_methods_messages_reach_their_addressees(federated):
    local = pl.LocalTraining(lr=1.0, batch_size=1)  # A takes three steps, B one
    recipe = pl.Recipe(rounds=2, method=Talkative(), federated=federated, local=local)
    states, _ = play(seesaw_network(), recipe, seesaw(), rounds=2)
    # The server hears the sites' own models, in order, whatever the optimiser sends.
    expected = [descend(gradient_a, 0.0, 1.0, 3), descend(gradient_b, 0.0, 1.0, 1)]
    assert states[0].method["heard"].tolist() == pytest.approx(expected)
    assert float(states[0].method["mean"]) == pytest.approx(0.75 * 3 + 0.25 * 1)
    # Round 1 hints 0 + 1 and 0 + 2 at each step; round 2 adds the mean 2.5.
    assert states[1].sites["A"].method["hints"].tolist() == [1, 1, 1, 3.5, 3.5, 3.5]
    assert states[1].sites["B"].method["hints"].tolist() == [2, 4.5]


def test_a_coarse_sites_model_arrives_with_the_target_classes_in_their_order():
    # Its labels list class "one" first, but it holds all of θ, in θ's order.
    view = pl.coarse(TWO, {"x": ["one"], "y": ["zero"]})
    sites = [pl.Site.of("A", torch.ones(2, 1).double(), view, ["x", "y"])]
    recipe = pl.Recipe(rounds=1, method=Talkative(), local=whole())
    play(seesaw_network(), recipe, pl.Federation.of(sites))  # Talkative.receive asserts


@dataclass(frozen=True)
class Personal(pl.Likelihood):
    """Adds an offset to the logits that a site trains but keeps."""

    def personal(self, site, network):
        return {"offset": torch.zeros(2, dtype=torch.float64)}

    def loss(self, step):
        model, site, index = step.model, step.site, step.batch.index
        logits = model(site.inputs[index]) + model.personal["offset"]
        return nn.functional.cross_entropy(logits, site.symbols[index]), step.state


@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.Scaffold(), pl.FedProx(), pl.FedNova()])
def test_personal_tensors_are_trained_and_stay_at_their_site(federated):
    recipe = pl.Recipe(rounds=2, method=Personal(), federated=federated, local=whole(0.5))
    states, _ = play(seesaw_network(), recipe, seesaw(), rounds=2)
    # Round 1 from zero: the weights move as without the offset (.5/8), which itself moves by
    # −lr (p − e_y): A +.25, B −.25 in its first entry.
    assert states[0].theta.tolist() == pytest.approx([0.0625, -0.0625])
    first = {n: kept.personal["offset"].tolist() for n, kept in states[0].sites.items()}
    assert first == {"A": [0.25, -0.25], "B": [-0.25, 0.25]}
    # Round 2 at A: p₀ = σ(2 · (a + .25)).
    second = states[1].sites["A"].personal["offset"]
    assert float(second[0]) == pytest.approx(0.25 - 0.5 * gradient_a(0.0625 + 0.25), abs=1e-12)
    assert all(state.theta.shape == (2,) for state in states)
