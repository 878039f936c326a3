"""Simulated federations: each is what its study file promises."""

from typing import Any

import pytest
import torch
from torch import Tensor

from potluck.data.readers.digits import digits_split
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.study.build import load_federation
from potluck.study.schema import parse_study

TRAIN, TEST = digits_split()
NAMES = tuple("0123456789")


def simulated(sites: Any, seed: int = 0, **settings: Any) -> Federation:
    """The federation of a simulation of digits; one view alone stands for one site of 200."""
    if "kind" in sites:
        sites = [{"name": "site", "samples": 200, "view": sites}]
    table = {"rounds": 1, "seed": seed, "simulation": {"dataset": "digits", "sites": sites}}
    table["simulation"].update(settings)
    return load_federation(parse_study(table, "study"))[0]


def only(federation: Federation) -> Site:
    (site,) = federation.sites
    assert site.truth is not None
    return site


def rows(*inputs: Tensor) -> list[bytes]:
    """Each image as bytes, to compare sets of images."""
    return [image.numpy().tobytes() for images in inputs for image in images]


def test_images_keep_their_true_class_and_the_test_set_is_the_data_sets() -> None:
    federation = simulated([{"name": "a", "view": {"kind": "exact"}}])
    site = only(federation)
    assert torch.equal(site.inputs, TRAIN.inputs)
    assert torch.equal(site.truth, TRAIN.classes)
    assert torch.equal(site.symbols, TRAIN.classes)
    assert federation.test is not None
    assert torch.equal(federation.test[0], TEST.inputs)
    assert torch.equal(federation.test[1], TEST.classes)
    assert federation.space.names == NAMES


def test_sites_share_the_training_data_without_overlap() -> None:
    views = [{"kind": "exact"}, {"kind": "unlabeled"}, {"kind": "noisy", "rate": 0.2}]
    sites = [{"name": str(i), "view": view} for i, view in enumerate(views)]
    federation = simulated(sites, partition={"name": "dirichlet", "alpha": 0.5})
    assert sorted(rows(*(site.inputs for site in federation.sites))) == sorted(rows(TRAIN.inputs))


def test_a_count_makes_numbered_sites_and_samples_caps_each() -> None:
    federation = simulated(
        [
            {"name": "ward", "count": 3, "samples": 50, "view": {"kind": "exact"}},
            {"name": "archive", "view": {"kind": "unlabeled"}},
        ]
    )
    assert [site.name for site in federation.sites] == ["ward-1", "ward-2", "ward-3", "archive"]
    assert [len(site) for site in federation.sites[:3]] == [50, 50, 50]
    assert len(federation.sites[3]) == len(TRAIN) // 4


def test_a_cap_above_what_there_is_takes_all() -> None:
    site = only(simulated([{"name": "a", "samples": 10**6, "view": {"kind": "exact"}}]))
    assert len(site) == len(TRAIN)


VIEWS: list[dict[str, Any]] = [
    {"kind": "exact"},
    {"kind": "exact", "labelled": 0.5},
    {"kind": "coarse", "mapping": {"low": list("01234"), "high": list("56789")}},
    {"kind": "noisy", "rate": 0.3},
    {"kind": "noisy", "noise": "pair", "rate": 0.3},
    {"kind": "bags", "bags": 12},
    {"kind": "candidates", "rho": 0.3},
    {"kind": "subset", "count": 4},
    {"kind": "subset", "classes": ["3", "1"], "private": True},
    {"kind": "unlabeled"},
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(map(str, view.values()))[:40])
def test_the_seed_decides_everything(view: dict[str, Any]) -> None:
    first, again, other = (only(simulated(view, seed)) for seed in (3, 3, 4))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.symbols, again.symbols)
    assert torch.equal(first.view.codebook, again.view.codebook)
    assert torch.equal(first.truth, again.truth)
    assert len(first) != len(other) or not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(map(str, view.values()))[:40])
def test_what_is_observed_is_possible_for_the_true_class(view: dict[str, Any]) -> None:
    site = only(simulated(view))
    assert site.view.kind == view["kind"]
    likelihood = site.view.rows(site.symbols).gather(1, site.truth.unsqueeze(1))
    assert (likelihood > 0).all()
    assert site.view.held[site.truth].all()


def test_only_the_labelled_share_is_kept() -> None:
    site = only(simulated({"kind": "exact", "labelled": 0.1}))
    assert len(site) == 20
    assert torch.equal(site.symbols, site.truth)


def test_coarse_labels_follow_the_mapping() -> None:
    mapping = {"low": list("01234"), "high": list("56789")}
    site = only(simulated({"kind": "coarse", "mapping": mapping}))
    assert site.view.symbols.names == ("low", "high")
    assert torch.equal(site.symbols, (site.truth >= 5).long())


def test_coarse_labels_follow_a_matrix() -> None:
    never, always = [0.0] * 10, [1.0] * 10
    site = only(
        simulated({"kind": "coarse", "matrix": [never[:5] + always[5:], always[:5] + never[5:]]})
    )
    assert torch.equal(site.symbols, (site.truth < 5).long())


def test_noise_errs_at_its_rate_and_pair_noise_to_the_next_class() -> None:
    site = only(simulated([{"name": "a", "view": {"kind": "noisy", "rate": 0.3}}]))
    assert float((site.symbols != site.truth).double().mean()) == pytest.approx(0.3, abs=0.04)
    view = {"kind": "noisy", "rate": 0.3, "noise": "pair"}
    pairs = only(simulated([{"name": "a", "view": view}]))
    wrong = pairs.symbols != pairs.truth
    assert torch.equal(pairs.symbols[wrong], (pairs.truth[wrong] + 1) % 10)
    assert float(wrong.double().mean()) == pytest.approx(0.3, abs=0.04)


def test_bags_have_the_proportions_that_they_declare() -> None:
    site = only(simulated({"kind": "bags", "bags": 12}))
    assert len(site.view.symbols) == 12
    for bag in range(12):
        classes = site.truth[site.symbols == bag]
        shares = torch.bincount(classes, minlength=10).double() / len(classes)
        assert torch.allclose(shares, site.view.proportions[bag], atol=1e-6)


def test_an_error_in_declared_proportions_is_only_in_the_declaration() -> None:
    true, wrong = (
        only(simulated({"kind": "bags", "bags": 12, "epsilon": epsilon})) for epsilon in (0.0, 0.3)
    )
    assert torch.equal(true.inputs, wrong.inputs)
    assert torch.equal(true.symbols, wrong.symbols)
    assert not torch.allclose(true.view.proportions, wrong.view.proportions)


def test_candidates_hold_the_truth_and_wrong_ones_at_their_rate() -> None:
    site = only(simulated([{"name": "a", "view": {"kind": "candidates", "rho": 0.3}}]))
    sets = site.view.rows(site.symbols)
    assert (sets.gather(1, site.truth.unsqueeze(1)) == 1).all()
    assert float((sets.sum(1) - 1).mean()) / 9 == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("private", [False, True])
def test_a_subset_keeps_the_samples_of_its_classes(private: bool) -> None:
    view = {"kind": "subset", "classes": ["3", "1"], "private": private}
    site = only(simulated([{"name": "a", "view": view}]))
    assert site.view.private == private
    assert site.view.symbols.names == ("3", "1")
    assert set(site.truth.tolist()) == {1, 3}
    assert len(site) == int(((TRAIN.classes == 1) | (TRAIN.classes == 3)).sum())
    assert torch.equal(site.symbols, (site.truth == 1).long())


def test_a_subset_by_count_draws_as_many_classes_for_each_site() -> None:
    federation = simulated(
        [{"name": "s", "count": 6, "view": {"kind": "subset", "count": 3}}], seed=1
    )
    drawn = {tuple(site.view.held.tolist()) for site in federation.sites}
    assert {sum(held) for held in drawn} == {3}
    assert len(drawn) > 1


def test_a_subset_without_classes_has_those_of_the_partition() -> None:
    partition = {"name": "covering_label_subsets", "labels_per_site": 4}
    sites = [{"name": "s", "count": 5, "view": {"kind": "subset", "private": True}}]
    federation = simulated(sites, partition=partition)
    held = torch.stack([site.view.held for site in federation.sites])
    assert held.sum(1).tolist() == [4] * 5
    assert held.any(0).all()
    for site in federation.sites:
        assert torch.equal(torch.unique(site.truth), site.view.held.nonzero().flatten())


def test_the_servers_samples_are_none_of_the_sites() -> None:
    sites = [{"name": "a", "view": {"kind": "unlabeled"}}]
    federation = simulated(sites, server={"view": {"kind": "exact"}, "per_class": 5})
    server = federation.server
    assert server is not None
    assert torch.bincount(server.truth).tolist() == [5] * 10
    together = rows(server.inputs, federation.sites[0].inputs)
    assert sorted(together) == sorted(rows(TRAIN.inputs))
    assert len(federation.sites[0]) == len(TRAIN) - 50


def test_a_server_may_have_a_number_of_samples_and_a_weak_view() -> None:
    sites = [{"name": "a", "view": {"kind": "exact"}}]
    view = {"kind": "coarse", "mapping": {"low": list("01234"), "high": list("56789")}}
    federation = simulated(sites, server={"view": view, "samples": 70})
    server = federation.server
    assert server is not None
    assert len(server) == 70
    assert torch.equal(server.symbols, (server.truth >= 5).long())


def test_a_class_that_a_server_has_little_of_gives_what_it_has() -> None:
    sites = [{"name": "a", "view": {"kind": "exact"}}]
    federation = simulated(sites, server={"view": {"kind": "exact"}, "per_class": 143})
    have = torch.bincount(TRAIN.classes)
    assert federation.server is not None
    counts = torch.bincount(federation.server.truth, minlength=10)
    assert torch.equal(counts, have.clamp(max=143))


def test_a_view_that_leaves_nothing_names_the_site() -> None:
    partition = {"name": "label_subsets", "labels_per_site": 1}
    sites = [{"name": "s", "count": 20, "view": {"kind": "subset", "classes": ["0"]}}]
    with pytest.raises(
        PotluckError, match=r'site "s-\d+": none of its samples is of the classes 0'
    ):
        simulated(sites, partition=partition)
