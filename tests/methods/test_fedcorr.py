"""FedCorr: finding noisy sites and samples, correcting them, three stages."""

from dataclasses import replace

import pytest
import torch

import potluck as pl
from potluck.data.makers import candidates as maker
from potluck.data.makers import noise
from potluck.data.readers.digits import digits
from potluck.engines import Stacked
from potluck.methods import Batch, FedCorr, Here, LocalModel, SiteData, Step
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace.numbered(10)


def exact_site(name, first, count, rate, seed):
    """A site whose labels are wrong at a rate that it does not know of."""
    data = digits().subset(torch.arange(first, first + count))
    flips = noise.symmetric(10, rate)
    labels = noise.flip(data.classes, flips, torch.Generator().manual_seed(seed))
    return pl.Site.of(name, data.inputs, pl.exact(SPACE), labels, data.classes)


def recipe(method, rounds, **local):
    settings = {"lr": 0.5, "batch_size": 32, "epochs": 3, **local}
    return pl.Recipe(rounds=rounds, seed=0, method=method, local=pl.LocalTraining(**settings))


@pytest.fixture(scope="module")
def corrected():
    """Three clean sites and two of which 60 % of the labels are wrong, through all stages."""
    rates = {"clean-1": 0.0, "clean-2": 0.0, "clean-3": 0.0, "noisy-1": 0.6, "noisy-2": 0.6}
    sites = [
        exact_site(name, 160 * i, 160, rate, i) for i, (name, rate) in enumerate(rates.items())
    ]
    test = (digits().inputs[800:1200], digits().classes[800:1200])
    method = FedCorr(pre_rounds=5, finetune_rounds=3)
    return pl.train(pl.Federation.of(sites, test=test), recipe(method, rounds=10))


def test_noisy_sites_are_told_from_clean_ones(corrected):
    flags = {name: float(corrected.state.method[f"noisy/{name}"]) for name in _names(corrected)}
    assert flags == {name: float(name.startswith("noisy")) for name in _names(corrected)}


def test_noise_level_is_estimated_at_noisy_sites_only(corrected):
    last = corrected.history[4]["sites"]
    for name, metrics in last.items():
        if name.startswith("clean"):
            assert metrics["noise"] == 0
        else:
            assert 0.15 < metrics["noise"] < 0.8


def test_only_clean_sites_take_part_in_the_second_stage(corrected):
    for record in corrected.history:
        second = 6 <= record["round"] <= 8
        assert record["sat_out"] == (["noisy-1", "noisy-2"] if second else [])


def test_labels_are_corrected_towards_the_truth(corrected):
    for name in ("noisy-1", "noisy-2"):
        first = corrected.history[0]["sites"][name]["pseudo_label_accuracy"]
        last = corrected.history[-1]["sites"][name]["pseudo_label_accuracy"]
        assert first < 0.5
        assert last > 0.8
    for name in ("clean-1", "clean-2", "clean-3"):
        assert corrected.history[-1]["sites"][name]["pseudo_label_accuracy"] == 1


def test_server_keeps_numbers_per_site_and_no_labels(corrected):
    assert all(value.ndim == 0 for value in corrected.state.method.values())


def _names(trained):
    return trained.history[0]["cohort"]


def planned(method, flags, round_number, state=None):
    """A plan at a site of 40 samples, half of them wrong."""
    network = Network(build("mlp", (1, 8, 8), 10))
    theta, buffers = network.initial()
    data = SiteData.of(exact_site("a", 0, 40, 0.5, 0))
    model = LocalModel(network, theta, buffers, (theta, buffers), round=round_number)
    start = method.start(data) | (state or {})
    here = Here(model, data, flags, start)
    plan = method.plan(here, torch.Generator().manual_seed(0))
    return plan, data, model


ON, OFF = torch.tensor(1.0), torch.tensor(0.0)


def test_stages_follow_the_rounds():
    method = FedCorr(pre_rounds=2, finetune_rounds=3)
    assert [method.stage(number) for number in range(7)] == [1, 1, 2, 2, 2, 3, 3]


def test_only_the_share_of_largest_losses_is_relabelled_and_only_where_sure():
    lenient = FedCorr(confidence=0.0)
    plan, data, model = planned(lenient, {"noisy": ON, "clean": OFF}, 0)
    wrong = round(float(plan.tensors["noise"]) * 40)
    changed = plan.tensors["labels"] != data.symbols
    scores = model.reference(data.inputs)
    losses = torch.nn.functional.cross_entropy(scores, data.symbols, reduction="none")
    worst = losses.argsort(descending=True)[: int(wrong * 0.5)]
    assert 0 < changed.sum() <= len(worst)
    assert set(changed.nonzero().flatten().tolist()) <= set(worst.tolist())
    torch.testing.assert_close(plan.tensors["labels"][changed], scores.argmax(1)[changed])
    strict, data, _ = planned(replace(lenient, confidence=1.0), {"noisy": ON, "clean": OFF}, 0)
    torch.testing.assert_close(strict.tensors["labels"], data.symbols)


def test_a_site_corrects_all_its_labels_once_when_the_third_stage_begins():
    method = FedCorr(pre_rounds=1, finetune_rounds=1, confidence=0.0)
    flags = {"noisy": ON, "clean": OFF}
    before = {"noise": torch.tensor(0.5), "stage": torch.tensor(1)}
    plan, data, model = planned(method, flags, 2, before)
    torch.testing.assert_close(plan.tensors["labels"], model.reference(data.inputs).argmax(1))
    again = {**before, "stage": torch.tensor(3), "labels": data.symbols}
    plan, data, _ = planned(method, flags, 3, again)
    torch.testing.assert_close(plan.tensors["labels"], data.symbols)


def test_everyone_takes_part_in_the_second_stage_where_no_site_is_clean():
    method = FedCorr()
    noisy = {f"{what}/{name}": ON for what in ("lid", "noise", "noisy") for name in "ab"}
    assert bool(method.share(noisy, "a")["clean"])
    half = noisy | {"noise/b": OFF}
    assert not bool(method.share(half, "a")["clean"])
    assert bool(method.share(half, "b")["clean"])


def test_of_a_candidate_set_one_class_is_picked_at_random_and_kept():
    data = digits().subset(torch.arange(200))
    mask = maker.uniform(data.classes, 10, 0.3, torch.Generator().manual_seed(0))
    one = pl.Site.of("a", data.inputs, pl.candidates(SPACE, mask), mask, data.classes)
    trained = pl.train(pl.Federation.of([one]), recipe(FedCorr(), rounds=2, epochs=1))
    labels = trained.state.sites["a"].method["labels"]
    assert mask[torch.arange(200), labels].all()
    expected = (1 / mask.sum(1)).mean().item()
    accuracy = trained.history[0]["sites"]["a"]["pseudo_label_accuracy"]
    assert accuracy == pytest.approx(expected, abs=0.1)
    assert trained.history[1]["sites"]["a"]["pseudo_label_accuracy"] == accuracy


def test_proximal_term_is_the_distance_from_the_received_model_weighted_by_the_noise():
    plan, data, model = planned(FedCorr(), {"noisy": OFF, "clean": OFF}, 0)
    index = torch.arange(len(data))
    batch = Batch(index, {"share": ON, "partner": index})

    def loss(beta, stage, theta):
        tensors = {"noise": torch.tensor(0.5), "stage": torch.tensor(stage)}
        there = replace(plan, tensors=plan.tensors | tensors)
        start = FedCorr().start(data)
        step = Step(replace(model, theta=theta), data, {}, start, there, batch)
        return FedCorr(beta=beta).loss(step)[0]

    moved = model.theta + 0.01
    away = (moved - model.theta).norm().item()
    first = (loss(5.0, 1, moved) - loss(0.0, 1, moved)).item()
    assert first == pytest.approx(5 * 0.5 * away, rel=1e-4)
    assert loss(5.0, 2, moved) == loss(0.0, 2, moved)
    # A round starts at distance 0, where the norm has no gradient of its own.
    gradients = []
    for beta in (0.0, 5.0):
        theta = model.theta.clone().requires_grad_()
        gradients.append(torch.autograd.grad(loss(beta, 1, theta), theta)[0])
    torch.testing.assert_close(*gradients)


def test_stacked_engine_agrees_with_the_reference():
    sites = [exact_site(name, 40 * i, 40, 0.3, i) for i, name in enumerate("abc")]
    method = FedCorr(pre_rounds=2, finetune_rounds=1)
    settings = recipe(method, rounds=3, epochs=1, lr=0.1)
    reference = pl.train(pl.Federation.of(sites), settings)
    stacked = pl.train(pl.Federation.of(sites), settings, engine=Stacked())
    torch.testing.assert_close(stacked.state.theta, reference.state.theta, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedCorr(pre_rounds=0), "method.pre_rounds is 0; it is at least 1"),
        (FedCorr(confidence=1.2), "method.confidence is 1.2; it must be from 0 to 1"),
        (FedCorr(beta=-1.0), "method.beta must be at least 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        recipe(method, 1).check(pl.Federation.of([exact_site("a", 0, 20, 0.0, 0)]))
