"""Simulated sites with sets or with few labels: what the options do."""

from pathlib import Path

import pytest
import torch

import potluck as pl
from potluck.study.schema import parse_study
from potluck.study.simulation import simulate


def federation(view, count=3, seed=0, **simulation):
    sites = [{"name": "site", "count": count, "view": view}]
    table = {"rounds": 1, "simulation": {"dataset": "digits", "sites": sites, **simulation}}
    return simulate(parse_study(table, "test").simulation, seed, Path())


BAGS = {"kind": "bags", "bags": 12}


def test_the_test_set_is_cut_down_to_the_target_prior_and_sites_are_told():
    prior = [0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025]
    made, plain = federation(BAGS, target_prior=prior), federation(BAGS)
    counts = torch.bincount(made.test[1], minlength=10)
    wanted = torch.tensor(prior) * counts.sum()
    assert (counts - wanted).abs().max() < 1.5
    assert counts.max() == torch.bincount(plain.test[1])[0]  # none more than needed was left out
    for site in made.sites:
        assert site.view.prior.tolist() == pytest.approx(prior)
    assert torch.equal(made.sites[0].inputs, plain.sites[0].inputs)


def test_a_site_may_have_another_target_prior_in_mind():
    uniform = [0.1] * 10
    skewed = [0.19, 0.01] * 5
    made = federation({**BAGS, "target_prior": uniform}, target_prior=skewed)
    assert made.sites[0].view.prior.tolist() == pytest.approx(uniform)


def test_only_labelled_samples_stay():
    many, few = federation({"kind": "exact"}), federation({"kind": "exact", "labelled": 0.25})
    for all_, some in zip(many.sites, few.sites, strict=True):
        assert len(some) == round(len(all_) / 4)
        assert torch.equal(some.symbols, some.truth)


def test_official_bags_overlap_and_iid_ones_have_the_same_table_at_all_sites():
    overlapping = federation({**BAGS, "bagging": "official"}, count=2)
    for site in overlapping.sites:
        images = site.inputs.flatten(1)
        assert len(torch.unique(images, dim=0)) < len(images)
    assert not torch.allclose(*(site.view.proportions for site in overlapping.sites), atol=0.05)
    alike = federation({**BAGS, "bagging": "official-iid"}, count=2)
    assert torch.allclose(*(site.view.proportions for site in alike.sites), atol=0.05)


def test_noise_in_the_priors_may_exceed_1():
    clean = federation({**BAGS, "minimum_rank": 5})
    noisy = federation({**BAGS, "epsilon": 1.6, "minimum_rank": 5})
    for before, after in zip(clean.sites, noisy.sites, strict=True):
        assert torch.equal(before.symbols, after.symbols)
        assert (after.view.proportions == 0).any()


def test_sites_with_fewer_sets_than_classes_favour_different_classes():
    made = federation({"kind": "bags", "bags": 4, "minimum_rank": 4}, count=5)
    favourites = {k for site in made.sites for k in site.view.proportions.argmax(1).tolist()}
    assert len(favourites) > 4
    assert made.identifiability().complete
    assert not pl.Federation.of(made.sites[:2]).identifiability().complete


@pytest.mark.parametrize(
    ("view", "simulation", "message"),
    [
        ({"kind": "exact", "labelled": 0.0001}, {}, 'site "site-1".*leaves none; raise it'),
        ({"kind": "exact", "labelled": 0}, {}, "labelled"),
        ({"kind": "bags", "bags": 4}, {}, 'site "site-1".*4 bags cannot tell 10 classes apart'),
        ({**BAGS, "epsilon": -0.1}, {}, "epsilon"),
        ({**BAGS, "bagging": "oficial"}, {}, "bagging"),
        (BAGS, {"target_prior": [0.5, 0.5]}, "simulation.target_prior has 2 entries"),
        (BAGS, {"target_prior": [0.2, 0] * 5}, 'simulation.target_prior is 0 for class "1"'),
        (
            BAGS,
            {"target_prior": [0.1999, 0.0001] * 5},
            'gives class "1" a share that the .* test samples cannot show',
        ),
    ],
)
def test_what_cannot_be_simulated_is_explained(view, simulation, message):
    with pytest.raises(pl.PotluckError, match=message):
        federation(view, **simulation)
