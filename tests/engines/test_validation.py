"""Samples that sites keep out of training, and the round that does best on them."""

import pytest
import torch

import potluck as pl
from potluck.engines.validation import validate
from potluck.history import best_round
from potluck.study.schema import parse_study
from potluck.study.simulation import simulate
from potluck.training import make_network

SPACE = pl.LabelSpace(("ant", "bee", "cow", "dog"))


def study(**changes):
    table = {
        "rounds": 1,
        "simulation": {
            "dataset": "digits",
            "sites": [{"name": "site", "count": 3, "view": {"kind": "exact"}}],
            **changes,
        },
    }
    return parse_study(table, "study.toml").simulation


def test_a_share_of_each_sites_samples_is_kept_out_of_training(tmp_path):
    all_of_it = simulate(study(), 0, tmp_path)
    divided = simulate(study(validation=0.2), 0, tmp_path)
    for whole, train, aside in zip(all_of_it.sites, divided.sites, divided.validation, strict=True):
        assert whole.name == train.name == aside.name
        assert len(aside) == round(0.2 * len(whole))
        assert len(train) + len(aside) == len(whole)
        both = torch.cat([train.inputs, aside.inputs]).flatten(1)
        assert torch.equal(torch.unique(both, dim=0), torch.unique(whole.inputs.flatten(1), dim=0))
        assert torch.equal(aside.symbols, aside.truth)
    assert all_of_it.validation == ()


def test_a_share_that_leaves_nothing_is_refused(tmp_path):
    message = r'simulation.validation is 0.01, but site "site-1" has \d+ samples'
    with pytest.raises(pl.PotluckError, match=message):
        simulate(
            study(
                validation=0.01,
                sites=[{"name": "site", "count": 2, "samples": 10, "view": {"kind": "exact"}}],
            ),
            0,
            tmp_path,
        )


def test_validation_samples_belong_to_a_site():
    site = pl.Site.of("a", torch.zeros(2, 3), pl.exact(SPACE), [0, 1])
    stranger = pl.Site.of("b", torch.zeros(2, 3), pl.exact(SPACE), [0, 1])
    with pytest.raises(pl.PotluckError, match='validation samples of "b", but no site'):
        pl.Federation.of([site], validation=[stranger])


@pytest.mark.parametrize("make", [pl.subset, pl.private_subset])
def test_each_site_predicts_among_its_own_classes(make):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(50, 3, generator=generator)
    sites = []
    for name, own in (("one", ["dog", "ant"]), ("two", ["bee", "cow", "ant"])):
        labels = [own[i % len(own)] for i in range(50)]
        sites.append(pl.Site.of(name, inputs, make(SPACE, own), labels))
    federation = pl.Federation.of(sites, validation=sites)
    network = make_network(federation, pl.Recipe(rounds=1), "mlp")
    theta, buffers = network.initial()
    logits = network.infer(theta, buffers, inputs)
    hits = 0
    for site in sites:
        own = torch.tensor([SPACE.index(name) for name in site.view.symbols])
        hits += int((logits[:, own].argmax(1) == site.symbols).sum())
    assert 20 < hits < 80
    assert validate(network, theta, buffers, federation) == hits / 100


def test_a_run_records_validation_and_the_best_round_is_chosen_by_it(tmp_path):
    federation = simulate(study(validation=0.3), 1, tmp_path)
    recipe = pl.Recipe(rounds=4, local=pl.LocalTraining(lr=0.2))
    trained = pl.train(federation, recipe, "mlp")
    values = [record["validation"] for record in trained.history]
    assert all(0 <= value <= 1 for value in values)
    assert values[-1] > 0.5
    best = best_round(trained.history)
    assert best["validation"] == max(values)
    assert best["round"] == values.index(max(values)) + 1
    assert "test" in best
