"""Vectors in parts: the same numbers, to the last bit, from fewer operations on whole vectors."""

import pytest
import torch
from test_stacked import assert_agree, federation, in_pieces, network, stacked
from torch.fx.experimental.proxy_tensor import make_fx

import potluck as pl
from potluck.engines.parts import PartedProgram, piecewise
from potluck.engines.trees import in_one, in_parts

__all__ = ["federation"]  # a fixture

aten = torch.ops.aten


def rewritten(function, *examples):
    """A function before and after it is rewritten, and what it then calls."""
    before = make_fx(function, tracing_mode="fake")(*examples)
    after = piecewise(make_fx(function, tracing_mode="fake")(*examples))
    return before, after, [node.target for node in after.graph.nodes]


def parts(*sizes, rows=3):
    generator = torch.Generator().manual_seed(sum(sizes))
    return [torch.randn(rows, size, generator=generator) for size in sizes]


def assert_equal(before, after, *arguments):
    for one, other in zip(before(*arguments), after(*arguments), strict=True):
        assert torch.equal(one, other)


def test_a_step_of_descent_never_sees_the_whole_vector():
    def step(first, second, gradient_1, gradient_2, rate, active):
        vector = torch.cat([first, second], -1)
        moved = vector - rate * torch.cat([gradient_1, gradient_2], -1)
        kept = torch.where(active[:, None], moved, vector)
        return kept.split([4, 2], -1)

    examples = (*parts(4, 2), *parts(4, 2), torch.tensor(0.1), torch.tensor([True, False, True]))
    before, after, called = rewritten(step, *examples)
    assert_equal(before, after, *examples)
    assert aten.cat.default not in called
    assert called.count(aten.sub.Tensor) == called.count(aten.where.self) == 2


def test_a_vector_in_one_piece_is_cut_where_the_other_is():
    def step(whole, first, second):
        return (whole * torch.cat([first, second], -1)).split([4, 2], -1)

    examples = (*parts(6), *parts(4, 2))
    before, after, called = rewritten(step, *examples)
    assert_equal(before, after, *examples)
    assert aten.cat.default not in called


def test_what_needs_the_whole_vector_gets_it():
    def step(first, second):
        vector = torch.cat([first, second], -1)
        scaled = vector / vector.norm(dim=-1, keepdim=True)
        return scaled[:, 1:5], scaled[:, :4], scaled.T.contiguous()

    examples = parts(4, 2)
    before, after, called = rewritten(step, *examples)
    assert_equal(before, after, *examples)
    assert aten.cat.default in called


@pytest.mark.parametrize("dimension", [0, 1])
def test_other_concatenations_stay_right(dimension):
    def step(first, second):
        joined = torch.cat([first, second], dimension)
        return joined * 2 + joined[:1], joined.double() - first.sum()

    examples = torch.randn(3, 3), torch.randn(3, 3).int()
    before, after, _ = rewritten(step, *examples)
    assert_equal(before, after, *examples)


def test_parts_and_one_piece_are_inverse():
    tree = {
        "vector": torch.arange(6.0),
        "state": {"moment": torch.ones(2, 6), "steps": torch.ones(())},
    }
    cut = in_parts(tree, [4, 2])
    assert cut["vector"][1].tolist() == [4, 5]
    assert cut["state"]["moment"][0].shape == (2, 4)
    assert cut["state"]["steps"] is tree["state"]["steps"]
    assert torch.equal(in_one(cut)["vector"], tree["vector"])
    assert in_parts(tree, [6])["vector"] is tree["vector"]


@pytest.mark.parametrize(
    ("federated", "local"),
    [
        (pl.FedAvg(), {"optimiser": pl.SGD(momentum=0.9, nesterov=True, weight_decay=1e-3)}),
        (pl.FedProx(mu=0.1), {"optimiser": pl.Adam(weight_decay=1e-3), "clip": 0.5}),
        (pl.Scaffold(), {"optimiser": pl.SGD(), "l1": 1e-4}),
        (pl.FedAvgM(), {"optimiser": pl.AdamW(), "optimiser_state": "keep"}),
    ],
    ids=["momentum", "adam", "scaffold", "adamw"],
)
def test_every_optimiser_agrees(federation, federated, local):
    training = pl.LocalTraining(lr=0.05, batch_size=8, **local)
    recipe = pl.Recipe(rounds=2, federated=federated, local=training)
    engine = stacked(in_pieces, make=PartedProgram)
    assert_agree(recipe, federation, network("mlp"), engine)
