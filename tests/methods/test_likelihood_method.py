"""The likelihood method: its loss is the view likelihood, and nothing else happens."""

import pytest
import torch
from by_hand import play
from torch import nn

import potluck as pl
from potluck.data.augment import AUGMENTATIONS
from potluck.losses import view_nll
from potluck.methods import Batch, Here, Likelihood, LocalModel, Plan, SiteData, Step
from potluck.models import build
from potluck.models.network import Network
from potluck.streams import stream
from potluck.training import make_network

SPACE = pl.LabelSpace(("ant", "bee", "cow", "dog"))
COUNT = 24


def images(count=COUNT, seed=0, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 1, size, size), generator=generator, dtype=torch.uint8)


def masks():
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(COUNT, 4, generator=generator) < 0.5
    mask[:, 0] = True
    return mask


def site_of(kind):
    numbers = torch.arange(COUNT)
    if kind == "coarse":
        view = pl.coarse(SPACE, {"insect": ["ant", "bee"], "mammal": ["cow", "dog"]})
        return pl.Site.of("s", images(), view, numbers % 2)
    if kind == "noisy":
        return pl.Site.of(
            "s",
            images(),
            pl.noisy(SPACE, torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)),
            numbers % 4,
        )
    if kind == "bags":
        priors = torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)
        return pl.Site.of("s", images(), pl.bags(SPACE, priors), numbers % 4)
    if kind == "candidates":
        return pl.Site.of("s", images(), pl.candidates(SPACE, masks()), masks())
    if kind == "subset":
        return pl.Site.of("s", images(), pl.subset(SPACE, ["dog", "bee"]), numbers % 2)
    if kind == "private":
        return pl.Site.of("s", images(), pl.private_subset(SPACE, ["dog", "bee"]), numbers % 2)
    if kind == "unlabeled":
        return pl.Site.of("s", images(), pl.unlabeled(SPACE))
    return pl.Site.of("s", images(), pl.exact(SPACE), numbers % 4)


KINDS = ["exact", "coarse", "noisy", "bags", "candidates", "subset", "private", "unlabeled"]


def loss_of(method, site, index, draws=None):
    classes = len(site.view.own().space)
    network = Network(build("mlp", (1, 6, 6), classes, hidden=(5,)))
    theta, buffers = network.initial()
    model = LocalModel(network, theta, buffers, (theta, buffers))
    batch = Batch(index, draws or {})
    step = Step(model, SiteData.of(site), {}, {"x": theta}, Plan(index), batch)
    loss, state = method.loss(step)
    assert state["x"] is theta  # the method keeps nothing
    return loss, network, theta, buffers


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_mean_view_likelihood(kind):
    site, index = site_of(kind), torch.tensor([3, 0, 17, 11, 2])
    loss, network, theta, buffers = loss_of(pl.Likelihood(), site, index)
    logits = network.infer(theta, buffers, site.inputs[index])
    view = site.view.own()
    # The probability of each observed symbol, as the design writes it: (a·η) / (b·η).
    eta = logits.softmax(1).double()
    probability = (view.rows(site.symbols[index]) * eta).sum(1) / (eta @ view.normaliser)
    assert float(loss) == pytest.approx(float(-probability.log().mean()), abs=1e-6)
    rows = view_nll(
        logits, view.rows(site.symbols[index]).log().float(), view.normaliser.log().float()
    )
    assert float(loss) == pytest.approx(float(rows.mean()), abs=1e-7)


def test_with_exact_labels_the_loss_is_cross_entropy():
    site, index = site_of("exact"), torch.arange(10)
    loss, network, theta, buffers = loss_of(pl.Likelihood(), site, index)
    logits = network.infer(theta, buffers, site.inputs[index])
    expected = nn.functional.cross_entropy(logits, site.symbols[index])
    assert float(loss) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize(
    "view",
    [
        pl.noisy(SPACE, torch.full((4, 4), 1 / 4)),
        pl.bags(SPACE, torch.full((2, 4), 1 / 4), sizes=[5, 1], minimum_rank=1),
    ],
    ids=["noise without a signal", "bags like everybody"],
)
def test_a_site_whose_labels_say_nothing_sits_out(view):
    site = pl.Site.of("s", torch.randn(6, 4), view, [0, 1, 0, 0, 0, 0])
    plan = Likelihood().plan(Here(None, SiteData.of(site), {}, {}), None)
    assert len(plan.pool) == 0


def test_a_site_without_labels_sits_out_and_nothing_moves():
    federation = pl.Federation.of([site_of("unlabeled")])
    recipe = pl.Recipe(rounds=1)
    network = make_network(federation, recipe, "mlp")
    states, records = play(network, recipe, federation)
    assert torch.equal(states[0].theta, network.initial()[0])
    assert records[0]["sat_out"] == ["s"]


@pytest.mark.parametrize("augment", ["flip", "weak", "rotate", "randaugment"])
def test_augmented_losses_use_the_draws_of_their_step(augment):
    site, method = site_of("exact"), pl.Likelihood(augment=augment)
    batches = [torch.tensor([3, 0, 17]), torch.tensor([5, 9])]
    draws = method.draw(SiteData.of(site), Plan(torch.arange(COUNT)), batches, stream(0, "x"))
    assert len(draws) == 2
    for index, drawn in zip(batches, draws, strict=True):
        assert all(len(value) == len(index) for value in drawn.values())
        loss, network, theta, buffers = loss_of(method, site, index, drawn)
        views = AUGMENTATIONS[augment]().apply(site.inputs[index], drawn)
        expected = nn.functional.cross_entropy(
            network.infer(theta, buffers, views), site.symbols[index]
        )
        assert float(loss) == pytest.approx(float(expected), abs=1e-6)


LOCALS = {
    "sgd": (
        pl.LocalTraining(lr=0.1, epochs=2, batch_size=5, optimiser=pl.SGD(0.9, True, 0.01)),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam, kept": (
        pl.LocalTraining(lr=0.01, batch_size=7, optimiser=pl.Adam(), optimiser_state="keep"),
        lambda p: torch.optim.Adam(p, lr=0.01),
    ),
    "clip, steps, drop": (
        pl.LocalTraining(lr=0.5, batch_size=5, steps=7, clip=0.3, last_batch="drop"),
        lambda p: torch.optim.SGD(p, lr=0.5),
    ),
    "l1": (
        pl.LocalTraining(lr=0.1, batch_size=24, l1=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ),
}


@pytest.mark.parametrize("name", LOCALS)
def test_one_site_with_exact_labels_is_ordinary_training(name):
    local, make_optimiser = LOCALS[name]
    site = site_of("exact")
    recipe = pl.Recipe(rounds=3, seed=4, local=local)
    torch.manual_seed(0)  # the model's own start
    start = nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
    ).double()
    site = pl.Site(site.name, site.inputs.double() / 255, site.view, site.symbols)
    trained = pl.train(pl.Federation.of([site]), recipe, start).module()

    module = start.train()
    optimiser = make_optimiser(module.parameters())
    for number in range(3):
        if local.optimiser_state == "reset":
            optimiser = make_optimiser(module.parameters())
        for batch in local.batches(torch.arange(COUNT), stream(4, number, "s", "batches")):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(site.inputs[batch]), site.symbols[batch])
            loss = loss + local.l1 * sum(p.abs().sum() for p in module.parameters())
            loss.backward()
            if local.clip:
                nn.utils.clip_grad_norm_(module.parameters(), local.clip)
            optimiser.step()
    assert torch.allclose(trained(site.inputs), module.eval()(site.inputs), atol=1e-9)
