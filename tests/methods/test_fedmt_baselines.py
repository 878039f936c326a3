"""Single, FedTrans, FedRep and FedMatch: who trains what, when, and what is averaged."""

import pytest
import torch

import potluck as pl
from potluck.engines import ENGINES
from potluck.engines.rounds import start
from potluck.errors import PotluckError
from potluck.methods import (
    Batch,
    FedMatch,
    FedRep,
    FedTrans,
    Here,
    LocalModel,
    Single,
    SiteData,
    Step,
)
from potluck.methods.heads import first_head, with_head
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace(("a", "b", "c", "d"))
NESTED = {"x": ["a", "b"], "y": ["c", "d"]}
CPU = torch.device("cpu")


def blobs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(count) % 4
    return 2 * torch.eye(4)[truth] + 0.7 * torch.randn(count, 4, generator=generator), truth


def coarse(name: str = "clinic", count: int = 80, seed: int = 0, mapping=NESTED) -> pl.Site:
    inputs, truth = blobs(count, seed)
    view = pl.coarse(SPACE, mapping)
    return pl.Site.of(name, inputs, view, view.codebook.argmax(0)[truth], truth)


def exact(name: str = "server", count: int = 24, seed: int = 9) -> pl.Site:
    return coarse(name, count, seed).revealed()


def train(method, sites, server=None, rounds=1, engine="sequential", **local) -> pl.Trained:
    settings = {"lr": 0.1, "epochs": 2, **local}
    recipe = pl.Recipe(rounds=rounds, method=method, local=pl.LocalTraining(**settings))
    test = blobs(400, 3)
    return pl.train(pl.Federation.of(sites, server, test), recipe, engine=ENGINES[engine]())


def accuracy(trained: pl.Trained) -> float:
    return trained.history[-1]["test"]["accuracy"]


def parts(trained: pl.Trained, theta=None) -> dict[str, torch.Tensor]:
    theta = trained.state.theta if theta is None else theta
    return trained.network.layout.unflatten(theta)


# --- Single -------------------------------------------------------------------------------------


def test_single_ignores_sites_that_label_in_another_space():
    with_sites = train(Single(), [coarse(), coarse("other", seed=1)], exact(), rounds=3)
    assert with_sites.history[0]["sat_out"] == ["clinic", "other"]
    alone = train(Single(), [exact("server")], rounds=3)  # the same samples and streams
    assert torch.allclose(with_sites.state.theta, alone.state.theta, atol=1e-6)


def test_single_uses_a_noisy_centre_among_the_sites():
    inputs, truth = blobs(24, 9)
    noise = torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)
    centre = pl.Site.of("centre", inputs, pl.noisy(SPACE, noise), truth)
    trained = train(Single(), [coarse(), centre])
    assert trained.history[0]["sat_out"] == ["clinic"]


# --- heads --------------------------------------------------------------------------------------


def test_a_head_of_the_sites_own_sits_on_the_shared_encoder():
    network = Network(build("mlp", (4,), 4, generator=torch.Generator().manual_seed(0)))
    theta, buffers = network.initial()
    model = LocalModel(network, theta, buffers, (theta, buffers))
    head = first_head(SiteData.of(coarse()), network)
    inputs, _ = blobs(5, 0)
    assert head["head.weight"].shape == (2, 128)
    assert 0.08 < head["head.weight"].abs().max() <= 128**-0.5
    features = network.features(theta, buffers, inputs)
    expected = features @ head["head.weight"].T + head["head.bias"]
    assert torch.allclose(with_head(model, head, inputs), expected, atol=1e-6)
    # The model's own head as the site's gives the model.
    own = {name: network.layout.unflatten(theta)[name] for name in head}
    assert torch.allclose(with_head(model, own, inputs), model(inputs), atol=1e-6)


# --- FedRep -------------------------------------------------------------------------------------


def test_fedrep_keeps_heads_at_the_sites_and_averages_encoders():
    trained = train(FedRep(), [coarse(), coarse("other", seed=1)], exact())
    heads = [trained.state.sites[name].personal["head.weight"] for name in ("clinic", "other")]
    assert heads[0].shape == (2, 128)
    assert not torch.allclose(heads[0], heads[1])


def test_fedrep_leaves_the_models_head_to_those_who_have_its_labels():
    recipe = pl.Recipe(rounds=1, method=FedRep(), local=pl.LocalTraining(lr=0.1))
    sites = [coarse(), exact("centre")]
    trained = pl.train(pl.Federation.of(sites), recipe)
    assert torch.allclose(
        parts(trained)["head.weight"], trained.state.sites["centre"].personal["head.weight"]
    )
    before = start(trained.network, recipe, pl.Federation.of(sites), CPU).theta
    assert not torch.equal(parts(trained)["head.weight"], parts(trained, before)["head.weight"])


def test_fedrep_by_its_authors_trains_the_head_alone_and_then_the_encoder_alone():
    method, site = FedRep(head_epochs=1), coarse(count=8)
    data = SiteData.of(site)
    network = Network(build("mlp", (4,), 4, generator=torch.Generator().manual_seed(0)))
    theta, buffers = network.initial()
    model = LocalModel(network, theta, buffers, (theta, buffers))
    plan = method.plan(Here(model, data, {}, {}), torch.Generator())
    batches = [torch.arange(4), torch.arange(4, 8)] * 2  # two epochs
    steps = method.draw(data, plan, batches, torch.Generator())
    assert [bool(step["head"]) for step in steps] == [True, True, False, False]

    def gradients(number):
        variable = theta.clone().requires_grad_()
        head = {k: v.clone().requires_grad_() for k, v in method.personal(data, network).items()}
        model = LocalModel(network, variable, buffers, (theta, buffers), head)
        batch = Batch(batches[number], steps[number])
        loss, _ = method.loss(Step(model, data, {}, {}, plan, batch))
        return torch.autograd.grad(loss, [variable, head["head.weight"]], materialize_grads=True)

    encoder, head = gradients(0)
    assert not encoder.any()
    assert head.any()
    encoder, head = gradients(2)
    assert encoder.any()
    assert not head.any()


@pytest.mark.parametrize("head_epochs", [0, 1])
def test_fedrep_learns_both_ways(head_epochs):
    method = FedRep(head_epochs=head_epochs)
    assert accuracy(train(method, [coarse(), coarse("other", seed=1)], exact(), rounds=15)) > 0.8


# --- FedTrans -----------------------------------------------------------------------------------


def test_fedtrans_first_pretrains_at_the_sites_and_then_fine_tunes_at_the_server():
    method = FedTrans(pretrain=3, batch_size=8)
    trained = train(method, [coarse(), coarse("other", seed=1)], exact(), rounds=6)
    trainers = [
        [name for name, metrics in record["sites"].items() if metrics] for record in trained.history
    ]
    assert trainers == [["clinic", "other"]] * 3 + [["server"]] * 3


def test_fedtrans_averages_heads_within_a_label_space_only():
    other = {"p": ["a", "c"], "q": ["b", "d"]}
    sites = [coarse(), coarse("twin", seed=1), coarse("else", seed=2, mapping=other)]
    method = FedTrans(pretrain=2)
    trained = train(method, sites, exact())
    shared = {name: method.share(trained.state.method, name) for name in ("clinic", "twin", "else")}
    own = {name: trained.state.sites[name].personal["head.weight"] for name in shared}
    assert torch.allclose(shared["clinic"]["head.weight"], (own["clinic"] + own["twin"]) / 2)
    assert torch.equal(shared["clinic"]["head.weight"], shared["twin"]["head.weight"])
    assert torch.allclose(shared["else"]["head.weight"], own["else"])


def test_fedtrans_leaves_the_models_head_alone_while_it_pretrains():
    method = FedTrans(pretrain=5)
    trained = train(method, [coarse()], exact(), rounds=2)
    initial, _ = trained.network.initial()
    assert torch.equal(parts(trained)["head.weight"], parts(trained, initial)["head.weight"])
    assert not torch.equal(trained.state.theta, initial)


@pytest.mark.parametrize("where", ["server", "site"])
def test_pretraining_in_the_sites_space_helps_the_target_space(where):
    sites, centre = [coarse(), coarse("other", seed=1)], exact("centre", count=8)
    method = FedTrans(pretrain=10, lr=0.1, batch_size=8)
    if where == "server":
        trained = train(method, sites, centre, rounds=30)
        alone = train(Single(), sites, centre, rounds=20)
    else:
        trained = train(method, [*sites, centre], rounds=30)
        alone = train(Single(), [*sites, centre], rounds=20)
    assert accuracy(trained) > 0.75
    assert accuracy(trained) > accuracy(alone) - 0.02


# --- FedMatch -----------------------------------------------------------------------------------


def test_fedmatch_sites_move_psi_and_the_server_moves_sigma():
    method = FedMatch(strong="none")
    server = exact()
    trained = train(method, [coarse(), coarse("other", seed=1)], server, rounds=3, lr=1e-3)
    recipe = pl.Recipe(rounds=1, method=method)
    federation = pl.Federation.of([coarse(), coarse("other", seed=1)], server)
    begun = start(trained.network, recipe, federation, CPU)
    sigma, psi = begun.theta - begun.method["psi"], begun.method["psi"]
    assert torch.allclose(psi, 0.2 * sigma, atol=1e-6)
    # σ is what is left of θ without ψ; the server's labelled samples moved it.
    moved = trained.state.theta - trained.state.method["psi"]
    assert not torch.allclose(moved, sigma, atol=1e-4)
    assert not torch.allclose(trained.state.method["psi"], psi, atol=1e-4)


def test_fedmatch_gives_each_site_the_models_that_answer_most_alike():
    method = FedMatch(helpers=1, strong="none")
    state = {"psi": torch.zeros(3)}
    for name, answer in {"a": [1.0, 0.0], "b": [0.9, 0.1], "c": [0.0, 1.0]}.items():
        state[f"answer/{name}"] = torch.tensor(answer)
        state[f"model/{name}"] = torch.full((3,), float(ord(name)))
    assert method.share(state, "a")["helper-0"][0] == ord("b")
    assert method.share(state, "c")["helper-0"][0] == ord("b")
    assert set(method.share(state, "newcomer")) == {"psi"}


def test_fedmatch_loss_is_the_papers():
    method = FedMatch(tau=0.3, strong="none", lambda_l1=0.1, lambda_l2=0.2)
    site = coarse(count=12)
    data = SiteData.of(site)
    network = Network(build("mlp", (4,), 4, generator=torch.Generator().manual_seed(0)))
    theta, buffers = network.initial()
    helper = theta + 0.3 * torch.randn(len(theta), generator=torch.Generator().manual_seed(1))
    model = LocalModel(network, theta, buffers, (theta, buffers))
    shared = {"psi": 0.25 * theta, "helper-0": helper}
    plan = method.plan(Here(model, data, shared, {}), torch.Generator())
    loss, _ = method.loss(Step(model, data, shared, {}, plan, Batch(torch.arange(12), {})))

    eta = model.reference(site.inputs).softmax(1)
    other = network.infer(helper, buffers, site.inputs).softmax(1)
    sure = eta.max(1).values >= 0.3
    assert 0 < sure.sum() < 12
    apart = (other * (other.log() - eta.log())).sum(1)[sure].mean()
    votes = torch.eye(4)[eta.argmax(1)] + torch.eye(4)[other.argmax(1)]
    wrong = -eta.log()[torch.arange(12), votes.argmax(1)][sure].mean()
    sigma, psi = 0.75 * theta, 0.25 * theta
    norms = 0.1 * psi.abs().sum() + 0.2 * ((sigma - psi) ** 2).sum()
    assert float(loss.detach()) == pytest.approx(
        float(0.01 * apart + 0.01 * wrong + norms), rel=1e-4
    )


# --- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [FedRep(), FedRep(head_epochs=1), FedTrans(pretrain=2), FedMatch(strong="none", refresh=1)],
    ids=lambda method: type(method).__name__,
)
def test_the_stacked_engine_agrees(method):
    sites = [coarse(), coarse("other", seed=1)]
    one, other = (
        train(method, sites, exact(), rounds=3, lr=1e-3, engine=engine)
        for engine in ("sequential", "stacked")
    )
    assert torch.allclose(one.state.theta, other.state.theta, atol=1e-5)


@pytest.mark.parametrize("method", [Single(), FedRep(), FedTrans(), FedMatch(strong="none")])
def test_somebody_must_have_labels_of_the_target_classes(method):
    recipe = pl.Recipe(rounds=1, method=method)
    with pytest.raises(PotluckError, match=f"method {type(method).__name__.lower()}"):
        recipe.check(pl.Federation.of([coarse()]))
    recipe.check(pl.Federation.of([coarse()], exact()))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedRep(head_epochs=-1), "method.head_epochs is -1"),
        (FedTrans(pretrain=0), "method.pretrain is 0"),
        (FedMatch(strong="none", helpers=0), "method.helpers is 0"),
        (FedMatch(), 'set method.strong = "none"'),
    ],
)
def test_options_that_cannot_work_are_refused(method, message):
    with pytest.raises(PotluckError, match=message):
        pl.Recipe(rounds=1, method=method).check(pl.Federation.of([coarse()], exact()))
