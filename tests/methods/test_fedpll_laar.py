"""FedPLL-LAAR, part by part: beliefs, alignment, adaptive mixup, what is sent and what is kept."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

import potluck as pl
from potluck.data.makers import candidates as maker
from potluck.data.readers.digits import digits
from potluck.engines import Stacked
from potluck.engines.site_round import autograd, train_site
from potluck.losses import soft_cross_entropy
from potluck.losses.beliefs import initial_beliefs
from potluck.messages import Broadcast
from potluck.methods import (
    Batch,
    CandidateTargets,
    FedPLLLAAR,
    Here,
    LocalModel,
    Objective,
    SiteData,
    Step,
)
from potluck.models import Classifier, build
from potluck.models.network import Network

SPACE = pl.LabelSpace.numbered(10)
ALONE = FedPLLLAAR(align=0.0, mix=0.0)
ABLATIONS = {
    "full": FedPLLLAAR(),
    "w/o cld": FedPLLLAAR(momentum=1.0),
    "w/o am": FedPLLLAAR(mix=0.0),
    "w/o ga": FedPLLLAAR(align=0.0),
    "w/o am-ga": ALONE,
    "w/o w1": FedPLLLAAR(mix_weights="mixed"),
    "w/o w2": FedPLLLAAR(mix_weights="pair"),
    "w/o w1+w2": FedPLLLAAR(mix_weights="none"),
}


def site(name="a", first=0, count=24, dtype=torch.float32):
    data = digits()
    classes = data.classes[first : first + count]
    generator = torch.Generator().manual_seed(first)
    mask = maker.uniform(classes, 10, 0.3, generator)
    inputs = data.inputs[first : first + count].to(dtype) / 255
    return pl.Site.of(name, inputs, pl.candidates(SPACE, mask), mask, classes)


def federation():
    return pl.Federation.of([site("a", 0, 24), site("b", 24, 12)])


def recipe(method, rounds=2, **local):
    settings = {"lr": 0.1, "batch_size": 8, **local}
    return pl.Recipe(rounds=rounds, seed=0, method=method, local=pl.LocalTraining(**settings))


def smooth(norm=False, dtype=torch.float64):
    """A small model without kinks, so that second derivatives are what differences see."""
    generator = torch.Generator().manual_seed(1)
    layers = [nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6) if norm else nn.Identity()]
    classifier = Classifier(nn.Sequential(*layers, nn.Tanh()), nn.Linear(6, 10)).to(dtype)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return Network(classifier)


class OneStep:
    """One step of a method on all samples of one site, as an engine would take it."""

    def __init__(self, method, network, dtype=torch.float64):
        self.method, self.network = method, network
        self.data = SiteData.of(site(dtype=dtype))
        self.data = replace(self.data, log_a=self.data.log_a.to(dtype))
        self.theta, self.buffers = network.initial()
        self.state = method.start(self.data)
        generator = torch.Generator().manual_seed(5)
        here = Here(self.model(self.theta), self.data, {}, self.state)
        self.plan = method.plan(here, generator)
        index = torch.arange(len(self.data))
        drawn = method.draw(self.data, self.plan, [index], generator)[0]
        self.batch = Batch(index, drawn)
        self.target = torch.randn(len(self.theta), generator=generator, dtype=dtype)

    def model(self, theta, buffers=None):
        received = (self.theta, self.buffers)
        return LocalModel(self.network, theta, buffers or self.buffers, received)

    def bind(self, loss, vector, buffers):
        model = self.model(vector, buffers)
        return loss(Step(model, self.data, {}, self.state, self.plan, self.batch))

    def gradient(self, shared):
        objective = Objective(self.method.loss, self.bind)
        return self.method.gradient(autograd, objective, self.theta, self.buffers, shared)

    def classification(self, theta):
        loss, _ = self.bind(self.method.classification, theta, self.buffers)
        return loss

    def misalignment(self, theta, create_graph):
        (gradient,) = torch.autograd.grad(
            self.classification(theta), theta, create_graph=create_graph
        )
        return -cosine_similarity(gradient, self.target, dim=0)


def test_step_has_the_numeric_gradient_of_minus_the_cosine():
    step = OneStep(FedPLLLAAR(mix=0.0, align=1.0), smooth())
    plain, aligned = step.gradient({}), step.gradient({"gradient": step.target})
    found = aligned.value - plain.value
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        direction = torch.randn(len(found), generator=generator, dtype=found.dtype)
        ends = [
            step.misalignment((step.theta + sign * 1e-5 * direction).requires_grad_(), False)
            for sign in (1, -1)
        ]
        numeric = (ends[0] - ends[1]) / 2e-5
        assert (found @ direction).item() == pytest.approx(numeric.item(), rel=0.03, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_step_has_the_double_backward_gradient_of_minus_the_cosine(dtype):
    step = OneStep(FedPLLLAAR(mix=0.0, align=2.0), smooth(dtype=dtype), dtype)
    plain, aligned = step.gradient({}), step.gradient({"gradient": step.target})
    theta = step.theta.clone().requires_grad_()
    (exact,) = torch.autograd.grad(step.misalignment(theta, True), theta)
    error = (aligned.value - plain.value - 2 * exact).norm() / (2 * exact).norm()
    assert error < 0.02


def test_a_step_along_the_alignment_raises_the_cosine():
    step = OneStep(FedPLLLAAR(mix=0.0, align=1.0), smooth())
    turn = step.gradient({"gradient": step.target}).value - step.gradient({}).value
    before = step.misalignment(step.theta.clone().requires_grad_(), False)
    after = step.misalignment((step.theta - 1e-3 * turn).requires_grad_(), False)
    assert after < before - 1e-7


def test_mixup_is_not_part_of_what_is_aligned():
    shared = {"gradient": OneStep(FedPLLLAAR(), smooth()).target}
    turns = []
    for mix in (0.0, 1.0):
        step = OneStep(FedPLLLAAR(mix=mix), smooth())
        turns.append(step.gradient(shared).value - step.gradient({}).value)
    torch.testing.assert_close(turns[0], turns[1])


def test_probe_does_not_move_batch_norm_statistics():
    step = OneStep(FedPLLLAAR(mix=0.0), smooth(norm=True))
    moved = []
    for shared in ({}, {"gradient": step.target}):
        step.buffers = {name: value.clone() for name, value in step.network.initial()[1].items()}
        step.gradient(shared)
        moved.append(step.buffers)
    for name, value in moved[0].items():
        torch.testing.assert_close(moved[1][name], value, rtol=0, atol=0)
    assert moved[0]["encoder.2.num_batches_tracked"] == 1


def test_alignment_costs_one_forward_and_one_backward_pass_a_step(monkeypatch):
    passes = {"forward": 0, "backward": 0}
    forward = Network.train

    def counted(self, *inputs):
        logits = forward(self, *inputs)
        passes["forward"] += 1
        if logits.requires_grad:
            logits.register_hook(lambda _: passes.update(backward=passes["backward"] + 1))
        return logits

    monkeypatch.setattr(Network, "train", counted)
    step = OneStep(FedPLLLAAR(), smooth())
    counts = []
    for shared in ({}, {"gradient": step.target}):
        passes.update(forward=0, backward=0)
        step.gradient(shared)
        counts.append(dict(passes))
    assert counts == [{"forward": 2, "backward": 2}, {"forward": 3, "backward": 3}]


def test_alignment_changes_the_parameters_from_the_second_round_on():
    thetas = {}
    for align in (0.0, 0.5):
        seen = []
        pl.train(
            federation(),
            recipe(FedPLLLAAR(align=align)),
            on_round=lambda state, record, seen=seen: seen.append(state.theta),
        )
        thetas[align] = seen
    torch.testing.assert_close(thetas[0.0][0], thetas[0.5][0], rtol=0, atol=0)
    assert (thetas[0.0][1] - thetas[0.5][1]).norm() > 1e-3


def test_global_gradient_is_the_weighted_mean_of_gradients_at_the_sites_own_parameters():
    states = []
    trained = pl.train(
        federation(),
        recipe(FedPLLLAAR(), rounds=1),
        on_round=lambda state, record: states.append(state),
    )
    network, everyone = trained.network, federation()
    total = torch.zeros_like(states[0].theta)
    initial, buffers = network.initial()
    for member in everyone.sites:
        sent = Broadcast(round=0, lr=0.1, theta=initial, buffers=buffers)
        update, kept = train_site(network, recipe(FedPLLLAAR(), rounds=1), member, None, sent)
        theta = (initial + update.delta).requires_grad_()
        logits = network.infer(theta, buffers, member.inputs)
        loss = soft_cross_entropy(logits, kept.method["beliefs"]).mean()
        total += len(member) / 36 * torch.autograd.grad(loss, theta)[0]
    torch.testing.assert_close(states[0].method["gradient"], total, rtol=1e-3, atol=1e-6)


def test_beliefs_stay_at_the_site_and_only_a_gradient_is_added_to_the_update():
    network = Network(build("mlp", (1, 8, 8), 10))
    theta, buffers = network.initial()
    sent = Broadcast(round=0, lr=0.1, theta=theta, buffers=buffers)
    update, kept = train_site(network, recipe(FedPLLLAAR()), site(), None, sent)
    assert set(update.extras) == {"gradient"}
    assert update.extras["gradient"].shape == theta.shape
    assert kept.method["beliefs"].shape == (24, 10)
    update, _ = train_site(network, recipe(FedPLLLAAR(align=0.0)), site(), None, sent)
    assert update.extras == {}


def test_beliefs_move_once_at_each_visit_of_a_sample():
    step = OneStep(FedPLLLAAR(mix=0.0, momentum=0.9), smooth())
    log_a = step.data.log_a[step.data.symbols]
    start = initial_beliefs(log_a)
    torch.testing.assert_close(step.state["beliefs"], start)
    best = (step.network.infer(step.theta, step.buffers, step.data.inputs) + log_a).argmax(1)
    new = step.gradient({}).state["beliefs"]
    expected = 0.9 * start
    expected[torch.arange(len(best)), best] += 0.1
    torch.testing.assert_close(new, expected)


@pytest.mark.parametrize("weights", ["both", "pair", "mixed", "none"])
def test_mixup_loss_equals_the_papers_sum(weights):
    step = OneStep(FedPLLLAAR(mix=0.7, mix_weights=weights, momentum=0.9), smooth())
    share, partner = step.batch.draws["share"].item(), step.batch.draws["partner"]
    x, q = step.data.inputs, step.state["beliefs"]

    def confidence(inputs):
        return step.network.infer(step.theta, step.buffers, inputs).softmax(1).max(1).values

    total = 0.0
    for i, j in enumerate(partner.tolist()):
        mixed = share * x[i] + (1 - share) * x[j]
        pair = share * confidence(x[i : i + 1]) + (1 - share) * confidence(x[j : j + 1])
        alone = confidence(mixed[None])
        weight = {"both": pair * alone, "pair": pair, "mixed": alone, "none": 1.0}[weights]
        target = share * q[i] + (1 - share) * q[j]
        log_f = step.network.infer(step.theta, step.buffers, mixed[None]).log_softmax(1)[0]
        total = total - weight * (target * log_f).sum()
    found, _ = step.bind(step.method.mixing, step.theta, step.buffers)
    torch.testing.assert_close(found, 0.7 * (total / len(x)).squeeze())


def test_without_its_three_parts_it_is_fedavg_on_normalised_candidates():
    bare = FedPLLLAAR(momentum=1.0, align=0.0, mix=0.0)
    first = pl.train(federation(), recipe(bare, epochs=2))
    second = pl.train(federation(), recipe(CandidateTargets(), epochs=2))
    torch.testing.assert_close(first.state.theta, second.state.theta, rtol=0, atol=0)


def test_every_ablation_of_table_3_trains_differently():
    thetas = [pl.train(federation(), recipe(method)).state.theta for method in ABLATIONS.values()]
    for i, theta in enumerate(thetas):
        assert torch.isfinite(theta).all()
        for other in thetas[:i]:
            assert (theta - other).norm() > 1e-5


@pytest.mark.parametrize("method", [FedPLLLAAR(), FedPLLLAAR(mix=0.0)])
def test_stacked_engine_agrees_with_the_reference(method):
    members = [site("a", 0, 24), site("b", 24, 16), site("c", 40, 24)]
    everyone = pl.Federation.of(members)
    reference = pl.train(everyone, recipe(method, rounds=3))
    stacked = pl.train(everyone, recipe(method, rounds=3), engine=Stacked())
    torch.testing.assert_close(stacked.state.theta, reference.state.theta, rtol=1e-3, atol=1e-4)


def test_centralised_version_is_one_site_with_all_data():
    everything = pl.Federation.of([site("everything", 0, 200)])
    method = FedPLLLAAR(align=0.0, momentum=0.95)
    trained = pl.train(everything, recipe(method, rounds=10, epochs=4, lr=0.5, batch_size=32))
    site_metrics = [record["sites"]["everything"] for record in trained.history]
    assert site_metrics[0]["samples"] == 200
    accuracy = [metrics["pseudo_label_accuracy"] for metrics in site_metrics]
    assert accuracy[-1] > accuracy[0] + 0.3


def test_runs_are_reproducible():
    full = pl.train(federation(), recipe(FedPLLLAAR(), rounds=3))
    again = pl.train(federation(), recipe(FedPLLLAAR(), rounds=3))
    torch.testing.assert_close(full.state.theta, again.state.theta, rtol=0, atol=0)


def test_images_are_augmented_before_they_are_mixed():
    images = digits().subset(torch.arange(24))
    mask = maker.uniform(images.classes, 10, 0.3, torch.Generator().manual_seed(0))
    one = pl.Site.of("a", images.inputs, pl.candidates(SPACE, mask), mask, images.classes)
    everyone = pl.Federation.of([one])
    thetas = [
        pl.train(everyone, recipe(FedPLLLAAR(augment=augment))).state.theta
        for augment in ("none", "crop", "weak")
    ]
    assert (thetas[0] - thetas[1]).norm() > 1e-4
    assert (thetas[1] - thetas[2]).norm() > 1e-4


def test_samples_with_every_class_as_candidate_are_left_out_and_said_so():
    mask = torch.ones(24, 10, dtype=torch.bool)
    mask[:20] = maker.uniform(digits().classes[:20], 10, 0.3, torch.Generator().manual_seed(0))
    inputs, truth = digits().inputs[:24], digits().classes[:24]
    some = pl.Site.of("ward", inputs, pl.candidates(SPACE, mask), mask, truth)
    nothing = pl.Site.of("attic", inputs, pl.unlabeled(SPACE), None, truth)
    silent = (mask.all(1)).sum().item()
    with pytest.warns(UserWarning, match="treated as unlabelled") as warned:
        trained = pl.train(pl.Federation.of([some, nothing]), recipe(FedPLLLAAR()))
    assert f'site "ward": {silent} of 24 samples' in str(warned[0].message)
    record = trained.history[0]
    assert record["sites"]["ward"]["unlabelled"] == silent
    assert record["sites"]["ward"]["samples"] == 24 - silent
    assert record["sat_out"] == ["attic"]


def test_candidates_and_exact_labels_mix_at_one_site():
    data = digits().subset(torch.arange(40))
    generator = torch.Generator().manual_seed(0)
    mask = maker.uniform(data.classes, 10, 0.3, generator)
    mask = maker.reveal(mask, data.classes, 0.5, generator)
    mixed = pl.Site.of("a", data.inputs, pl.candidates(SPACE, mask), mask, data.classes)
    trained = pl.train(pl.Federation.of([mixed]), recipe(FedPLLLAAR(), rounds=1))
    beliefs = trained.state.sites["a"].method["beliefs"]
    exact = mask.sum(1) == 1
    assert 10 < exact.sum() < 30
    torch.testing.assert_close(beliefs[exact].argmax(1), data.classes[exact])
    torch.testing.assert_close(beliefs[exact].amax(1), torch.ones(int(exact.sum())))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedPLLLAAR(momentum=1.5), "method.momentum is 1.5; it must be from 0 to 1"),
        (FedPLLLAAR(align=-1.0), "method.align is -1.0; a weight is at least 0"),
        (FedPLLLAAR(alpha=0.0), "method.alpha is 0.0; it must be above 0"),
        (FedPLLLAAR(mix_weights="pear"), 'unknown method.mix_weights "pear".*did you mean "pair"'),
    ],
)
def test_options_that_make_no_sense_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        recipe(method).check(federation())


def test_alignment_refuses_noise_of_its_own_and_private_classes():
    noisy = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.RReLU(), nn.Linear(8, 10))
    with pytest.raises(pl.PotluckError, match=r"draw random numbers.*or set method.align = 0"):
        pl.train(federation(), recipe(FedPLLLAAR()), noisy)
    pl.train(federation(), recipe(FedPLLLAAR(align=0.0), rounds=1), noisy)
    view = pl.private_subset(SPACE, ["0", "1"])
    held = digits().classes < 2
    secret = pl.Site.of("secret", digits().inputs[held], view, digits().classes[held].tolist())
    with pytest.raises(pl.PotluckError, match=r'"secret" keeps its classes private.*align = 0'):
        recipe(FedPLLLAAR()).check(pl.Federation.of([secret]))
