"""FedMT (2024) and SemiFL: pseudo-labels, correspondences, losses, what leaves a site."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import potluck as pl
from potluck.engines.rounds import start
from potluck.errors import PotluckError
from potluck.messages import SiteState
from potluck.methods import Batch, FedMT, Here, LocalModel, Plan, SemiFL, SiteData, Step
from potluck.methods.fedmt import estimate_correspondence, estimated_view
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace(("a", "b", "c", "d"))
COARSE = {"x": ["a", "b"], "y": ["b", "c", "d"]}  # class b gets either label
PLAIN = {"weak": "none", "strong": "none"}


def network() -> Network:
    return Network(build("mlp", (3,), 4, generator=torch.Generator().manual_seed(1), hidden=(8,)))


def coarse_site(name: str = "clinic", count: int = 40, mapping=COARSE, seed: int = 0) -> pl.Site:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(4, (count,), generator=generator)
    inputs = 2 * torch.eye(4)[truth][:, :3] + 0.5 * torch.randn(count, 3, generator=generator)
    view = pl.coarse(SPACE, mapping)
    symbols = torch.multinomial(view.codebook.T[truth], 1, generator=generator)[:, 0]
    return pl.Site.of(name, inputs, view, symbols, truth)


def exact_site(name: str = "server", count: int = 20, seed: int = 5) -> pl.Site:
    site = coarse_site(name, count, seed=seed)
    return site.revealed()


def local_model(sharpness: float = 1.0, personal=None) -> LocalModel:
    """A model at the start of a round; sharpness scales its scores."""
    net = network()
    theta, buffers = net.initial()
    parts = net.layout.unflatten(theta)
    theta = net.layout.flatten(
        {k: v * sharpness if k.startswith("head") else v for k, v in parts.items()}
    )
    return LocalModel(net, theta, buffers, (theta, buffers), personal or {})


def planned(method: SemiFL, model: LocalModel, site: pl.Site, shared=None) -> Plan:
    data = SiteData.of(site)
    return method.plan(Here(model, data, shared or {}, method.start(data)), torch.Generator())


def first_loss(method: SemiFL, model: LocalModel, site: pl.Site, plan: Plan, index: Tensor):
    data = SiteData.of(site)
    (draws,) = method.draw(data, plan, [index], torch.Generator().manual_seed(3))
    step = Step(model, data, {}, method.start(data), plan, Batch(index, draws))
    return draws, *method.loss(step)


# --- the estimate -------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30),
)
def test_the_estimate_counts_symbols_among_the_samples_of_each_class(pairs):
    symbols = torch.tensor([z for z, _ in pairs], dtype=torch.int64)
    classes = torch.tensor([k for _, k in pairs], dtype=torch.int64)
    matrix = estimate_correspondence(symbols, classes, 3, 4)
    for k in range(4):
        column = [z for z, y in pairs if y == k]
        for j in range(3):
            expected = column.count(j) / len(column) if column else 1 / 3
            assert matrix[j, k] == pytest.approx(expected)


def test_with_true_classes_the_estimate_approaches_the_correspondence():
    site = coarse_site(count=20_000)
    matrix = estimate_correspondence(site.symbols, site.truth, 2, 4)
    assert torch.allclose(matrix.double(), site.view.codebook, atol=0.02)


# --- pseudo-labels and who takes part -----------------------------------------------------------


def test_only_samples_at_least_as_confident_as_tau_are_trained_on():
    site, model = coarse_site(), local_model(sharpness=8.0)
    eta = model.reference(site.inputs).softmax(1)
    tau = float(eta.max(1).values.sort().values[25])  # exactly one sample's confidence: ≥ keeps it
    plan = planned(SemiFL(tau=tau, **PLAIN), model, site)
    assert plan.pool.tolist() == (eta.max(1).values >= tau).nonzero().flatten().tolist()
    assert len(plan.pool) == 15
    assert torch.equal(plan.tensors["pseudo_labels"], eta.argmax(1))
    hit = (eta.argmax(1) == site.truth)[plan.pool].double().mean()
    assert plan.metrics["pseudo_label_accuracy"] == pytest.approx(float(hit))


def test_the_weak_view_gives_the_pseudo_labels():
    images = torch.randint(256, (12, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    view = pl.unlabeled(SPACE)
    site = pl.Site.of("clinic", images.to(torch.uint8), view)
    net = Network(build("mlp", (1, 8, 8), 4, generator=torch.Generator().manual_seed(1)))
    model = LocalModel(net, *net.initial(), net.initial())
    method, plain = SemiFL(tau=0.0), SemiFL(tau=0.0, weak="none")
    here = Here(model, SiteData.of(site), {}, {})
    seen = [method.weak_scores(here, torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(seen[0], seen[1])
    assert not torch.allclose(seen[0], seen[2])
    unvaried = plain.weak_scores(here, torch.Generator())
    assert torch.allclose(unvaried, model.reference(site.inputs).log_softmax(1))


def test_a_site_without_confident_samples_sits_out_and_the_server_still_learns():
    federation = pl.Federation.of([coarse_site()], exact_site())
    method = FedMT(tau=1.0, **PLAIN)
    recipe = pl.Recipe(rounds=1, method=method, local=pl.LocalTraining(lr=0.1))
    trained = pl.train(federation, recipe)
    (record,) = trained.history
    assert record["sat_out"] == ["clinic"]
    assert list(record["sites"]) == ["server"]
    before = start(trained.network, recipe, federation, torch.device("cpu")).theta
    assert not torch.equal(trained.state.theta, before)


def test_restricted_pseudo_labels_are_compatible_with_the_sites_own_labels():
    site, model = coarse_site(), local_model(sharpness=8.0)
    method = FedMT(tau=0.0, correspondence="known", pseudo_labels="restricted", **PLAIN)
    restricted = planned(method, model, site).tensors["pseudo_labels"]
    free = planned(dataclasses.replace(method, pseudo_labels="unrestricted"), model, site)
    allowed = site.view.codebook[site.symbols] > 0
    assert allowed[torch.arange(len(site)), restricted].all()
    assert not allowed[torch.arange(len(site)), free.tensors["pseudo_labels"]].all()
    eta = model.reference(site.inputs).softmax(1).double()
    assert torch.equal(restricted, (site.view.codebook[site.symbols] * eta).argmax(1))


def test_an_estimated_correspondence_restricts_without_looking_at_the_declared_one():
    site, model = coarse_site(), local_model(sharpness=8.0)
    lie = dataclasses.replace(site.view, codebook=site.view.codebook.flip(0))
    method = FedMT(tau=0.5, pseudo_labels="restricted", **PLAIN)
    honest, lied = (planned(method, model, s) for s in (site, dataclasses.replace(site, view=lie)))
    assert torch.equal(honest.tensors["pseudo_labels"], lied.tensors["pseudo_labels"])
    assert torch.equal(honest.tensors["log_m"], lied.tensors["log_m"])


@pytest.mark.parametrize("method", [SemiFL(**PLAIN), FedMT(**PLAIN)])
def test_a_site_with_exact_labels_trains_on_them(method):
    site = exact_site("hospital")
    plan = planned(method, local_model(), site)
    assert len(plan.pool) == len(site)
    assert torch.equal(plan.tensors["pseudo_labels"], site.truth)


# --- losses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("correspondence", ["known", "estimated", "learnable"])
def test_the_loss_is_the_papers(correspondence):
    method = FedMT(tau=0.4, correspondence=correspondence, lambda2=0.5, lambda1=0.25, **PLAIN)
    site = coarse_site()
    free = torch.randn(2, 4, generator=torch.Generator().manual_seed(9))
    personal = {"correspondence": free} if correspondence == "learnable" else {}
    model = local_model(sharpness=8.0, personal=personal)
    plan = planned(method, model, site)
    index = plan.pool[:6]
    draws, loss, state = first_loss(method, model, site, plan, index)

    eta = model.reference(site.inputs).softmax(1).double()
    pseudo = eta.argmax(1)
    matrix = {
        "known": site.view.codebook,
        "estimated": estimate_correspondence(
            site.symbols[plan.pool], pseudo[plan.pool], 2, 4
        ).double(),
        "learnable": free.double().softmax(0),
    }[correspondence]
    projected = (eta @ matrix.T)[index, site.symbols[index]].clamp_min(1e-12)
    share, partner = float(draws["share"]), draws["partner"]
    mixed = model.reference(
        share * site.inputs[index] + (1 - share) * site.inputs[partner]
    ).log_softmax(1)
    rows = torch.arange(6)
    fix = -eta.log()[index, pseudo[index]].mean()
    mix = -(share * mixed[rows, pseudo[index]] + (1 - share) * mixed[rows, pseudo[partner]]).mean()
    expected = -projected.log().mean() + 0.5 * (fix + 0.25 * mix)
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    assert torch.allclose(state["correspondence"].double(), matrix, atol=1e-6)


def test_semifl_is_fedmt_without_the_projection():
    site, model = coarse_site(), local_model(sharpness=8.0)
    semifl = SemiFL(tau=0.4, **PLAIN)
    plan = planned(semifl, model, site)
    index = plan.pool[:5]
    _, semi, _ = first_loss(semifl, model, site, plan, index)
    both, alone = (FedMT(tau=0.4, lambda2=weight, **PLAIN) for weight in (1.0, 0.0))
    plan = planned(both, model, site)
    _, with_it, _ = first_loss(both, model, site, plan, index)
    _, projection, _ = first_loss(alone, model, site, plan, index)
    assert float(with_it - projection) == pytest.approx(float(semi), rel=1e-5)


def test_partners_come_from_all_samples_and_shares_are_one_per_step():
    site, method = coarse_site(count=30), SemiFL(tau=0.0, **PLAIN)
    data = SiteData.of(site)
    plan = Plan(torch.arange(3))
    steps = method.draw(data, plan, [torch.arange(3)] * 200, torch.Generator().manual_seed(0))
    assert set(torch.cat([step["partner"] for step in steps]).tolist()) == set(range(30))
    assert all(step["share"].shape == () and 0 <= step["share"] <= 1 for step in steps)


# --- averaging over sites -----------------------------------------------------------------------


def test_only_sites_of_the_same_label_space_are_averaged_and_each_gets_its_own():
    other = {"p": ["a", "b"], "q": ["c", "d"]}  # also two labels, but other ones
    sites = [coarse_site("one"), coarse_site("two", seed=1), coarse_site("else", mapping=other)]
    method = FedMT(tau=0.0, correspondence="estimated-averaged", **PLAIN)
    recipe = pl.Recipe(rounds=1, method=method, federated=pl.FedAvg(weights="uniform"))
    trained = pl.train(pl.Federation.of(sites, exact_site()), recipe)
    own = {name: trained.state.sites[name].method["correspondence"] for name in ("one", "two")}
    shared = {
        name: method.share(trained.state.method, name) for name in ("one", "two", "else", "new")
    }
    assert torch.allclose(shared["one"]["correspondence"], (own["one"] + own["two"]) / 2)
    assert torch.equal(shared["one"]["correspondence"], shared["two"]["correspondence"])
    last = trained.state.sites["else"].method["correspondence"]
    assert torch.allclose(shared["else"]["correspondence"], last, atol=1e-6)
    assert shared["new"] == {}


def test_the_averaged_estimate_is_what_the_next_round_uses():
    site, model = coarse_site(), local_model()
    method = FedMT(tau=0.0, correspondence="estimated-averaged", **PLAIN)
    mean = torch.tensor([[0.9, 0.5, 0.2, 0.1], [0.1, 0.5, 0.8, 0.9]])
    plan = planned(method, model, site, {"correspondence": mean})
    assert torch.allclose(plan.tensors["log_m"].exp(), mean)
    assert not torch.allclose(plan.tensors["estimate"], mean)


def test_the_learnable_average_is_where_the_next_round_starts():
    site = coarse_site()
    method = FedMT(tau=0.0, correspondence="learnable-averaged", **PLAIN)
    mean = torch.tensor([[0.9, 0.5, 0.2, 0.1], [0.1, 0.5, 0.8, 0.9]])
    model = local_model(personal={"correspondence": torch.randn(2, 4)})
    plan = planned(method, model, site, {"correspondence": mean})
    _, _, state = first_loss(method, model, site, plan, torch.arange(5))
    assert torch.allclose(state["correspondence"], mean, atol=1e-6)


@pytest.mark.parametrize("correspondence", ["known", "estimated", "learnable"])
def test_without_averaging_the_correspondence_never_leaves_the_site(correspondence):
    method = FedMT(tau=0.0, correspondence=correspondence, **PLAIN)
    data = SiteData.of(coarse_site())
    personal = method.personal(data, network())
    here = Here(local_model(personal=personal), data, {}, method.start(data))
    assert method.report(here, method.plan(here, torch.Generator())) == {}


def test_the_learnable_correspondence_learns():
    site = coarse_site(count=200)
    recipe = pl.Recipe(
        rounds=15,
        method=FedMT(tau=0.5, correspondence="learnable", lambda2=0.0, **PLAIN),
        local=pl.LocalTraining(lr=0.5, epochs=3),
    )
    trained = pl.train(pl.Federation.of([site], exact_site(count=60)), recipe)
    errors = [
        record["sites"]["clinic"]["correspondence_error"]
        for record in trained.history
        if "clinic" in record["sites"]
    ]
    assert errors[-1] < 0.5 * errors[0]


# --- predictions in the other space, plug and play ----------------------------------------------


def test_the_recorded_estimate_predicts_in_the_sites_own_space():
    nested = {"x": ["a", "b"], "y": ["c", "d"]}
    site, unseen = coarse_site(count=300, mapping=nested), coarse_site(mapping=nested, seed=8)
    recipe = pl.Recipe(
        rounds=10, method=FedMT(tau=0.6, **PLAIN), local=pl.LocalTraining(lr=0.3, epochs=2)
    )
    trained = pl.train(pl.Federation.of([site], exact_site(count=60)), recipe)
    view = estimated_view(site.view, trained.state.sites["clinic"])
    written = [view.symbols.names[z] for z in unseen.symbols.tolist()]
    right = [p == w for p, w in zip(trained.predict(unseen.inputs, view), written, strict=True)]
    assert sum(right) / len(right) > 0.85


def test_an_estimated_view_has_the_names_of_the_declared_one():
    site = coarse_site()
    matrix = torch.tensor([[0.9, 0.5, 0.2, 0.1], [0.1, 0.5, 0.8, 0.9]])
    view = estimated_view(site.view, SiteState(method={"correspondence": matrix}))
    assert view.symbols == site.view.symbols
    assert torch.allclose(view.project(torch.eye(4)), matrix.T)


@pytest.mark.parametrize(
    "federated",
    [
        pl.FedAvg(),
        pl.FedProx(mu=0.01),
        pl.Scaffold(),
        pl.FedAdam(server_lr=0.02),
    ],
    ids=lambda optimiser: type(optimiser).__name__,
)
@pytest.mark.parametrize("correspondence", ["known", "estimated", "learnable-averaged"])
def test_fedmt_plugs_into_federated_optimisers(federated, correspondence):
    sites = [coarse_site("one", 150), coarse_site("two", 150, seed=1)]
    unseen = exact_site("test", 300, seed=7)
    federation = pl.Federation.of(sites, exact_site(count=40), test=(unseen.inputs, unseen.truth))
    method = FedMT(tau=0.6, correspondence=correspondence, **PLAIN)
    recipe = pl.Recipe(
        rounds=12, method=method, federated=federated, local=pl.LocalTraining(lr=0.2, epochs=2)
    )
    trained = pl.train(federation, recipe)
    assert trained.history[-1]["test"]["accuracy"] > 0.9
    assert trained.history[-1]["sat_out"] == []


# --- input that cannot work ---------------------------------------------------------------------


def check(method, sites, server=None):
    recipe = pl.Recipe(rounds=1, method=method)
    recipe.check(pl.Federation.of(sites, server))


@pytest.mark.parametrize("method", [SemiFL(**PLAIN), FedMT(**PLAIN)])
def test_somebody_must_have_labels_of_the_target_classes(method):
    with pytest.raises(PotluckError, match="the server has no data of its own"):
        check(method, [coarse_site()])
    blank = pl.Site.of("server", torch.zeros(5, 3), pl.unlabeled(SPACE))
    with pytest.raises(PotluckError, match=r"the server's labels \(unlabeled\) do not"):
        check(method, [coarse_site()], blank)
    check(method, [coarse_site(), exact_site("hospital")])
    check(method, [coarse_site()], exact_site())


def test_a_known_correspondence_must_be_declared():
    view = pl.coarse(SPACE, [[0.5] * 4, [0.5] * 4], ["x", "y"])
    vague = dataclasses.replace(coarse_site(), view=view)
    with pytest.raises(PotluckError, match="says nothing about what its labels mean"):
        check(FedMT(correspondence="known", **PLAIN), [vague], exact_site())
    check(FedMT(**PLAIN), [vague], exact_site())


def test_what_has_no_probabilities_of_symbols_cannot_be_estimated():
    sets = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]])
    site = pl.Site.of("ward", torch.zeros(2, 3), pl.candidates(SPACE, sets), sets)
    with pytest.raises(PotluckError, match='site "ward": its candidates view has no probabilities'):
        check(FedMT(**PLAIN), [site], exact_site())
    check(FedMT(correspondence="known", **PLAIN), [site], exact_site())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 1.5}, "method.tau is 1.5"),
        ({"alpha": 0.0}, "method.alpha is 0.0"),
        ({"weak": "weak"}, 'set method.weak = "none"'),
        ({"strong": "strnog"}, "method.strong"),
        ({"correspondence": "guess"}, "method.correspondence"),
        ({"pseudo_labels": "some"}, "method.pseudo_labels"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(PotluckError, match=message):
        check(FedMT(**{**PLAIN, **options}), [coarse_site()], exact_site())
