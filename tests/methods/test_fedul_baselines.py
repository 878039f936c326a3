"""FedPL, FedLLP and FedLLP-VAT: their steps, worked by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import potluck as pl
from potluck.engines import ENGINES
from potluck.losses.llp import proportion_loss
from potluck.methods import (
    Batch,
    FedLLP,
    FedLLPVAT,
    FedPL,
    FedUL,
    Here,
    LocalModel,
    Plan,
    RefinedFedUL,
    SiteData,
    Step,
)
from potluck.methods.fedllp_vat import ramp_up
from potluck.models import as_classifier
from potluck.models.network import Network

SPACE = pl.LabelSpace(("ant", "bee", "cow"))
PRIORS = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
SETS = torch.tensor([0, 1, 2, 2, 1, 0, 2, 2, 1, 0, 2, 2])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def site_of(name="s", seed=0):
    view = pl.bags(SPACE, PRIORS, sizes=torch.bincount(SETS))
    inputs = torch.randn(12, 4, generator=seeded(seed))
    return pl.Site.of(name, inputs, view, SETS, SETS)


DATA = SiteData.of(site_of())
LOCAL = pl.LocalTraining(batch_size=4)


class Scaled(nn.Module):
    """A model that is surer of its predictions the larger `scale` is."""

    def __init__(self, scale, norm=False):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.BatchNorm1d(4) if norm else nn.Identity()
            self.head = nn.Linear(4, 3)
        self.head.weight.data *= scale

    def forward(self, x):
        return self.head(self.body(x))


def model_of(scale=1.0, round_number=0, norm=False):
    network = Network(as_classifier(Scaled(scale, norm)))
    theta, buffers = network.initial()
    return LocalModel(network, theta, buffers, (theta, buffers), round=round_number)


def planned(method, model, seed=0):
    return method.plan(Here(model, DATA, {}, {}), seeded(seed))


def step(method, model, index, seed=0):
    plan = planned(method, model, seed)
    draws = method.draw(DATA, plan, [index], seeded(seed))[0]
    batch = Batch(index, draws)
    return method.loss(Step(model, DATA, {}, {}, plan, batch))[0], plan, draws


# --- FedPL


def test_in_the_warm_up_a_sets_commonest_class_labels_all_of_it():
    index = torch.tensor([0, 1, 2, 5])
    loss, plan, _ = step(FedPL(warmup=3), model_of(round_number=2), index)
    assert plan.tensors["labels"].tolist() == PRIORS.argmax(1)[SETS].tolist()
    assert len(plan.pool) == 12
    scores = model_of()(DATA.inputs[index])
    assert torch.isclose(loss, cross_entropy(scores, torch.tensor([0, 1, 2, 0])))


def test_after_it_the_model_labels_and_only_sure_labels_are_trained_on():
    method = FedPL(warmup=3, tau=0.6)
    model = model_of(2.0, 3)
    p = model.reference(DATA.inputs).softmax(1)
    plan = planned(method, model)
    sure = p.amax(1) >= 0.6
    assert 0 < sure.sum() < 12
    assert plan.pool.tolist() == sure.nonzero().flatten().tolist()
    assert plan.tensors["unsure"].tolist() == (~sure).nonzero().flatten().tolist()
    assert torch.equal(plan.tensors["labels"], p.argmax(1))
    assert plan.metrics["sure"] == pytest.approx(sure.float().mean().item())
    right = (p.argmax(1) == SETS)[sure].float().mean().item()
    assert plan.metrics["pseudo_accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("mix", ["inputs", "scores"])
def test_sure_samples_are_blended_with_unsure_ones(mix):
    method = FedPL(warmup=1, tau=0.6, mix=mix, mix_weight=0.3)
    model = model_of(2.0, 1)
    index = planned(method, model).pool[:3]
    loss, plan, draws = step(method, model, index, seed=5)
    partner, share = draws["partner"], draws["share"]
    assert set(partner.tolist()) <= set(plan.tensors["unsure"].tolist())
    x, other, labels = DATA.inputs[index], DATA.inputs[partner], plan.tensors["labels"]
    if mix == "inputs":
        blended = model(share * x + (1 - share) * other)
    else:
        blended = share * model(x) + (1 - share) * model(other)
    wanted = cross_entropy(model(x), labels[index]) + 0.3 * (
        share * cross_entropy(blended, labels[index])
        + (1 - share) * cross_entropy(blended, labels[partner])
    )
    assert torch.isclose(loss, wanted)


def test_a_site_that_is_sure_of_nothing_sits_out_and_one_sure_of_all_does_not_blend():
    method = FedPL(warmup=1, tau=0.9)
    assert len(planned(method, model_of(0.0, 1)).pool) == 0
    certain = planned(method, model_of(1e4, 1))
    assert len(certain.pool) == 12
    assert certain.tensors["mix_weight"] == 0


# --- FedLLP


def test_each_step_takes_one_whole_set():
    plan = planned(FedLLP(), model_of())
    batches = FedLLP().batches(LOCAL, DATA, plan, seeded())
    assert sorted(sorted(batch.tolist()) for batch in batches) == [
        [0, 5, 9],
        [1, 4, 8],
        [2, 3, 6, 7, 10, 11],
    ]
    again = FedLLP().batches(pl.LocalTraining(epochs=4), DATA, plan, seeded())
    assert len(again) == 12
    assert len(FedLLP().batches(pl.LocalTraining(steps=5), DATA, plan, seeded())) == 5


def test_a_declared_set_without_samples_has_no_step():
    there = DATA.symbols != 0
    data = replace(DATA, inputs=DATA.inputs[there], symbols=DATA.symbols[there])
    batches = FedLLP().batches(LOCAL, data, Plan(torch.arange(len(data))), seeded())
    assert len(batches) == len(PRIORS) - 1
    assert all(len(data.symbols[batch].unique()) == 1 for batch in batches)
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(len(data)))


def test_the_loss_compares_the_sets_proportions_with_the_mean_prediction():
    index = torch.tensor([1, 4, 8])
    loss, _, _ = step(FedLLP(), model_of(), index)
    assert torch.isclose(loss, proportion_loss(model_of()(DATA.inputs[index]), PRIORS[1]))


# --- FedLLP-VAT


def test_the_ramp_rises_over_rounds_and_ends_at_the_full_weight():
    weights = [ramp_up(r, 10) for r in range(12)]
    assert weights[0] == pytest.approx(math.exp(-5))
    assert weights[5] == pytest.approx(math.exp(-1.25))
    assert weights == sorted(weights)
    assert weights[10:] == [1.0, 1.0]
    assert ramp_up(0, 0) == 1.0


def test_the_consistency_term_is_really_on_after_the_ramp():
    method, index = FedLLPVAT(alpha=2.0, epsilon=1.0, ramp=4), torch.tensor([1, 4, 8])
    plain = step(FedLLP(), model_of(3.0), index)[0]
    early, late = (step(method, model_of(3.0, r), index)[0] - plain for r in (0, 4))
    assert late > 0.1
    assert early.item() == pytest.approx(late.item() * math.exp(-5), rel=1e-3)


def test_disturbed_samples_do_not_move_batch_norm_statistics():
    index = torch.tensor([1, 4, 8])
    plain, disturbed = model_of(norm=True), model_of(norm=True, round_number=50)
    step(FedLLP(), plain, index)
    step(FedLLPVAT(), disturbed, index)
    assert any((value != 0).any() for value in plain.buffers.values())
    for name, value in plain.buffers.items():
        assert torch.equal(value, disturbed.buffers[name])


def test_images_are_disturbed_on_the_unit_scale():
    images = torch.randint(0, 256, (12, 1, 5, 5), generator=seeded(), dtype=torch.uint8)
    view = pl.bags(SPACE, PRIORS, sizes=torch.bincount(SETS))
    sites = [pl.Site.of("s", images, view, SETS)]
    method = FedLLPVAT(augment="flip", epsilon=0.1, ramp=1)
    trained = pl.train(pl.Federation.of(sites), pl.Recipe(rounds=3, method=method))
    assert trained.history[-1]["sites"]["s"]["consistency_weight"] == 0.05


# --- all of them

BASELINES = [FedPL(warmup=1), FedLLP(), FedLLPVAT(epsilon=1.0, ramp=1)]
METHODS = [FedUL(), RefinedFedUL(warmup=1), *BASELINES]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("engine", sorted(set(ENGINES) & {"stacked"}))
def test_engines_agree(method, engine):
    federation = pl.Federation.of([site_of("a"), site_of("b", seed=1)])
    recipe = pl.Recipe(rounds=3, method=method, local=pl.LocalTraining(lr=0.05, batch_size=4))
    one = pl.train(federation, recipe)
    other = pl.train(federation, recipe, engine=ENGINES[engine]())
    assert torch.allclose(one.state.theta, other.state.theta, atol=1e-5)


@pytest.mark.parametrize("method", BASELINES, ids=lambda method: type(method).__name__)
def test_only_sets_are_accepted(method):
    exact = pl.Site.of("clinic", torch.randn(3, 4), pl.exact(SPACE), [0, 1, 2])
    with pytest.raises(pl.PotluckError, match='site "clinic" has a view of kind exact'):
        method.check(pl.Federation.of([site_of(), exact]))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedPL(warmup=0), "method.warmup is 0"),
        (FedPL(tau=1.5), "method.tau is 1.5; a confidence is from 0 to 1"),
        (FedPL(beta=0.0), "method.beta is 0.0"),
        (FedPL(mix_weight=-1.0), "method.mix_weight is -1.0"),
        (FedPL(mix="score"), 'did you mean "scores"'),
        (FedLLPVAT(alpha=-1.0), "method.alpha is -1.0"),
        (FedLLPVAT(epsilon=float("nan")), "method.epsilon is nan"),
        (FedLLPVAT(ramp=-1), "method.ramp is -1"),
    ],
)
def test_wrong_options_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        method.check(pl.Federation.of([site_of()]))
