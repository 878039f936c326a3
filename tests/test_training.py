"""The one verb of the Python API, and the claim it is there for."""

import pytest
import torch
from torch import nn

import potluck as pl
from potluck.data.makers import bags, candidates, noise
from potluck.data.readers.digits import digits
from potluck.errors import PotluckError

SPACE = pl.LabelSpace(("ant", "bee", "cow"))


def small(**changes):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 4, generator=generator)
    sites = [
        pl.Site.of("a", inputs[:12], pl.exact(SPACE), torch.arange(12) % 3),
        pl.Site.of("b", inputs[12:], pl.exact(SPACE), torch.arange(18) % 3),
    ]
    test = (torch.randn(9, 4, generator=generator), torch.arange(9) % 3)
    return pl.Federation.of(sites, **{"test": test, **changes})


RECIPE = pl.Recipe(rounds=3)


def test_every_round_is_recorded():
    history = pl.train(small(), RECIPE).history
    assert [record["round"] for record in history] == [1, 2, 3]
    for record in history:
        assert record["cohort"] == ["a", "b"]
        assert record["lr"] == 0.1
        assert record["seconds"] > 0
        assert set(record["test"]) == {"accuracy", "loss", "per_class"}
        assert record["sites"]["a"].keys() == {"loss", "samples", "steps", "drift"}
        assert record["sites"]["a"]["samples"] == 12


def test_without_a_test_set_nothing_is_evaluated():
    history = pl.train(small(test=None), RECIPE).history
    assert all("test" not in record for record in history)


def test_on_round_sees_every_state_as_it_comes():
    seen = []
    trained = pl.train(small(), RECIPE, on_round=lambda state, record: seen.append((state, record)))
    assert [state.round for state, _ in seen] == [1, 2, 3]
    assert [record for _, record in seen] == trained.history
    assert seen[-1][0] is trained.state


def test_results_by_hand():
    trained = pl.train(small(), RECIPE)
    inputs, classes = small().test
    logits = trained.module()(inputs).detach()
    assert torch.allclose(trained.probabilities(inputs), logits.softmax(1), atol=1e-6)
    assert trained.predict(inputs) == [SPACE.names[k] for k in logits.argmax(1).tolist()]
    hit = logits.argmax(1) == classes
    evaluation = trained.evaluate(inputs, classes)
    assert evaluation.accuracy == pytest.approx(float(hit.float().mean()))
    assert evaluation.loss == pytest.approx(float(nn.functional.cross_entropy(logits, classes)))
    per_class = [float(hit[classes == k].float().mean()) for k in range(3)]
    assert list(evaluation.per_class) == pytest.approx(per_class)
    assert trained.history[-1]["test"]["accuracy"] == evaluation.accuracy


def test_a_class_without_test_samples_has_no_accuracy():
    trained = pl.train(small(), RECIPE)
    evaluation = trained.evaluate(torch.zeros(2, 4), torch.tensor([0, 2]))
    assert [a != a for a in evaluation.per_class] == [False, True, False]


def test_predictions_in_a_sites_own_terms():
    trained = pl.train(small(), RECIPE)
    view = pl.coarse(SPACE, {"mammal": ["cow"], "insect": ["bee", "ant"]})
    inputs = small().test[0]
    p = trained.probabilities(inputs)
    expected = ["mammal" if cow > 0.5 else "insect" for cow in p[:, 2].tolist()]
    assert trained.predict(inputs, view) == expected


def test_a_given_model_is_the_start_and_stays_untouched():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    barely = pl.Recipe(rounds=1, local=pl.LocalTraining(lr=1e-9))
    trained = pl.train(small(), barely, model)
    assert torch.allclose(trained.module()(torch.ones(1, 4)), model(torch.ones(1, 4)), atol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_with_other_classes_is_refused():
    with pytest.raises(PotluckError, match="scores 5 classes but the federation has 3; give its"):
        pl.train(small(), RECIPE, nn.Linear(4, 5))


def test_an_unknown_model_is_refused():
    with pytest.raises(PotluckError, match='unknown model "mpl"; did you mean "mlp"'):
        pl.train(small(), RECIPE, "mpl")


class Range(nn.Module):
    """Insists on images as floats in [0, 1]."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        assert x.is_floating_point()
        assert x.max() <= 1
        return self.head(x.flatten(1))


@pytest.mark.parametrize("augment", ["none", "flip"])
@pytest.mark.parametrize("batch_norm", ["average", "static"])
def test_a_given_model_sees_images_as_fractions_in_training_and_evaluation(augment, batch_norm):
    images = torch.full((6, 1, 4, 4), 255, dtype=torch.uint8)
    space = pl.LabelSpace.numbered(2)
    site = pl.Site.of("a", images, pl.exact(space), torch.arange(6) % 2)
    federation = pl.Federation.of([site], test=(images, torch.arange(6) % 2))
    method = pl.Likelihood(augment=augment)
    recipe = pl.Recipe(rounds=1, method=method, batch_norm=batch_norm)
    pl.train(federation, recipe, Range()).probabilities(images)  # Range asserts


# The claim


def seven_kinds(seed):
    """Sites with 60 exact labels, or about 200 of another kind; 400 digits to test on."""
    generator = torch.Generator().manual_seed(seed)
    data, space = digits(), pl.LabelSpace.numbered(10)
    order = torch.randperm(len(data), generator=generator)

    def cut(first, last):
        index = order[400 + first : 400 + last]
        return data.inputs[index], data.classes[index]

    x, y = cut(0, 60)
    sites = [pl.Site.of("exact", x, pl.exact(space), y)]
    x, y = cut(60, 260)
    groups = {"low": list("0123"), "middle": list("456"), "high": list("789")}
    view = pl.coarse(space, groups)
    sites.append(pl.Site.of("coarse", x, view, view.codebook.argmax(0)[y]))
    x, y = cut(260, 460)
    flips = noise.symmetric(10, 0.4)
    sites.append(pl.Site.of("noisy", x, pl.noisy(space, flips), noise.flip(y, flips, generator)))
    x, y = cut(460, 660)
    made = bags.make_bags(y, bags.draw_priors(12, 10, generator), generator)
    view = pl.bags(space, made.priors, sizes=made.sizes)
    sites.append(pl.Site.of("bags", x[made.index], view, made.bag))
    x, y = cut(660, 860)
    sets = candidates.uniform(y, 10, 0.4, generator)
    sites.append(pl.Site.of("candidates", x, pl.candidates(space, sets), sets))
    x, y = cut(860, 1060)
    own = y < 5
    view = pl.private_subset(space, list("31024"))
    sites.append(pl.Site.of("private", x[own], view, [str(k) for k in y[own].tolist()]))
    x, _ = cut(1060, 1260)
    sites.append(pl.Site.of("unlabeled", x, pl.unlabeled(space)))
    return sites, (data.inputs[order[:400]], data.classes[order[:400]])


def accuracies(sites, test, seed, rounds):
    local = pl.LocalTraining(lr=0.1, epochs=2, optimiser=pl.SGD(momentum=0.9))
    recipe = pl.Recipe(rounds=rounds, seed=seed, local=local)
    history = pl.train(pl.Federation.of(sites, test=test), recipe).history
    return [record["test"]["accuracy"] for record in history]


def test_a_federation_of_seven_kinds_of_labels_beats_its_best_site():
    # Over seeds 0 … 9 the federation's last round was .027 to .127 above the best site, the mean
    # .075, though a site may train twice as long (here: a little longer) and choose its best
    # round on the test set.
    margins = []
    for seed in (0, 1):
        sites, test = seven_kinds(seed)
        joint = accuracies(sites, test, seed, rounds=25)[-1]
        labelled = [site for site in sites if site.name != "unlabeled"]  # alone, it learns nothing
        alone = {site.name: max(accuracies([site], test, seed, rounds=30)) for site in labelled}
        assert joint > max(alone.values()), alone
        margins.append(joint - max(alone.values()))
    assert sum(margins) / len(margins) > 0.03
