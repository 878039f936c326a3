"""Small federations whose rounds can be worked out by hand, in float64.

The seesaw: two classes, one feature, no bias. Site A has three samples (x = 1, class 0), site B
one (x = 2, class 1). From W = 0 the two rows stay opposite, W = (a, −a), so that a round is
arithmetic on the scalar a, with p₀ = σ(2ax) and the gradients

    A: σ(2a) − 1        B: 2 σ(4a).
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import nn

import potluck as pl
from potluck.engines import Sequential, start
from potluck.engines.rounds import one_round
from potluck.models import Classifier
from potluck.models.network import Network

CPU = torch.device("cpu")
TWO = pl.LabelSpace(("zero", "one"))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def gradient_a(a):
    return sigmoid(2 * a) - 1


def gradient_b(a):
    return 2 * sigmoid(4 * a)


def descend(gradient, a, lr, steps):
    """Plain gradient descent on the scalar a."""
    for _ in range(steps):
        a = a - lr * gradient(a)
    return a


def seesaw(**changes):
    """The federation of sites A and B."""
    sites = [
        pl.Site.of("A", torch.ones(3, 1).double(), pl.exact(TWO), [0, 0, 0]),
        pl.Site.of("B", torch.full((1, 1), 2.0).double(), pl.exact(TWO), [1]),
    ]
    return pl.Federation.of(sites, **changes)


def seesaw_network():
    head = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(head.weight)
    return Network(Classifier(nn.Identity(), head))


def whole(lr=1.0, steps=1, **changes):
    """Local training by full-batch steps."""
    return pl.LocalTraining(lr=lr, steps=steps, batch_size=100, **changes)


def play(network, recipe, federation, *, rounds=1, engine=None, state=None):
    """Play rounds; return the states after each, and the records."""
    state = start(network, recipe, federation, CPU) if state is None else state
    states, records = [], []
    for _ in range(rounds):
        state, record = one_round(network, recipe, federation, engine or Sequential(), state)
        states.append(state)
        records.append(record)
    return states, records


def seesaw_rounds(federated, local, rounds=1, **changes):
    """The scalar a after each round; the rows must stay opposite."""
    recipe = pl.Recipe(rounds=10, federated=federated, local=local, **changes)
    states, _ = play(seesaw_network(), recipe, seesaw(), rounds=rounds)
    for state in states:
        assert torch.allclose(state.theta[0], -state.theta[1], atol=1e-14)
    return [float(state.theta[0]) for state in states]


@dataclass(frozen=True)
class Spy:
    """The sequential engine, noting what each site receives and sends."""

    broadcasts: list = field(default_factory=list)
    updates: list = field(default_factory=list)

    def run(self, orders):
        def noted(site):
            sent = orders.broadcast(site)
            self.broadcasts.append((site.name, sent))
            return sent

        for finished in Sequential().run(replace(orders, broadcast=noted)):
            self.updates.extend(done.update for done in finished)
            yield finished
