"""FedUL: the theorem it rests on, what it computes, and what it asks of a federation."""

import pytest
import torch
from torch import nn

import potluck as pl
from potluck.losses import view_nll
from potluck.losses.double_softmax import double_softmax_nll
from potluck.methods import Batch, FedUL, Here, LocalModel, RefinedFedUL, SiteData, Step
from potluck.methods.fedul_refined import refined
from potluck.training import make_network

SPACE = pl.LabelSpace(("ant", "bee", "cow"))
PRIOR = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- theorem 4: the minimiser of the surrogate risk is that of the supervised risk
#
# Eight possible inputs with known p(x | y), and a table of logits for a model, which can be any
# function of them. All risks are exact sums over inputs, sets and classes.

GIVEN_CLASS = torch.rand(3, 8, generator=seeded(), dtype=torch.float64) ** 2
GIVEN_CLASS = GIVEN_CLASS / GIVEN_CLASS.sum(1, keepdim=True)  # (K, X)
ETA = (PRIOR.unsqueeze(1) * GIVEN_CLASS).T
ETA = ETA / ETA.sum(1, keepdim=True)  # (X, K)


def minimiser(risk):
    table = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [table],
        max_iter=3000,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = risk(table)
        value.backward()
        return value

    optimiser.step(closure)
    return table.detach().softmax(1)


def random_sets(count, seed):
    priors = torch.rand(count, 3, generator=seeded(seed), dtype=torch.float64) + 0.05
    sizes = torch.rand(count, generator=seeded(seed + 50), dtype=torch.float64) + 0.2
    return priors / priors.sum(1, keepdim=True), sizes / sizes.sum()


def surrogate_risk(sites, prior=PRIOR, minimum_rank=None, nll=None):
    """Mean over sites of Σ_{x, m} p(x, m) · loss, with the real views."""
    parts = []
    for priors, shares in sites:
        view = pl.bags(SPACE, priors, sizes=shares, target_prior=prior, minimum_rank=minimum_rank)
        mass = (shares.unsqueeze(1) * priors @ GIVEN_CLASS).T  # (X, M)
        parts.append((mass, view.codebook.log(), view.normaliser.log()))

    def risk(table):
        total = 0.0
        for mass, log_a, log_b in parts:
            sets = torch.arange(len(log_a))
            for x in range(8):
                logits = table[x].expand(len(sets), 3)
                losses = view_nll(logits, log_a, log_b) if nll is None else nll(logits, sets, log_a)
                total = total + (mass[x] * losses).sum()
        return total / len(parts)

    return risk


def supervised(table):
    joint = (PRIOR.unsqueeze(1) * GIVEN_CLASS).T  # (X, K) p(x, y)
    return -(joint * table.log_softmax(1)).sum()


def test_sets_recover_the_classifier_that_labels_would_have_given():
    sites = [random_sets(3, 1), random_sets(5, 2), random_sets(7, 3)]
    found = minimiser(surrogate_risk(sites))
    assert torch.allclose(found, minimiser(supervised), atol=1e-5)
    assert torch.allclose(found, ETA, atol=1e-5)


def test_sites_with_fewer_sets_than_classes_recover_it_together():
    sites = [random_sets(2, 4), random_sets(2, 5)]
    assert torch.allclose(minimiser(surrogate_risk(sites, minimum_rank=2)), ETA, atol=1e-5)
    alone = minimiser(surrogate_risk(sites[:1], minimum_rank=2))
    assert (alone - ETA).abs().max() > 0.05  # one of them cannot


def test_without_the_target_prior_another_classifier_is_recovered():
    sites = [random_sets(4, 1), random_sets(5, 2)]
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = minimiser(surrogate_risk(sites, prior=uniform))
    balanced = (
        GIVEN_CLASS / GIVEN_CLASS.sum(0)
    ).T  # the posterior where classes are equally common
    assert torch.allclose(found, balanced, atol=1e-5)
    assert (found - ETA).abs().max() > 0.2


def test_the_double_softmax_does_not_recover_it():
    sites = [random_sets(4, 1), random_sets(5, 2)]
    assert (minimiser(surrogate_risk(sites, nll=double_softmax_nll)) - ETA).abs().max() > 0.1


# --- what it computes


FULL = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


def site_of(name="s", priors=FULL, prior=PRIOR, minimum_rank=None, seed=0, count=30):
    bag = torch.arange(count) % len(priors)
    sizes = torch.bincount(bag)
    view = pl.bags(SPACE, priors, sizes=sizes, target_prior=prior, minimum_rank=minimum_rank)
    inputs = torch.randn(count, 4, generator=seeded(seed))
    return pl.Site.of(name, inputs, view, bag, torch.arange(count) % 3)


def model_of(site, round_number=0):
    network = make_network(pl.Federation.of([site]), pl.Recipe(rounds=1), "mlp")
    theta, buffers = network.initial()
    return LocalModel(network, theta, buffers, (theta, buffers), round=round_number)


def loss_of(method, site, round_number=0):
    model, data = model_of(site, round_number), SiteData.of(site)
    plan = method.plan(Here(model, data, {}, {}), seeded())
    batch = Batch(torch.tensor([4, 1, 2, 29]), {})
    return method.loss(Step(model, data, {}, {}, plan, batch))[0], plan


def test_the_loss_is_the_likelihood_of_the_bags_view():
    site = site_of()
    assert torch.isclose(loss_of(FedUL(), site)[0], loss_of(pl.Likelihood(), site)[0])


def test_ignoring_the_target_prior_is_declaring_a_uniform_one():
    uniform = torch.full((3,), 1 / 3)
    dropped = loss_of(FedUL(target_prior="ignored"), site_of())[0]
    assert torch.isclose(dropped, loss_of(FedUL(), site_of(prior=uniform))[0])
    assert not torch.isclose(dropped, loss_of(FedUL(), site_of())[0])


def test_a_class_that_a_site_has_not_is_no_matter_of_its_loss():
    without = torch.tensor([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]])
    site = site_of(priors=without, minimum_rank=2)
    loss, plan = loss_of(FedUL(), site)
    assert loss.isfinite()
    assert plan.tensors["log_b"].isneginf().tolist() == [False, False, True]


def test_the_l1_penalty_makes_weights_smaller():
    def size(l1):
        local = pl.LocalTraining(lr=1e-2, optimiser=pl.Adam(), epochs=5, l1=l1)
        recipe = pl.Recipe(rounds=5, method=FedUL(), local=local)
        return pl.train(pl.Federation.of([site_of()]), recipe).state.theta.abs().sum()

    assert size(1e-2) < 0.7 * size(0.0)


# --- refinement


def test_refined_proportions_are_those_of_the_samples_where_classes_are_plain():
    classes = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 2])
    sets = torch.tensor([0, 0, 1, 0, 1, 1, 1, 1, 0, 1])
    ratios = nn.functional.one_hot(classes, 3).double() * 3 + 1e-9
    declared = torch.tensor([[0.2, 0.2, 0.6], [0.4, 0.4, 0.2]], dtype=torch.float64)
    found = refined(declared, sets, ratios, trust=0.0)
    assert torch.allclose(found, torch.tensor([[0.5, 0.25, 0.25], [1 / 6, 1 / 6, 2 / 3]]).double())
    # declared proportions count like that many labelled samples
    shrunk = refined(declared, sets, ratios, trust=4.0)
    counts = torch.tensor([[2.0, 1, 1], [1, 1, 4]]).double() + 4 * declared
    assert torch.allclose(shrunk, counts / counts.sum(1, keepdim=True))


def test_refined_proportions_maximise_what_the_module_says():
    generator = seeded(4)
    ratios = torch.rand(60, 3, generator=generator, dtype=torch.float64) + 0.05
    sets = torch.arange(60) % 2
    declared = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.0, 0.9]], dtype=torch.float64)

    def objective(priors):
        fit = (priors[sets] * ratios).sum(1).log().sum()
        return fit + 5 * (declared * priors.clamp_min(1e-300).log()).sum()

    found = refined(declared, sets, ratios, trust=5.0)
    best = objective(found)
    for _ in range(200):
        other = found * (1 + 0.2 * torch.randn(2, 3, generator=generator, dtype=torch.float64))
        other = other.clamp_min(1e-9)
        assert objective(other / other.sum(1, keepdim=True)) <= best + 1e-3


def test_a_class_may_turn_up_in_a_set_but_not_at_a_site_that_has_none():
    declared = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    ratios = torch.tensor([[0.1, 0.8, 0.1]], dtype=torch.float64).repeat(4, 1)
    found = refined(declared, torch.tensor([0, 0, 1, 1]), ratios, trust=1.0)
    assert (found[:, 1] > 0.3).all()
    assert (found[:, 2] == 0).all()


@pytest.mark.parametrize("trust", [0.0, 5.0])
def test_a_set_without_samples_keeps_its_declared_proportions(trust):
    declared = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    ratios = torch.tensor([[1.8, 0.2], [0.2, 1.8]])
    found = refined(declared, torch.tensor([0, 0]), ratios, trust)
    assert torch.allclose(found[1], declared[1])
    assert found[0].sum() == pytest.approx(1)


def test_proportions_are_refined_after_the_warm_up_and_stay_at_the_site():
    site = site_of()
    method = RefinedFedUL(warmup=2, trust=1.0)
    before, after = loss_of(method, site, 1)[1], loss_of(method, site, 2)[1]
    assert torch.equal(before.tensors["log_a"], loss_of(FedUL(), site)[1].tensors["log_a"])
    assert not torch.allclose(after.tensors["log_a"], before.tensors["log_a"], atol=1e-2)
    assert before.metrics["moved"] == 0.0
    assert after.metrics["moved"] > 0.05
    assert method.report(Here(model_of(site), SiteData.of(site), {}, {}), after) == {}


def test_the_truth_changes_only_metrics():
    site = site_of()
    blind = pl.Site(site.name, site.inputs, site.view, site.symbols)
    seen, unseen = (loss_of(RefinedFedUL(warmup=1), one, 3)[1] for one in (site, blind))
    assert torch.equal(seen.tensors["log_a"], unseen.tensors["log_a"])
    assert set(seen.metrics) - set(unseen.metrics) == {"declared_error", "prior_error"}


# --- what it asks of a federation


def check(*sites, method=None, server=None):
    (method or FedUL()).check(pl.Federation.of(sites, server))


def test_other_kinds_of_labels_are_refused_with_a_way_out():
    exact = pl.Site.of("clinic", torch.randn(3, 4), pl.exact(SPACE), [0, 1, 2])
    with pytest.raises(pl.PotluckError, match=r'site "clinic" has .* kind exact.*likelihood'):
        check(site_of(), exact)
    with pytest.raises(pl.PotluckError, match='site "clinic" has a view of kind exact'):
        check(site_of(), server=exact)


def test_sites_must_mean_the_same_target_population():
    with pytest.raises(pl.PotluckError, match='"a" and "b" declare different target priors'):
        check(site_of("a"), site_of("b", prior=None))


FEW = {
    "a": torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]]),
    "b": torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]]),
}


def test_sites_with_fewer_sets_than_classes_pass_if_others_supply_the_rest():
    sites = [site_of(name, priors, minimum_rank=2) for name, priors in FEW.items()]
    check(*sites)
    said = pl.Federation.of(sites).identifiability().shortfalls()
    assert said[0] == 'Site "a" (bags) settles 1 of 2 class contrasts alone; more come from "b".'
    assert said[1].endswith('more come from "a".')


def test_a_federation_that_cannot_tell_classes_apart_is_refused_by_name():
    with pytest.raises(pl.PotluckError, match=r'Only 1 of 2.*Site "a" .* from nobody.*Add sets'):
        check(site_of("a", FEW["a"], minimum_rank=2))


def test_a_site_that_needs_no_help_is_not_mentioned():
    full, short = site_of("full"), site_of("short", FEW["a"], minimum_rank=2)
    said = pl.Federation.of([full, short]).identifiability().shortfalls()
    assert len(said) == 1
    assert 'Site "short"' in said[0]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FedUL(surrogate="nll"), 'unknown method.surrogate "nll"'),
        (FedUL(target_prior="declare"), 'did you mean "declared"'),
        (FedUL(augment="flip"), "are not images"),
        (RefinedFedUL(warmup=0), "method.warmup is 0"),
        (RefinedFedUL(trust=-1.0), "method.trust is -1.0"),
    ],
)
def test_wrong_options_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        check(site_of(), method=method)
