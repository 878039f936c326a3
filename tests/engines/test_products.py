"""Plain SGD within the products that make gradients: the same steps, with no gradient written."""

import pytest
import torch
from test_stacked import (
    SPACE,
    assert_agree,
    federation,
    in_pieces,
    network,
    stacked,
    trained,
    with_body,
)
from torch import nn

import potluck as pl
from potluck.engines.compiled import rewritten, traced
from potluck.engines.parts import PartedProgram
from potluck.engines.program import Run
from potluck.engines.sequential import Sequential
from potluck.models import build
from potluck.models.network import Network

__all__ = ["federation"]  # a fixture

WEIGHTS = 2  # matrices of `network("mlp")`


def products_of(recipe, federation, model):
    """How many products are taken out of the steps of each program that a round needs."""
    found = []

    def prepare(program):
        steps = traced(program)
        products = rewritten(steps, program)
        found.append(len(products.numbers))
        return Run(products.after(steps))

    trained(stacked(prepare, make=PartedProgram), model, recipe, federation)
    return set(found)


def recipe(**local):
    return pl.Recipe(rounds=1, local=pl.LocalTraining(lr=0.05, batch_size=8, **local))


def test_every_matrix_of_a_plain_step_is_moved_by_its_product(federation):
    assert products_of(recipe(), federation, network("mlp")) == {WEIGHTS}


@pytest.mark.parametrize(
    "other",
    [
        recipe(optimiser=pl.SGD(momentum=0.5)),
        recipe(optimiser=pl.SGD(weight_decay=1e-3)),
        recipe(optimiser=pl.Adam()),
        recipe(clip=0.5),
        recipe(l1=1e-3),
        pl.Recipe(rounds=1, federated=pl.FedProx()),
        pl.Recipe(rounds=1, federated=pl.Scaffold()),
    ],
    ids=["momentum", "decay", "adam", "clip", "l1", "fedprox", "scaffold"],
)
def test_gradients_that_are_looked_at_are_made(federation, other):
    assert products_of(other, federation, network("mlp")) == {0}


def test_steps_agree_with_the_reference(federation):
    """Also those of sites that are passed over, and of programs for a site by itself."""
    for sites in (federation.sites, federation.sites[:1]):
        some = pl.Federation.of(sites)
        several = pl.Recipe(rounds=3, local=pl.LocalTraining(lr=0.05, batch_size=8, epochs=2))
        engine = stacked(in_pieces, make=PartedProgram)
        assert_agree(several, some, network("mlp"), engine)


class LowRank(nn.Module):
    """Weights that are themselves a product: the gradient of each has the other for a factor."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.left = nn.Parameter(torch.randn(5, 3, generator=generator))
        self.right = nn.Parameter(torch.randn(3, 64, generator=generator))

    def forward(self, inputs):
        return inputs @ (self.left @ self.right).T


def test_weights_that_are_factors_of_each_other_move_at_once(federation):
    model = with_body(nn.Flatten(), LowRank())
    engine = stacked(in_pieces, make=PartedProgram)
    assert_agree(recipe(epochs=2), federation, model, engine)


class Tied(nn.Module):
    """One matrix used twice: its gradient is a sum of two products."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.Parameter(torch.randn(64, 64, generator=generator) / 8)

    def forward(self, inputs):
        return torch.relu(inputs @ self.weights) @ self.weights


def test_a_matrix_that_is_used_twice_moves_by_both_gradients(federation):
    model = with_body(nn.Flatten(), Tied())
    assert products_of(recipe(), federation, model) == {1}  # the head's
    assert_agree(recipe(), federation, model, stacked(in_pieces, make=PartedProgram))


def test_updates_are_those_of_single_precision(federation):
    """To rounding: a product adds to the weights, instead of to nought and then to them."""
    sites = pl.Federation.of(federation.sites[:2])
    model = Network(build("mlp", (1, 8, 8), len(SPACE), hidden=(8,)))
    state, _ = trained(stacked(in_pieces, make=PartedProgram), model, recipe(), sites)
    reference, _ = trained(Sequential(), model, recipe(), sites)
    assert state.theta.dtype == torch.float32
    torch.testing.assert_close(state.theta, reference.theta, rtol=1e-5, atol=1e-6)
