"""One round (or two) of every federated optimiser on the seesaw, against arithmetic.

See `by_hand.py` for the problem: W = (a, −a), sample weights 3/4 and 1/4.
"""

import math

import pytest
import torch
from by_hand import (
    Spy,
    descend,
    gradient_a,
    gradient_b,
    play,
    seesaw,
    seesaw_network,
    seesaw_rounds,
    whole,
)
from torch import nn

import potluck as pl
from potluck.federated import FEDERATED
from potluck.models import Classifier
from potluck.models.network import Network


def exactly(value):
    return pytest.approx(value, rel=1e-12, abs=1e-14)


def test_fedavg_by_samples_written_out():
    # From a = 0 with lr 1: A moves by +1/2, B by −1. 3/4 · 1/2 − 1/4 · 1 = 1/8.
    assert seesaw_rounds(pl.FedAvg(), whole()) == [exactly(0.125)]


def test_fedavg_with_uniform_weights_written_out():
    assert seesaw_rounds(pl.FedAvg(weights="uniform"), whole()) == [exactly(-0.25)]


def test_the_server_steps_along_the_mean_change_not_against_it_and_not_by_the_sum():
    # METHODS §2 row 1: the papers print f − η Σ (f_c − f), which would give 0 + 1/2 here.
    site_a_only = 0.5
    towards = seesaw_rounds(pl.FedAvg(server_lr=0.4, weights="uniform"), whole())
    assert towards == [exactly(0.4 * (site_a_only - 1) / 2)]


def test_fedavg_over_two_rounds_of_three_steps():
    a, expected = 0.0, []
    for _ in range(2):
        a = 0.75 * descend(gradient_a, a, 0.3, 3) + 0.25 * descend(gradient_b, a, 0.3, 3)
        expected.append(exactly(a))
    assert seesaw_rounds(pl.FedAvg(), whole(0.3, 3), rounds=2) == expected


def test_fedprox_written_out():
    # A: 0 → .5; then p₀ = σ(1) = .7310585786, so the gradient is −.2689414214 + μ · .5.
    # B: 0 → −1; then 2 σ(−4) = .0359724199 + μ · (−1).
    site_a = 0.5 + 0.2689414214 - 0.1 * 0.5
    site_b = -1 - 0.0359724199 + 0.1 * 1
    (a,) = seesaw_rounds(pl.FedProx(mu=0.1), whole(steps=2))
    assert a == pytest.approx(0.75 * site_a + 0.25 * site_b, abs=1e-9)


def test_fedprox_without_pull_is_fedavg():
    local = whole(0.5, 3)
    assert seesaw_rounds(pl.FedProx(mu=0.0), local, 2) == seesaw_rounds(pl.FedAvg(), local, 2)


@pytest.mark.parametrize(("weights", "p"), [("samples", (0.75, 0.25)), ("uniform", (0.5, 0.5))])
def test_scaffold_over_three_rounds_of_plain_sgd(weights, p):
    lr, steps = 0.3, 2
    a, c, controls, expected = 0.0, 0.0, [0.0, 0.0], []
    for _ in range(3):
        ends, new = [], []
        for gradient, control in zip((gradient_a, gradient_b), controls, strict=True):
            y = descend(lambda z, g=gradient, k=control - c: g(z) - k, a, lr, steps)
            ends.append(y)
            new.append(control - c + (a - y) / (steps * lr))  # the paper's option II
        c = c + sum(q * (n - o) for q, n, o in zip(p, new, controls, strict=True))
        a = sum(q * y for q, y in zip(p, ends, strict=True))
        controls = new
        expected.append(exactly(a))
    assert seesaw_rounds(pl.Scaffold(weights=weights), whole(lr, steps), rounds=3) == expected


def test_scaffold_keeps_mean_gradients_as_control_variates_whatever_the_local_optimiser():
    lr, steps, mu = 0.3, 3, 0.9
    recipe = pl.Recipe(
        rounds=2, federated=pl.Scaffold(), local=whole(lr, steps, optimiser=pl.SGD(momentum=mu))
    )
    states, _ = play(seesaw_network(), recipe, seesaw())

    def mean_gradient(gradient):
        a, velocity, seen = 0.0, 0.0, []
        for _ in range(steps):
            seen.append(gradient(a))
            velocity = mu * velocity + seen[-1]
            a = a - lr * velocity
        return sum(seen) / steps

    control = {"A": mean_gradient(gradient_a), "B": mean_gradient(gradient_b)}
    for name, value in control.items():
        assert float(states[0].sites[name].federated["control"][0]) == exactly(value)
    mean = 0.75 * control["A"] + 0.25 * control["B"]
    assert float(states[0].federated["control"][0]) == exactly(mean)


def test_scaffold_moves_its_control_by_the_share_of_sites_that_took_part():
    recipe = pl.Recipe(rounds=1, cohort=1, federated=pl.Scaffold(), local=whole())
    states, records = play(seesaw_network(), recipe, seesaw())
    (name,) = records[0]["cohort"]
    gradient = {"A": gradient_a, "B": gradient_b}[name](0.0)
    assert float(states[0].federated["control"][0]) == exactly(0.5 * gradient)
    assert float(states[0].theta[0]) == exactly(-gradient)


def momentum_run(gradient, a, lr, steps, mu, nesterov):
    """SGD on the scalar, and the total weight its gradients got, by feeding it unit gradients."""
    velocity, progress, unit = 0.0, 0.0, 0.0
    for _ in range(steps):
        g = gradient(a)
        velocity, unit = mu * velocity + g, mu * unit + 1
        a = a - lr * (g + mu * velocity if nesterov else velocity)
        progress += 1 + mu * unit if nesterov else unit
    return a, progress


@pytest.mark.parametrize(("mu", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_fednova_with_unequal_steps(mu, nesterov):
    # Batches of one: A takes three steps a round, B one.
    sgd = pl.SGD(momentum=mu, nesterov=nesterov)
    local = pl.LocalTraining(lr=0.1, batch_size=1, optimiser=sgd)
    a, expected = 0.0, []
    for _ in range(2):
        end_a, tau_a = momentum_run(gradient_a, a, 0.1, 3, mu, nesterov)
        end_b, tau_b = momentum_run(gradient_b, a, 0.1, 1, mu, nesterov)
        per_step = 0.75 * (end_a - a) / tau_a + 0.25 * (end_b - a) / tau_b
        a = a + (0.75 * tau_a + 0.25 * tau_b) * per_step
        expected.append(exactly(a))
    assert seesaw_rounds(pl.FedNova(), local, rounds=2) == expected


def test_fednova_with_equal_steps_is_fedavg():
    local = whole(0.2, 4, optimiser=pl.SGD(momentum=0.5))
    expected = [exactly(a) for a in seesaw_rounds(pl.FedAvg(), local, 2)]
    assert seesaw_rounds(pl.FedNova(), local, 2) == expected


def test_fedavgm_over_two_rounds():
    # Round 1: v = 1/8, a = .8 · 1/8 = .1. Round 2: v = .6/8 + the mean change from .1.
    (first, second) = seesaw_rounds(pl.FedAvgM(momentum=0.6, server_lr=0.8), whole(), rounds=2)
    change = 0.75 * -gradient_a(0.1) + 0.25 * -gradient_b(0.1)
    assert first == exactly(0.1)
    assert second == exactly(0.1 + 0.8 * (0.6 * 0.125 + change))


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_adaptive_server_steps_over_two_rounds(name):
    # Reddi et al. 2021, Algorithm 2.
    eta, beta1, beta2, tau = 0.05, 0.8, 0.95, 0.1
    settings = {"server_lr": eta, "beta1": beta1, "tau": tau}
    if name != "fedadagrad":
        settings["beta2"] = beta2
    a, m, v, expected = 0.0, 0.0, tau**2, []
    for _ in range(2):
        change = 0.75 * -gradient_a(a) + 0.25 * -gradient_b(a)
        m = beta1 * m + (1 - beta1) * change
        if name == "fedadam":
            v = beta2 * v + (1 - beta2) * change**2
        elif name == "fedyogi":
            v = v - (1 - beta2) * change**2 * math.copysign(1, v - change**2)
        else:
            v = v + change**2
        a = a + eta * m / (math.sqrt(v) + tau)
        expected.append(exactly(a))
    assert seesaw_rounds(FEDERATED[name](**settings), whole(), rounds=2) == expected


def test_fedadagrad_has_no_momentum_unless_asked():
    assert pl.FedAdagrad().beta1 == 0


def norm_network():
    torch.manual_seed(3)  # the model's own start, not the round's randomness
    return Network(Classifier(nn.BatchNorm1d(2), nn.Linear(2, 2)).double())


def norm_federation():
    generator = torch.Generator().manual_seed(5)
    space = pl.LabelSpace(("zero", "one"))
    shifts = {"near": (0.0, 6), "far": (4.0, 3)}
    return pl.Federation.of(
        [
            pl.Site.of(
                name,
                torch.randn(count, 2, generator=generator).double() + shift,
                pl.exact(space),
                torch.arange(count) % 2,
            )
            for name, (shift, count) in shifts.items()
        ]
    )


def test_fedbn_averages_all_but_the_batch_norm_that_each_site_keeps():
    federation, network = norm_federation(), norm_network()
    recipe = pl.Recipe(
        rounds=2, federated=pl.FedBN(), local=whole(0.5, steps=2), batch_norm="local"
    )
    start_theta, start_buffers = network.initial()
    states, _ = play(network, recipe, federation, rounds=2)

    # The same with an ordinary module per site, whose batch norm nobody touches.
    modules = {site.name: network.module(start_theta, start_buffers) for site in federation.sites}
    for state in states:
        for site in federation.sites:
            module = modules[site.name].train()
            optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
            for _ in range(2):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(site.inputs), site.symbols).backward()
                optimiser.step()
        near, far = modules["near"], modules["far"]
        average = {
            name: (6 * near.state_dict()[name] + 3 * far.state_dict()[name]) / 9
            for name in near.state_dict()
        }
        for name, value in network.layout.unflatten(state.theta).items():
            assert torch.allclose(value, average[name], atol=1e-12), name
        assert torch.allclose(
            state.buffers["encoder.running_mean"], average["encoder.running_mean"]
        )
        for site in federation.sites:
            kept, own = state.sites[site.name], modules[site.name].state_dict()
            ours = torch.cat([own["encoder.weight"], own["encoder.bias"]])
            assert torch.allclose(kept.federated["values"], ours, atol=1e-12)
            assert torch.allclose(
                kept.buffers["encoder.running_var"], own["encoder.running_var"], atol=1e-12
            )
        for module in modules.values():
            module.head.load_state_dict({n: average[f"head.{n}"] for n in ("weight", "bias")})
    assert not torch.allclose(
        states[-1].sites["near"].federated["values"], states[-1].sites["far"].federated["values"]
    )


def test_fednova_tells_the_server_the_change_that_a_site_made():
    spy, local = Spy(), pl.LocalTraining(lr=0.1, batch_size=1)
    recipe = pl.Recipe(rounds=1, federated=pl.FedNova(), local=local)
    play(seesaw_network(), recipe, seesaw(), engine=spy)
    change = pl.FedNova().change(spy.updates[0])
    assert float(change[0]) == exactly(descend(gradient_a, 0.0, 0.1, 3))
    assert float(spy.updates[0].delta[0]) == exactly(descend(gradient_a, 0.0, 0.1, 3) / 3)


def test_every_federated_optimiser_is_worked_by_hand_here():
    assert set(FEDERATED) == {
        "fedavg",
        "fedprox",
        "scaffold",
        "fednova",
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
        "fedbn",
    }
