"""Targets on candidates: uniform, PRODEN's and PiCO's rule."""

import pytest
import torch

import potluck as pl
from potluck.data.makers import candidates as maker
from potluck.data.readers.digits import digits
from potluck.engines import Stacked
from potluck.methods import Batch, CandidateTargets, Here, LocalModel, SiteData, Step
from potluck.models import build
from potluck.models.network import Network

SPACE = pl.LabelSpace.numbered(10)


def site(name="a", first=0, count=20):
    data = digits().subset(torch.arange(first, first + count))
    mask = maker.uniform(data.classes, 10, 0.3, torch.Generator().manual_seed(first))
    return pl.Site.of(name, data.inputs, pl.candidates(SPACE, mask), mask, data.classes)


def recipe(method, **changes):
    settings = {"rounds": 2, "seed": 0, "local": pl.LocalTraining(lr=0.1, batch_size=8), **changes}
    return pl.Recipe(method=method, **settings)


def visit(method, round_number=0):
    """Beliefs before and after one visit of all samples, the model's scores, and the loss."""
    network = Network(build("mlp", (1, 8, 8), 10))
    theta, buffers = network.initial()
    data = SiteData.of(site())
    model = LocalModel(network, theta, buffers, (theta, buffers), round=round_number)
    state = method.start(data)
    plan = method.plan(Here(model, data, {}, state), torch.Generator())
    batch = Batch(torch.arange(len(data)), {})
    loss, new = method.loss(Step(model, data, {}, state, plan, batch))
    return state["beliefs"], new["beliefs"], network.infer(theta, buffers, data.inputs), loss


def mask_of(beliefs):
    return (beliefs > 0).float()


def test_uniform_targets_never_change_and_give_the_mean_over_candidates():
    before, after, scores, loss = visit(CandidateTargets())
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    sizes = mask_of(before).sum(1)
    by_hand = -((mask_of(before) * scores.log_softmax(1)).sum(1) / sizes).mean()
    torch.testing.assert_close(loss, by_hand)


def test_proden_renormalises_the_softmax_on_the_candidates():
    before, after, scores, _ = visit(CandidateTargets(rule="renormalise"))
    on_candidates = scores.softmax(1) * mask_of(before)
    torch.testing.assert_close(after, on_candidates / on_candidates.sum(1, keepdim=True))


@pytest.mark.parametrize(("round_number", "momentum"), [(0, 0.9), (5, 0.8), (10, 0.7), (99, 0.7)])
def test_pico_momentum_decays_linearly_over_the_rounds(round_number, momentum):
    method = CandidateTargets(rule="average", momentum=0.9, final_momentum=0.7, decay_rounds=10)
    before, after, scores, _ = visit(method, round_number)
    best = scores.masked_fill(before == 0, -torch.inf).argmax(1)
    expected = momentum * before
    expected[torch.arange(len(best)), best] += 1 - momentum
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("rule", ["uniform", "renormalise", "average"])
def test_each_rule_trains_alike_on_both_engines_and_records_pseudo_label_accuracy(rule):
    everyone = pl.Federation.of([site("a"), site("b", 20), site("c", 40, 13)])
    reference = pl.train(everyone, recipe(CandidateTargets(rule=rule)))
    stacked = pl.train(everyone, recipe(CandidateTargets(rule=rule)), engine=Stacked())
    torch.testing.assert_close(stacked.state.theta, reference.state.theta, rtol=1e-4, atol=1e-5)
    for record in reference.history:
        for metrics in record["sites"].values():
            assert 0 < metrics["pseudo_label_accuracy"] < 1
            assert metrics["unlabelled"] == 0


def test_exact_labels_are_candidate_sets_of_one():
    data = digits().subset(torch.arange(20))
    exact = pl.Site.of("a", data.inputs, pl.exact(SPACE), data.classes, data.classes)
    everyone = pl.Federation.of([exact])
    thetas = [
        pl.train(everyone, recipe(method)).state.theta
        for method in (CandidateTargets(rule="average"), pl.Likelihood())
    ]
    torch.testing.assert_close(*thetas)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (CandidateTargets(rule="uniforn"), 'unknown method.rule "uniforn".*did you mean "uniform"'),
        (CandidateTargets(final_momentum=2.0), "method.final_momentum is 2.0"),
        (CandidateTargets(decay_rounds=0), "method.decay_rounds is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        recipe(method).check(pl.Federation.of([site()]))
