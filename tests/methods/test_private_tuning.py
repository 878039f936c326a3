"""Central tuning: what the server makes of the sites' models on its unlabelled samples."""

import pytest
import torch
from by_hand import play, whole
from torch import nn

import potluck as pl
from potluck.losses.pairwise import pairwise
from potluck.methods import Likelihood, Tuning
from potluck.models import Classifier
from potluck.models.network import Network

SPACE = pl.LabelSpace(("ant", "bee", "cow", "dog"))
CLASSES = {"one": ["cow", "ant"], "two": ["bee", "cow", "ant"]}
MAKE = {
    "private": pl.private_subset,
    "own": pl.subset,
    "all": lambda space, classes: pl.subset(space, classes, softmax="all"),
}


def network():
    torch.manual_seed(4)  # the model's own start, not the round's randomness
    encoder = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    return Network(Classifier(encoder, nn.Linear(5, 4)).double())


def federation(kind="private", classes=CLASSES, unlabelled=7):
    generator = torch.Generator().manual_seed(2)
    sites = [
        pl.Site.of(
            name,
            torch.randn(6, 3, generator=generator).double(),
            MAKE[kind](SPACE, own),
            [own[i % len(own)] for i in range(6)],
        )
        for name, own in classes.items()
    ]
    inputs = torch.randn(unlabelled, 3, generator=generator).double()
    return pl.Federation.of(sites, pl.Site.of("server", inputs, pl.unlabeled(SPACE)))


def couple(teachers, held):
    """The minimiser of (4) for each x, which is quadratic in h: the null vector of its Hessian."""

    def criterion(student, teachers):
        return pairwise(teachers, student, held).sum()

    inputs = torch.ones_like(teachers[0])
    hessians = torch.func.vmap(torch.func.hessian(criterion), (0, 1))(inputs, teachers)
    values, vectors = torch.linalg.eigh(hessians)
    assert (values[:, 1] > 1e-4).all(), "the minimiser is not unique"
    return vectors[:, :, 0] / vectors[:, :, 0].sum(1, keepdim=True)


def restricted(target, sets):
    held = torch.tensor([[float(k in own) for k in range(target.shape[1])] for own in sets])
    own = target * held.unsqueeze(1)
    return own / own.sum(2, keepdim=True), held.double()


def test_perfect_site_classifiers_combine_to_the_perfect_central_one():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(20, 6, generator=generator, dtype=torch.float64).softmax(1)
    teachers, held = restricted(target, [{0, 1}, {1, 2, 3}, {3, 4}, {4, 5, 0}])
    assert torch.allclose(couple(teachers, held), target, atol=1e-9)


def test_sites_that_share_no_class_leave_the_share_of_each_open():
    # Proposition 1 needs more than that every class is held: c(x) must be the same for all sites.
    target = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    teachers, held = restricted(target, [{0, 1}, {2, 3}])
    other = torch.tensor([[0.3, 0.6, 0.1 * 3 / 7, 0.1 * 4 / 7]], dtype=torch.float64)
    for student in (target, other):
        loss = pairwise(teachers, student, held.unsqueeze(1)).sum()
        assert float(loss) == pytest.approx(0, abs=1e-30)
    views = {"a": pl.subset(SPACE, ["ant", "bee"]), "b": pl.subset(SPACE, ["cow", "dog"])}
    assert not pl.identifiability(views).complete


@pytest.mark.parametrize("kind", MAKE)
def test_teachers_are_the_sites_models_renormalised_over_their_classes(kind):
    sites = federation(kind)
    local = whole(0.5, steps=3)
    states, _ = play(network(), pl.Recipe(rounds=1, method=Tuning(), local=local), sites)
    for place, (name, own) in enumerate(CLASSES.items()):
        alone = pl.Federation.of([site for site in sites.sites if site.name == name])
        # With one site, the average is its own model.
        trained, _ = play(network(), pl.Recipe(rounds=1, local=local), alone)
        module = network().module(trained[0].theta, {})
        index = [SPACE.index(c) for c in own]
        logits = module(sites.server.inputs)[:, index]
        expected = torch.zeros(7, 4).double()
        expected[:, index] = logits.softmax(1).detach()
        assert torch.allclose(states[0].method["teachers"][place], expected, atol=1e-12)


def test_an_exact_view_leaves_the_classes_open_and_is_compared_in_all():
    sites = federation("all")
    exact = pl.Federation.of(
        [
            pl.Site.of(s.name, s.inputs, pl.exact(SPACE), s.view.codebook.argmax(1)[s.symbols])
            for s in sites.sites
        ],
        sites.server,
    )
    recipe = pl.Recipe(rounds=1, method=Tuning(), local=whole())
    teachers = play(network(), recipe, exact)[0][0].method["teachers"]
    assert (teachers > 0).all()


def test_the_server_takes_the_steps_of_the_criterion():
    sites, local = federation(), whole(0.5, steps=3)
    method = Tuning(epochs=1, lr=0.1, optimiser="sgd", batch_size=100)
    tuned, _ = play(network(), pl.Recipe(rounds=1, method=method, local=local), sites)
    alone = pl.Federation.of(sites.sites)
    averaged, _ = play(network(), pl.Recipe(rounds=1, local=local), alone)
    model, theta = network(), averaged[0].theta.requires_grad_()
    student = (model.train(theta, {}, sites.server.inputs)[:, :3]).softmax(1)  # nobody has dogs
    teachers = tuned[0].method["teachers"][:, :, :3]
    held = torch.tensor([[1.0, 0, 1], [1, 1, 1]]).double()
    loss = sum(
        0.5 * pairwise(teachers[k], student, held[k]).mean()
        for k in range(2)  # both sites have six samples
    )
    (gradient,) = torch.autograd.grad(loss, theta)
    assert torch.allclose(tuned[0].theta, theta - 0.1 * gradient, atol=1e-12)


@pytest.mark.parametrize("criterion", ["pairwise", "mse"])
@pytest.mark.parametrize("part", ["model", "head"])
def test_a_class_that_nobody_holds_keeps_its_row_through_the_tuning(criterion, part):
    recipe = pl.Recipe(rounds=2, method=Tuning(criterion=criterion, part=part), local=whole())
    states, _ = play(network(), recipe, federation(), rounds=2)
    before, after = (
        network().layout.unflatten(theta) for theta in (network().initial()[0], states[-1].theta)
    )
    for name in ("head.weight", "head.bias"):
        assert torch.equal(after[name][3], before[name][3])
        assert not torch.isclose(after[name][:3], before[name][:3]).any(0).all()


def test_tuning_the_head_leaves_the_averaged_encoder_as_it_is():
    sites = federation()
    tuned, _ = play(
        network(), pl.Recipe(rounds=1, method=Tuning(part="head"), local=whole()), sites
    )
    plain, _ = play(network(), pl.Recipe(rounds=1, local=whole()), pl.Federation.of(sites.sites))
    a, b = (network().layout.unflatten(states[0].theta) for states in (tuned, plain))
    assert torch.equal(a["encoder.0.weight"], b["encoder.0.weight"])
    assert torch.equal(a["encoder.0.bias"], b["encoder.0.bias"])
    assert not torch.allclose(a["head.weight"], b["head.weight"], atol=1e-6)


def test_only_the_sites_of_the_round_are_teachers():
    recipe = pl.Recipe(rounds=6, cohort=1, method=Tuning(), local=whole(), seed=1)
    states, records = play(network(), recipe, federation(), rounds=6)
    assert {record["cohort"][0] for record in records} == {"one", "two"}
    for state, record in zip(states, records, strict=True):
        assert state.method["teachers"].shape == (1, 7, 4)
        own = CLASSES[record["cohort"][0]]
        held = [SPACE.names[k] for k in state.method["held"][0].nonzero().flatten().tolist()]
        assert sorted(held) == sorted(own)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Tuning(criterion="kl"), 'unknown method.criterion "kl"'),
        (Tuning(part="body"), 'unknown method.part "body"'),
        (Tuning(optimiser="adamw"), 'unknown method.optimiser "adamw"; did you mean "adam"'),
        (Tuning(epochs=0), r"method.epochs is 0; it must be above 0"),
        (Tuning(lr=-1.0), r"method.lr is -1.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        pl.Recipe(rounds=1, method=method).check(federation())


def test_tuning_without_samples_at_the_server_is_refused():
    alone = pl.Federation.of(federation().sites)
    with pytest.raises(pl.PotluckError, match=r"needs samples at the server.*method likelihood"):
        pl.Recipe(rounds=1, method=Tuning()).check(alone)


def test_sites_train_as_without_tuning():
    # Before the server's step, the average of Algorithm 1.
    sites = federation()
    method = Tuning(lr=1e-12)
    tuned, _ = play(network(), pl.Recipe(rounds=1, method=method, local=whole(0.5)), sites)
    recipe = pl.Recipe(rounds=1, method=Likelihood(), local=whole(0.5))
    plain, _ = play(network(), recipe, pl.Federation.of(sites.sites))
    assert torch.allclose(tuned[0].theta, plain[0].theta, atol=1e-9)
