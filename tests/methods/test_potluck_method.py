"""`potluck`: what each part does, and that it can be switched off."""

from dataclasses import replace

import pytest
import torch

import potluck as pl
from potluck.engines import ENGINES
from potluck.errors import PotluckError
from potluck.federated.weights import entry_weights
from potluck.losses import log_posterior
from potluck.methods import Batch, Here, Likelihood, LocalModel, Potluck, SiteData, Step
from potluck.methods.head_sums import evidence_ridge
from potluck.methods.potluck import SCALE
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace(("a", "b", "c", "d"))
OFF = Potluck(pseudo=0, mix=0, trust=float("inf"), stop="never", weights="samples", head="averaged")


def blobs(count: int, seed: int, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(count) % 4
    return 2 * torch.eye(4)[truth] + spread * torch.randn(count, 4, generator=generator), truth


def site(name: str, view: pl.LabelView, labels=None, count: int = 60, seed: int = 0) -> pl.Site:
    inputs, truth = blobs(count, seed)
    return pl.Site.of(name, inputs, view, truth if labels is None else labels(truth), truth)


def everyone() -> list[pl.Site]:
    noise = torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)
    sets = torch.eye(4) + torch.eye(4).roll(1, 0)
    names = pl.LabelSpace(("d", "b"))
    own = (torch.arange(60) % 4 == 3) | (torch.arange(60) % 4 == 1)
    inputs, truth = blobs(60, 5)
    return [
        site("lab", pl.exact(SPACE), seed=1),
        site("codes", pl.coarse(SPACE, {"x": ["a", "b"], "y": ["c", "d"]}), lambda y: y // 2),
        site("clerk", pl.noisy(SPACE, noise), seed=2),
        site("wards", pl.bags(SPACE, noise), seed=3),
        site("guesses", pl.candidates(SPACE, sets), lambda y: sets[y], seed=4),
        pl.Site.of(
            "secret",
            inputs[own],
            pl.private_subset(SPACE, names.names),
            [SPACE.names[k] for k in truth[own]],
            truth[own],
        ),
        pl.Site.of("archive", blobs(60, 6)[0], pl.unlabeled(SPACE), truth=blobs(60, 6)[1]),
    ]


def train(method, sites, rounds=4, server=None, **options) -> pl.Trained:
    settings = {"lr": 0.1, "batch_size": 16, **options}
    recipe = pl.Recipe(rounds=rounds, method=method, local=pl.LocalTraining(**settings))
    federation = pl.Federation.of(sites, server, test=blobs(200, 9))
    return pl.train(federation, recipe)


def model_of(classes: int = 4, seed: int = 1) -> LocalModel:
    network = Network(build("mlp", (4,), classes, generator=torch.Generator().manual_seed(seed)))
    theta, buffers = network.initial()
    return LocalModel(network, theta, buffers, (theta, buffers))


def planned(method, given: pl.Site, shared=None):
    data = SiteData.of(given)
    here = Here(model_of(len(data.log_b)), data, shared or {}, method.start(data))
    return method.plan(here, torch.Generator())


def test_with_all_parts_off_it_is_the_likelihood():
    sites = everyone()
    ours, theirs = train(OFF, sites), train(Likelihood(), sites)
    assert torch.allclose(ours.state.theta, theirs.state.theta, atol=1e-6)


def test_all_seven_kinds_learn_together():
    trained = train(Potluck(), everyone(), 12)
    assert trained.history[-1]["test"]["accuracy"] > 0.9
    worth = {name: m["worth"] for name, m in trained.history[2]["sites"].items()}
    assert worth["lab"] == pytest.approx(1)
    assert all(0 < worth[name] < 0.9 for name in ("codes", "clerk", "wards", "guesses"))


def test_a_site_without_labels_joins_once_the_model_is_sure():
    trained = train(Potluck(), everyone(), 12)
    assert "archive" in trained.history[0]["sat_out"]
    assert "archive" in trained.history[-1]["sites"]


def test_beliefs_start_with_the_label_and_follow_the_model_slowly():
    guesses = everyone()[4]
    data, method = SiteData.of(guesses), Potluck(momentum=0.75)
    first = method.start(data)["beliefs"]
    assert torch.allclose(first, (data.log_a.exp() / 2)[data.symbols])
    plan = planned(method, guesses)
    eta = model_of().reference(data.inputs).softmax(1)
    q = eta * data.log_a.exp()[data.symbols]
    expected = 0.75 * first + 0.25 * q / q.sum(1, keepdim=True)
    assert torch.allclose(plan.tensors["beliefs"], expected, atol=1e-6)


def test_pseudo_labels_of_each_class_count_as_much_as_the_class_is_believed_to_occur():
    beliefs = torch.tensor([[0.95, 0.05]] * 8 + [[0.05, 0.95]] * 2 + [[0.4, 0.6]] * 10)
    sure = Potluck().sure(beliefs)
    assert sure.tolist() == [True] * 10 + [False] * 10
    weight = Potluck().balanced(beliefs, sure)
    assert weight[10:].sum() == 0
    assert weight.sum() == pytest.approx(10)
    share = (weight @ beliefs) / 10
    plain = sure.float() @ beliefs / 10
    wanted = beliefs.mean(0)
    assert (share - wanted).abs().sum() < 0.6 * (plain - wanted).abs().sum()
    assert torch.equal(Potluck(balance="none").balanced(beliefs, sure), sure.float())


def test_no_sample_counts_for_more_than_one_label():
    sure = torch.tensor([True, False])
    factors = {  # what labels say → the factor of a sure sample, and of one that is not
        1.0: [1 / 2, 1],  # exact: likelihood, pseudo-label and mixup would count twice
        0.25: [1 / 1.25, 1],
        0.0: [1, 1],  # no label, or one that has said all
    }
    for told, factor in factors.items():
        assert Potluck().once(torch.tensor(told), sure).tolist() == pytest.approx(factor)
    assert Potluck(mix=0).once(torch.tensor(0.25), sure).tolist() == [1, 1]


def test_with_exact_labels_three_quarters_of_the_loss_are_cross_entropy_and_one_is_mixup():
    method, lab, model = Potluck(balance="none"), everyone()[0], model_of()
    data, plan = SiteData.of(lab), planned(Potluck(balance="none"), lab)
    index, partner, share = torch.arange(8), torch.arange(8, 16), torch.tensor(0.7)
    batch = Batch(index, {"partner": partner, "share": share})
    loss, _ = method.loss(Step(model, data, {}, {}, plan, batch))
    entropy = torch.nn.functional.cross_entropy
    onehot = torch.nn.functional.one_hot(data.symbols, 4).float()
    blend = 0.7 * data.inputs[index] + 0.3 * data.inputs[partner]
    mixed = 0.7 * onehot[index] + 0.3 * onehot[partner]
    plain = entropy(model(data.inputs[index]), data.symbols[index])
    assert float(loss) == pytest.approx(
        float(0.75 * plain + 0.25 * entropy(model(blend), mixed)), rel=1e-4
    )


def fitted(method, given: pl.Site, eta: torch.Tensor) -> float:
    data, log_eta = SiteData.of(given), eta.log()
    view = method.corrected(data, log_eta, 0)
    beliefs = log_posterior(log_eta, view.log_a[data.symbols]).exp()
    return float(method.fitted(data, view, log_eta, beliefs))


def certain(classes: torch.Tensor, certainty: float = 0.97) -> torch.Tensor:
    """Posteriors of a model that is this sure of these classes."""
    onehot = torch.nn.functional.one_hot(classes, 4).float()
    return certainty * onehot + (1 - certainty) / 3 * (1 - onehot)


def test_labels_are_fitted_until_a_model_that_knew_the_classes_would_fit_them_no_better():
    # Right seven times in ten: H = −0.7 log 0.7 − 0.3 log 0.1 = 0.94 nats.
    noise = torch.full((4, 4), 0.1) + 0.6 * torch.eye(4)
    truth = torch.arange(40) % 4
    right = torch.arange(40) % 10 < 7
    written = torch.where(right, truth, (truth + 1) % 4)
    clerk = pl.Site.of("clerk", torch.zeros(40, 4), pl.noisy(SPACE, noise), written, truth)
    uniform = torch.full((40, 4), 0.25)
    by_heart, nearly_right = certain(written), certain(truth)
    assert fitted(Potluck(), clerk, uniform) == 1  # log 4 = 1.39
    assert fitted(Potluck(), clerk, nearly_right) == 1  # 0.96, a little above H
    assert fitted(Potluck(), clerk, by_heart) == 0  # −log 0.69 = 0.38
    assert fitted(Potluck(stop="never"), clerk, by_heart) == 1
    lab = pl.Site.of("lab", torch.zeros(40, 4), pl.exact(SPACE), truth)
    assert fitted(Potluck(), lab, certain(truth, 0.9999)) == 1


def test_what_a_model_guessed_of_labels_does_not_stop_it():
    flat = pl.coarse(SPACE, torch.full((2, 4), 0.5), names=["x", "y"])
    codes = site("codes", flat, lambda y: y // 2)
    assert fitted(Potluck(), codes, certain(torch.arange(60) % 4)) == 1


def test_a_site_whose_labels_have_said_all_moves_nothing_by_them():
    clerk = everyone()[2]
    plan = planned(replace(OFF, stop="entropy"), clerk)
    closed = replace(plan, tensors=plan.tensors | {"fitted": torch.zeros(())})
    data, model = SiteData.of(clerk), model_of()
    theta = model.theta.clone().requires_grad_()
    batch = Batch(torch.arange(16), {})
    for given, moves in ((plan, True), (closed, False)):
        moving = replace(model, theta=theta)
        loss, _ = OFF.loss(Step(moving, data, {}, {}, given, batch))
        (gradient,) = torch.autograd.grad(loss, theta)
        assert bool(gradient.any()) == moves


def test_sites_that_stop_at_different_times_can_be_stacked():
    federation = pl.Federation.of(everyone())
    recipe = pl.Recipe(rounds=4, method=Potluck(), local=pl.LocalTraining(lr=0.3, epochs=4))
    one, many = (
        pl.train(federation, recipe, engine=ENGINES[name]()) for name in ("sequential", "stacked")
    )
    stopped = {name: 1 - m["labels_fitted"] for name, m in one.history[-1]["sites"].items()}
    assert stopped["clerk"] == 1
    assert stopped["lab"] == 0
    assert torch.allclose(one.state.theta, many.state.theta, atol=1e-5)


def test_thresholds_per_class_let_in_a_class_that_is_believed_less_surely():
    beliefs = torch.tensor([[0.97, 0.03]] * 9 + [[0.25, 0.75]])
    assert Potluck(tau=0.9).sure(beliefs).tolist() == [True] * 9 + [False]
    assert Potluck(tau=0.9, thresholds="class").sure(beliefs).all()


def test_sites_count_by_what_their_labels_are_worth():
    lab, codes, *_, archive = everyone()
    weights = {s.name: planned(Potluck(), s).weights for s in (lab, codes, archive)}
    assert float(weights["lab"][0]) == pytest.approx(60, rel=1e-3)
    assert 0 < float(weights["codes"][0]) < 50
    assert float(weights["archive"][0]) < 1
    assert planned(Potluck(weights="samples"), lab).weights is None
    rows = planned(Potluck(weights="information-per-class"), lab).weights[1:]
    assert torch.allclose(rows, torch.full((4,), 15.0), rtol=1e-3)


def test_a_sites_weights_reach_the_entries_that_they_are_about():
    layout = model_of(2).network.layout
    spread = layout.unflatten(entry_weights(torch.tensor([5.0, 1.0, 2.0]), layout))
    assert (spread["head.weight"][0] == 1).all()
    assert (spread["head.weight"][1] == 2).all()
    assert spread["head.bias"].tolist() == [1, 2]
    assert all((v == 5).all() for name, v in spread.items() if not name.startswith("head"))


def test_rows_of_the_head_are_averaged_by_their_own_weights():
    # Two sites that know one class each: a row moves as the site that knows it says.
    one, two = (
        site(name, pl.exact(SPACE), lambda y, k=k: torch.full_like(y, k), seed=k)
        for k, name in enumerate(("one", "two"))
    )
    method = replace(OFF, weights="information-per-class")
    both = train(method, [one, two], 1)
    alone = train(method, [one], 1)
    start = build("mlp", (4,), 4, generator=pl.streams.stream(0, "model"))
    moved = [
        t.network.layout.unflatten(t.state.theta)["head.weight"][0] - start.head.weight[0]
        for t in (both, alone)
    ]
    plain = train(OFF, [one, two], 1)
    halved = plain.network.layout.unflatten(plain.state.theta)["head.weight"][0]
    assert torch.allclose(moved[0], moved[1], rtol=0.05, atol=1e-4)
    assert (halved - start.head.weight[0]).norm() < 0.7 * moved[0].norm()


def few_classes(private: bool) -> list[pl.Site]:
    inputs, truth = blobs(160, 0)
    sites = []
    for s, held in enumerate(([0, 1], [1, 2], [2, 3], [3, 0])):
        part = torch.isin(truth, torch.tensor(held)) & (torch.arange(160) % 8 // 4 == s % 2)
        names = [SPACE.names[k] for k in held]
        view = pl.private_subset(SPACE, names) if private else pl.subset(SPACE, names[::-1])
        written = [SPACE.names[k] for k in truth[part]]
        sites.append(pl.Site.of(f"site-{s}", inputs[part], view, written, truth[part]))
    return sites


@pytest.mark.parametrize("private", [True, False])
def test_where_sites_lack_classes_a_head_is_solved_that_compares_them_all(private):
    sites = few_classes(private)
    trained = train(Potluck(), sites, 3)
    assert bool(trained.state.method["solve"])
    assert trained.history[-1]["test"]["accuracy"] > 0.9
    inputs = torch.cat([given.inputs for given in sites])
    onehot = torch.nn.functional.one_hot(torch.cat([given.truth for given in sites]), 4).double()
    received = train(Potluck(), sites, 2).state  # by the sites in the last round
    features = trained.network.inferred_features(received.theta, received.buffers, inputs)
    with_one = torch.cat([features, torch.ones(len(features), 1)], 1).double()
    gram, sums = with_one.T @ with_one, onehot.T @ with_one
    ridge = evidence_ridge(gram, sums)
    damped = gram + ridge * gram.diagonal().mean() * torch.eye(len(gram))
    rows = SCALE * torch.linalg.solve(damped, sums.T).T
    theta, _ = trained.state.model
    found = trained.network.layout.unflatten(theta)
    assert torch.allclose(found["head.weight"].double(), rows[:, :-1], rtol=1e-2, atol=1e-2)
    assert torch.allclose(found["head.bias"].double(), rows[:, -1], rtol=1e-2, atol=1e-2)
    for name, value in trained.network.layout.unflatten(received.theta).items():
        assert name.startswith("head") or torch.equal(found[name], value)


def test_sites_go_on_from_the_heads_that_they_trained():
    """The solved head is for those who use the model; nothing of it returns to training."""
    sites = few_classes(private=True)
    solved, averaged = (train(Potluck(head=head), sites, 3).state for head in ("auto", "averaged"))
    assert torch.equal(solved.theta, averaged.theta)
    assert not torch.equal(solved.model[0], solved.theta)
    assert averaged.model == (averaged.theta, averaged.buffers)


def test_where_others_see_all_classes_only_private_sites_send_sums():
    trained = train(Potluck(), everyone(), 2)
    assert not bool(trained.state.method["solve"])
    method, lab, secret = Potluck(), everyone()[0], everyone()[5]
    told = method.share(trained.state.method, "lab")
    assert list(told) == ["solve"]
    assert method.share(trained.state.method, "secret") == {}
    for given, shared, sends in ((lab, told, False), (secret, {}, True)):
        plan = planned(method, given, shared)
        sent = method.report(Here(model_of(), SiteData.of(given), shared, {}), plan)
        assert bool(sent) == sends


def test_the_server_trains_on_its_own_labels():
    server = site("server", pl.exact(SPACE), seed=7, count=16)
    trained = train(Potluck(), [everyone()[1]], 8, server=server)
    assert trained.history[-1]["test"]["accuracy"] > 0.8


def test_the_server_does_not_train_on_guesses():
    inputs, truth = blobs(40, 8)
    server = pl.Site.of("server", inputs, pl.unlabeled(SPACE), truth=truth)
    trained = train(Potluck(tau=0.3), [everyone()[0]], 3, server=server)
    alone = train(Potluck(tau=0.3), [everyone()[0]], 3)
    assert torch.equal(trained.state.theta, alone.state.theta)


def test_what_a_site_did_not_declare_is_learned_and_is_no_mistake():
    flat = pl.coarse(SPACE, torch.full((2, 4), 0.5), names=["x", "y"])
    codes = site("codes", flat, lambda y: y // 2)
    sites = [codes, *(site(f"lab-{s}", pl.exact(SPACE), seed=s) for s in (1, 2, 3))]
    metrics = train(Potluck(), sites, 6).history[-1]["sites"]["codes"]
    assert "refuted" not in metrics
    assert metrics["surprise"] > 0.1
    assert metrics["worth"] > 0.3


def test_a_wrong_mapping_is_corrected_after_patience_and_shows_in_the_metrics():
    codes = site("codes", pl.coarse(SPACE, {"x": ["a"], "y": ["b", "c", "d"]}), lambda y: y // 2)
    sites = [codes, *(site(f"lab-{s}", pl.exact(SPACE), seed=s) for s in (1, 2, 3))]
    trained = train(Potluck(patience=4), sites, 12)
    metrics = [record["sites"]["codes"] for record in trained.history]
    assert metrics[-1]["refuted"] == 0.25
    assert metrics[-1]["surprise"] > 0.1
    assert metrics[-1]["pseudo_label_accuracy"] > 0.9
    right = site("codes", pl.coarse(SPACE, {"x": ["a", "b"], "y": ["c", "d"]}), lambda y: y // 2)
    calm = train(Potluck(patience=4), [right, *sites[1:]], 12).history[-1]["sites"]["codes"]
    assert calm["refuted"] == 0
    assert calm["surprise"] < 0.2 * metrics[-1]["surprise"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 1.5}, "method.tau is 1.5; it must be from 0 to 1"),
        ({"momentum": -1}, "method.momentum is -1; it must be from 0 to 1"),
        ({"mix": -1.0}, "method.mix is -1.0; it must be at least 0"),
        ({"trust": -1.0}, "method.trust is -1.0; it must be at least 0"),
        ({"alpha": 0.0}, "method.alpha is 0.0; mixup needs it above 0"),
        ({"weights": "sample"}, 'method.weights "sample".*did you mean "samples"'),
        ({"balance": "classes"}, 'method.balance "classes".*did you mean "class"'),
        ({"stop": "always"}, 'method.stop "always".*Known: entropy, never'),
        ({"head": "solve"}, 'method.head "solve".*did you mean "solved"'),
        ({"strong": "rotate"}, 'method.strong is "rotate", but the samples have shape'),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    federation = pl.Federation.of(everyone())
    with pytest.raises(PotluckError, match=message):
        pl.Recipe(rounds=1, method=Potluck(**options)).check(federation)
