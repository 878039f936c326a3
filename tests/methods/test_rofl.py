"""RoFL: centroids with a gradient, small losses, corrected labels."""

import pytest
import torch

import potluck as pl
from potluck.data.makers import noise
from potluck.data.readers.digits import digits
from potluck.engines import Stacked
from potluck.messages import Update
from potluck.methods import Arrival, Batch, Here, LocalModel, Plan, RoFL, SiteData, Step
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace.numbered(10)


def site(name, first, count, rate=0.0):
    data = digits().subset(torch.arange(first, first + count))
    flips = noise.symmetric(10, rate)
    labels = noise.flip(data.classes, flips, torch.Generator().manual_seed(first))
    return pl.Site.of(name, data.inputs, pl.exact(SPACE), labels, data.classes)


def recipe(method, rounds=3, **local):
    settings = {"lr": 0.3, "batch_size": 32, "epochs": 2, **local}
    return pl.Recipe(rounds=rounds, seed=0, method=method, local=pl.LocalTraining(**settings))


class Bench:
    """One batch at one site, with a centroid for every class."""

    def __init__(self, **options):
        self.method = RoFL(**options)
        self.network = Network(build("mlp", (1, 8, 8), 10))
        self.theta, self.buffers = self.network.initial()
        self.data = SiteData.of(site("a", 0, 40))
        generator = torch.Generator().manual_seed(0)
        self.centroids = torch.randn(10, 128, generator=generator)
        self.shared = {"centroids": self.centroids, "known": torch.ones(10)}

    def here(self, theta, round_number=0):
        received = (self.theta, self.buffers)
        model = LocalModel(self.network, theta, self.buffers, received, round=round_number)
        return Here(model, self.data, self.shared, self.method.start(self.data))

    def plan(self, round_number=0):
        return self.method.plan(self.here(self.theta, round_number), torch.Generator())

    def loss(self, theta, plan):
        batch = Batch(torch.arange(len(self.data)), {})
        return self.method.loss(Step(**vars(self.here(theta)), plan=plan, batch=batch))[0]


def test_loss_equals_its_three_terms_by_hand():
    bench = Bench(forget=0.25, ramp=1, entropy=0.5, centroid=2.0)
    features = bench.network.inferred_features(bench.theta, bench.buffers, bench.data.inputs)
    log_p = bench.network.infer(bench.theta, bench.buffers, bench.data.inputs).log_softmax(1)
    labels = bench.data.symbols
    errors = -log_p[torch.arange(40), labels]
    small = errors.argsort()[:30]
    away = (features - bench.centroids[labels]).square().mean(1)
    entropy = -(log_p.exp() * log_p).sum(1).mean()
    expected = errors[small].mean() + 2 * away[small].mean() + 0.5 * entropy
    torch.testing.assert_close(bench.loss(bench.theta, bench.plan()), expected)


def test_centroid_loss_has_a_gradient_that_pulls_features_to_their_centroid():
    bench = Bench(forget=0.0, ramp=1, entropy=0.0, centroid=1000.0)
    theta = bench.theta.clone().requires_grad_()
    plan = bench.plan()
    (gradient,) = torch.autograd.grad(bench.loss(theta, plan), theta)

    def distance(theta):
        features = bench.network.inferred_features(theta, bench.buffers, bench.data.inputs)
        return (features - bench.centroids[bench.data.symbols]).square().mean()

    assert distance(bench.theta - 1e-4 * gradient) < distance(bench.theta)
    bench.method = RoFL(forget=0.0, ramp=1, entropy=0.0, centroid=0.0)
    (plain,) = torch.autograd.grad(bench.loss(theta, bench.plan()), theta)
    assert (gradient - plain).norm() > plain.norm()


def test_a_class_without_a_centroid_is_not_pulled():
    bench = Bench(ramp=1, centroid=5.0)
    bench.shared["known"] = torch.zeros(10)
    without = Bench(ramp=1, centroid=0.0)
    torch.testing.assert_close(
        bench.loss(bench.theta, bench.plan()), without.loss(without.theta, without.plan())
    )


def test_labels_far_from_their_centroid_are_corrected_once_it_is_time():
    bench = Bench(correct_after=3)
    given, labels = bench.data.symbols, bench.plan(2).tensors["labels"]
    torch.testing.assert_close(labels, given)
    features = bench.network.inferred_features(bench.theta, bench.buffers, bench.data.inputs)
    cosines = torch.cosine_similarity(features[:, None], bench.centroids[None], dim=2)
    guess = bench.network.infer(bench.theta, bench.buffers, bench.data.inputs).argmax(1)
    expected = torch.where(cosines.argmax(1) == given, given, guess)
    torch.testing.assert_close(bench.plan(3).tensors["labels"], expected)


def test_global_centroids_are_means_weighted_by_likeness():
    network = Network(build("linear", (2,), 2))
    method = RoFL()
    everyone = pl.Federation.of(
        [pl.Site.of("a", torch.zeros(1, 2), pl.exact(pl.LabelSpace.numbered(2)), [0])]
    )
    server = method.server_start(network, everyone)

    def received(server, rows, present):
        extras = {"centroids": torch.tensor(rows), "present": torch.tensor(present)}
        update = Update("a", 1, torch.zeros(6), {}, extras=extras)
        nothing = torch.zeros(6)
        return method.receive(server, Arrival(update, network, nothing, nothing, None, None))

    # Nothing is known: the plain mean; class 1 is at one site only.
    server = received(server, [[1.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    server = received(server, [[3.0, 0.0], [0.0, 2.0]], [1.0, 1.0])
    server = method.conclude(server, {})
    torch.testing.assert_close(server["centroids"], torch.tensor([[2.0, 0.0], [0.0, 2.0]]))
    # Then each counts by its cosine with the last: 1 and cos 60° = 1/2 for class 0.
    server = received(server, [[1.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    server = received(server, [[1.0, 3**0.5], [0.0, 0.0]], [1.0, 0.0])
    server = method.conclude(server, {})
    expected = torch.tensor([[1.0, 0.5 * 3**0.5 / 1.5], [0.0, 2.0]])
    torch.testing.assert_close(server["centroids"], expected)


def test_reported_centroids_are_mean_features_of_each_class():
    bench = Bench()
    plan = Plan(torch.arange(40), {"labels": bench.data.symbols})
    sent = bench.method.report(bench.here(bench.theta), plan)
    features = bench.network.inferred_features(bench.theta, bench.buffers, bench.data.inputs)
    threes = bench.data.symbols == 3
    torch.testing.assert_close(sent["centroids"][3], features[threes].mean(0))
    assert sent["present"].tolist() == [float((bench.data.symbols == k).any()) for k in range(10)]


def test_rofl_learns_from_noisy_labels_on_both_engines():
    sites = [site("a", 0, 160, 0.3), site("b", 160, 160, 0.3)]
    test = (digits().inputs[400:800], digits().classes[400:800])
    everyone = pl.Federation.of(sites, test=test)
    method = RoFL(ramp=2, correct_after=8, entropy=0.0, centroid=0.1)
    reference = pl.train(everyone, recipe(method, rounds=10))
    assert reference.history[-1]["test"]["accuracy"] > 0.6
    corrected = [record["sites"]["a"]["pseudo_label_accuracy"] for record in reference.history]
    assert corrected[7] < 0.8 < 0.88 < corrected[-1]
    short = recipe(method, rounds=3, epochs=1)
    torch.testing.assert_close(
        pl.train(everyone, short, engine=Stacked()).state.theta,
        pl.train(everyone, short).state.theta,
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (RoFL(forget=2.0), "method.forget is 2.0; it must be from 0 to 1"),
        (RoFL(ramp=0), "method.ramp must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        recipe(method).check(pl.Federation.of([site("a", 0, 20)]))


def test_private_classes_are_refused():
    held = digits().classes < 2
    view = pl.private_subset(SPACE, ["0", "1"])
    secret = pl.Site.of("secret", digits().inputs[held], view, digits().classes[held].tolist())
    with pytest.raises(pl.PotluckError, match="RoFL exchanges a centroid of every class"):
        recipe(RoFL()).check(pl.Federation.of([secret]))


def test_features_and_scores_are_the_two_halves_of_the_model():
    bench = Bench()
    features = bench.network.features(bench.theta, bench.buffers, bench.data.inputs)
    assert features.shape == (40, 128)
    logits = bench.network.train(bench.theta, bench.buffers, bench.data.inputs)
    torch.testing.assert_close(bench.network.scores(bench.theta, features), logits)


def test_samples_that_say_nothing_are_left_out():
    data = digits().subset(torch.arange(30))
    mask = torch.nn.functional.one_hot(data.classes, 10).bool()
    mask[20:] = True
    some = pl.Site.of("a", data.inputs, pl.candidates(SPACE, mask), mask, data.classes)
    with pytest.warns(UserWarning, match="10 of 30 samples have every class as a candidate"):
        trained = pl.train(pl.Federation.of([some]), recipe(RoFL(), rounds=1))
    metrics = trained.history[0]["sites"]["a"]
    assert (metrics["samples"], metrics["unlabelled"]) == (20, 10)
    assert metrics["pseudo_label_accuracy"] == 1
