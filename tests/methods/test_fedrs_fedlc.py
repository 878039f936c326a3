"""FedRS and FedLC: local losses that know which classes a site lacks."""

import pytest
import torch
from by_hand import play, whole
from torch import nn
from torch.nn.functional import cross_entropy

import potluck as pl
from potluck.methods import FedLC, FedRS
from potluck.models import Classifier
from potluck.models.network import Network

SPACE = pl.LabelSpace(("ant", "bee", "cow"))
LABELS = ["ant"] * 4 + ["cow"] * 2  # no bees


def network():
    torch.manual_seed(3)  # the model's own start, not the round's randomness
    encoder = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
    return Network(Classifier(encoder, nn.Linear(4, 3)).double())


def federation(view):
    inputs = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)).double()
    return pl.Federation.of([pl.Site.of("zoo", inputs, view, LABELS)])


def one_step(method, view, loss):
    """One full-batch step by the method, and by a loss of (features, head weight, head bias)."""
    model = network()
    recipe = pl.Recipe(rounds=1, method=method, local=whole(0.3))
    states, _ = play(model, recipe, federation(view))
    start = method.adjust({}, model.initial()[0], model.layout)
    module = model.module(start, {})
    parameters = list(module.parameters())
    features = module.encoder(federation(view).sites[0].inputs)
    gradients = torch.autograd.grad(
        loss(features, module.head.weight, module.head.bias), parameters, allow_unused=True
    )
    steps = [
        p - 0.3 * (torch.zeros_like(p) if g is None else g)
        for p, g in zip(parameters, gradients, strict=True)
    ]
    expected = torch.cat([step.detach().flatten() for step in steps])
    return states[0].theta, expected


TARGETS = torch.tensor([0, 0, 0, 0, 2, 2])


@pytest.mark.parametrize("view", [pl.exact(SPACE), pl.subset(SPACE, ["cow", "ant"], "all")])
def test_fedrs_damps_rare_and_missing_classes_and_has_no_bias(view):
    # Shares 4 : 0 : 2, so s = 1, α, α + (1 − α) / 2.
    scale = torch.tensor([1.0, 0.2, 0.6]).double()
    found, expected = one_step(
        FedRS(alpha=0.2), view, lambda f, w, b: cross_entropy(scale * (f @ w.T), TARGETS)
    )
    assert torch.allclose(found, expected, atol=1e-7)
    assert torch.equal(network().layout.unflatten(found)["head.bias"], torch.zeros(3).double())


def test_fedrs_with_alpha_1_is_plain_training_without_a_bias():
    found, expected = one_step(
        FedRS(alpha=1.0), pl.exact(SPACE), lambda f, w, b: cross_entropy(f @ w.T, TARGETS)
    )
    assert torch.allclose(found, expected, atol=1e-7)


def test_fedrs_keeps_its_bias_at_0_whatever_the_optimiser_does():
    local = whole(0.3, steps=3, optimiser=pl.AdamW())
    for federated in (pl.FedAvg(), pl.FedAdam(), pl.Scaffold()):
        recipe = pl.Recipe(rounds=2, method=FedRS(), federated=federated, local=local)
        states, _ = play(network(), recipe, federation(pl.exact(SPACE)), rounds=2)
        assert not network().layout.unflatten(states[-1].theta)["head.bias"].any()


def test_fedrs_tells_a_private_site_why_it_cannot_take_part():
    sites = federation(pl.private_subset(SPACE, ["cow", "ant"]))
    message = 'site "zoo" keeps its classes private, but FedRS.*must know all of them.*ridge-head'
    with pytest.raises(pl.PotluckError, match=message):
        pl.Recipe(rounds=1, method=FedRS()).check(sites)


def test_fedlc_subtracts_margins_and_leaves_missing_classes_at_rest():
    margins = torch.tensor([0.7 * 4**-0.25, 1e9, 0.7 * 2**-0.25]).double()
    found, expected = one_step(
        FedLC(tau=0.7),
        pl.exact(SPACE),
        lambda f, w, b: cross_entropy(f @ w.T + b - margins, TARGETS),
    )
    assert torch.allclose(found, expected, atol=1e-7)
    before, after = (network().layout.unflatten(theta) for theta in (network().initial()[0], found))
    assert torch.equal(before["head.weight"][1], after["head.weight"][1])


def test_fedlc_is_the_same_at_a_private_site():
    recipe = pl.Recipe(rounds=2, method=FedLC(), local=whole(0.3))
    ends = [
        play(network(), recipe, federation(view), rounds=2)[0][-1].theta
        for view in (pl.private_subset(SPACE, ["cow", "ant"]), pl.exact(SPACE))
    ]
    assert torch.allclose(*ends, atol=1e-7)


@pytest.mark.parametrize("method", [FedRS(), FedLC()])
def test_labels_that_are_no_classes_are_refused(method):
    view = pl.coarse(SPACE, {"insect": ["ant", "bee"], "mammal": ["cow"]})
    site = pl.Site.of("zoo", torch.zeros(2, 2), view, ["insect", "mammal"])
    with pytest.raises(pl.PotluckError, match='site "zoo" has a view of kind coarse, but Fed'):
        pl.Recipe(rounds=1, method=method).check(pl.Federation.of([site]))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedRS(alpha=1.5), "method.alpha is 1.5; it must be from 0 to 1"),
        (FedLC(tau=-1.0), "method.tau is -1.0; it must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        pl.Recipe(rounds=1, method=method).check(federation(pl.exact(SPACE)))
