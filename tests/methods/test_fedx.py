"""FedX: distillation between views, with a head that learns from candidates."""

import pytest
import torch

import potluck as pl
from potluck.data.makers import candidates as maker
from potluck.data.readers.digits import digits
from potluck.engines import Stacked
from potluck.methods import CandidateTargets, FedX

SPACE = pl.LabelSpace.numbered(10)


def site(name, first, count):
    data = digits().subset(torch.arange(first, first + count))
    mask = maker.uniform(data.classes, 10, 0.1, torch.Generator().manual_seed(first))
    return pl.Site.of(name, data.inputs, pl.candidates(SPACE, mask), mask, data.classes)


def recipe(method, rounds=2, **local):
    settings = {"lr": 0.1, "batch_size": 32, **local}
    return pl.Recipe(rounds=rounds, seed=0, method=method, local=pl.LocalTraining(**settings))


def test_without_distillation_it_is_fedavg_on_normalised_candidates():
    everyone = pl.Federation.of([site("a", 0, 64), site("b", 64, 48)])
    bare = pl.train(everyone, recipe(FedX(distil=0.0)))
    plain = pl.train(everyone, recipe(CandidateTargets()))
    torch.testing.assert_close(bare.state.theta, plain.state.theta, rtol=1e-4, atol=1e-6)


def test_distillation_changes_the_encoder_and_trains_the_sites_own_heads():
    everyone = pl.Federation.of([site("a", 0, 64), site("b", 64, 48)])
    bare, full = (pl.train(everyone, recipe(FedX(distil=d, width=32))) for d in (0.0, 1.0))
    layout = full.network.layout
    encoder = layout.mask(lambda name: name.startswith("encoder"))
    assert (bare.state.theta - full.state.theta)[encoder].norm() > 1e-3
    first, second = (full.state.sites[name].personal for name in "ab")
    assert set(first) == {"project.1", "project.2", "predict.1", "predict.2"}
    for name, head in first.items():
        assert (head - bare.state.sites["a"].personal[name]).norm() > 1e-4
        assert (head - second[name]).norm() > 1e-4


def test_fedx_learns_and_engines_agree():
    test = (digits().inputs[400:800], digits().classes[400:800])
    everyone = pl.Federation.of([site("a", 0, 160), site("b", 160, 160)], test=test)
    # Digits cannot be turned or flipped; a shift is the view that keeps the class.
    method = FedX(augment="crop", width=32, distil=0.1)
    trained = pl.train(everyone, recipe(method, rounds=8, epochs=2, lr=0.3))
    assert trained.history[-1]["test"]["accuracy"] > 0.6
    short = recipe(method, rounds=2)
    torch.testing.assert_close(
        pl.train(everyone, short, engine=Stacked()).state.theta,
        pl.train(everyone, short).state.theta,
        rtol=1e-3,
        atol=1e-4,
    )


def test_a_batch_of_one_sample_is_no_trouble():
    everyone = pl.Federation.of([site("a", 0, 33)])
    assert torch.isfinite(pl.train(everyone, recipe(FedX(width=8))).state.theta).all()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedX(augment="none"), "FedX compares two views of each image"),
        (FedX(augment="wek"), 'unknown method.augment "wek".*did you mean "weak"'),
        (FedX(temperature=0.0), "method.temperature above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        recipe(method).check(pl.Federation.of([site("a", 0, 20)]))


def test_tables_cannot_be_seen_in_two_views():
    table = pl.Site.of("a", torch.rand(20, 5), pl.exact(SPACE), torch.arange(20) % 10)
    with pytest.raises(pl.PotluckError, match="are not images"):
        recipe(FedX()).check(pl.Federation.of([table]))
