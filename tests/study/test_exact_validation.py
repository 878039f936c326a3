"""Validation samples with true classes: set aside before labels are weakened."""

from pathlib import Path

import pytest
import torch

from potluck.data.readers.digits import digits_split
from potluck.engines.validation import validate
from potluck.errors import PotluckError
from potluck.flower.memory import Holding, Memory
from potluck.labels.view import uniform_prior
from potluck.report.metrics import METRICS
from potluck.study.build import prepare
from potluck.study.schema import parse_study, read_study
from potluck.study.simulation import simulate

FEDUL = Path(__file__).parents[2] / "examples" / "papers" / "fedul"
TRAIN, _ = digits_split()
CLASS_OF = {
    image.numpy().tobytes(): int(k) for image, k in zip(TRAIN.inputs, TRAIN.classes, strict=True)
}
VIEWS = [
    {"kind": "bags", "bags": 12},
    {"kind": "bags", "bags": 12, "bagging": "official"},
    {"kind": "exact", "labelled": 0.1},
    {"kind": "coarse", "mapping": {"low": list("01234"), "high": list("56789")}},
    {"kind": "noisy", "rate": 0.3},
    {"kind": "candidates", "rho": 0.3},
    {"kind": "unlabeled"},
]


def table(view, **settings):
    sites = [{"name": "site", "count": 2, "samples": 400, "view": view}]
    exact = {"validation": 0.25, "validation_labels": "exact"}
    return {
        "rounds": 1,
        "simulation": {"dataset": "digits", "sites": sites, **exact, **settings},
    }


def simulated(view, **settings):
    return simulate(parse_study(table(view, **settings), "study").simulation, 0, Path())


def images(site):
    return [image.numpy().tobytes() for image in site.inputs]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: "-".join(map(str, view.values()))[:20])
def test_validation_samples_have_their_true_classes_and_are_in_no_training_set(view):
    federation = simulated(view)
    kept = [image for site in federation.validation for image in images(site)]
    trained = [image for site in federation.sites for image in images(site)]
    assert len(kept) == len(set(kept)) == 2 * 100
    assert not set(kept) & set(trained)
    for site, aside in zip(federation.sites, federation.validation, strict=True):
        assert site.name == aside.name
        assert site.view.kind == view["kind"]
        assert len(site) <= 300
        assert aside.view.kind == "exact"
        assert aside.symbols.tolist() == [CLASS_OF[image] for image in images(aside)]
        assert torch.equal(aside.symbols, aside.truth)


def test_bags_are_formed_of_what_is_left_and_say_its_proportions():
    for site in simulated({"kind": "bags", "bags": 12}).sites:
        assert len(site) == 300
        counts = torch.zeros(12, 10).index_put_(
            (site.symbols, site.truth), torch.ones(300), accumulate=True
        )
        priors = counts / counts.sum(1, keepdim=True)
        # The codebook has P(class | bag) / P(class), up to a factor of each bag.
        believed = site.view.codebook * uniform_prior(site.view.space)
        believed = believed / believed.sum(1, keepdim=True)
        assert torch.allclose(believed.float(), priors, atol=1e-6)


def test_the_same_samples_are_kept_whatever_is_known_of_the_others():
    first, *others = ([images(site) for site in simulated(view).validation] for view in VIEWS)
    assert all(other == first for other in others)
    revealed = simulated(VIEWS[0], reveal=True)
    assert [images(site) for site in revealed.validation] == first
    assert all(site.view.kind == "exact" for site in revealed.sites)


def test_validation_is_the_accuracy_over_the_samples_of_all_sites():
    prepared = prepare(parse_study(table(VIEWS[0]), "study"))
    theta, buffers = prepared.network.initial()
    aside = prepared.federation.validation
    logits = prepared.network.infer(theta, buffers, torch.cat([site.inputs for site in aside]))
    classes = torch.tensor([CLASS_OF[image] for site in aside for image in images(site)])
    expected = (logits.argmax(1).cpu() == classes).float().mean().item()
    assert validate(prepared.network, theta, buffers, prepared.federation) == pytest.approx(
        expected
    )


def test_a_site_over_the_network_remembers_which_labels_its_validation_samples_have(tmp_path):
    federation = simulated(VIEWS[0])
    site, aside = federation.sites[0], federation.validation[0]
    Memory(tmp_path).keep_data(Holding(site, None, aside))
    stored = Memory(tmp_path).data()
    assert stored.site.view.kind == "bags"
    assert stored.validation is not None
    assert stored.validation.view.kind == "exact"
    assert torch.equal(stored.validation.symbols, aside.truth)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"validation": 0.0},
            r'validation_labels is "exact", but .*no samples.*share, e\.g\. 0\.2',
        ),
        ({"validation": 0.001}, r'validation is 0\.001, but site "site-1" has 400 samples'),
        ({"validation_labels": "exakt"}, r'did you mean "exact"'),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(PotluckError, match=message):
        simulated(VIEWS[0], **settings)


@pytest.mark.parametrize("private", [True, False])
def test_sites_with_some_of_the_classes_keep_labels_of_their_own(private):
    with pytest.raises(
        PotluckError, match=r'"site" has a subset view.*Leave validation_labels out'
    ):
        simulated({"kind": "subset", "count": 3, "private": private})


def test_fedul_trains_on_as_many_samples_as_the_paper():
    for path in FEDUL.glob("*.toml"):
        if path.name != "reproduce.toml":
            simulation = read_study(path).simulation
            trained = 9600 if simulation.dataset == "mnist" else 8000
            assert simulation.validation_labels == "exact"
            for group in simulation.sites:
                assert round((1 - simulation.validation) * group.samples) == trained


def test_the_error_is_that_of_the_round_that_is_best_in_validation_not_in_test():
    rounds = [(0.70, 0.95), (0.90, 0.80), (0.80, 0.99), (0.90, 0.60)]
    history = [
        {"round": i + 1, "validation": validation, "test": {"accuracy": test}}
        for i, (validation, test) in enumerate(rounds)
    ]
    assert METRICS["validated-error"].of(history) == pytest.approx(0.2)  # the first of equals
    assert METRICS["error"].of(history) == pytest.approx(0.4)
    unvalidated = [{"round": 1, "test": {"accuracy": 0.5}}]
    assert METRICS["validated-error"].of(unvalidated) is None
