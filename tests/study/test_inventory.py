"""What a run folder says about each site, and what it must not say."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from potluck.federation import Federation, Site
from potluck.labels import (
    LabelSpace,
    bags,
    candidates,
    coarse,
    exact,
    private_subset,
    subset,
    unlabeled,
)
from potluck.study.inventory import read_inventory, write_inventory
from potluck.study.stocktaking import take_inventory

SPACE = LabelSpace(("ant", "bee", "cat", "dog"))
TRUTH = torch.tensor([0, 1, 2, 3, 3, 3])


def site(name, view, labels, truth=TRUTH):
    return Site.of(name, torch.zeros(len(TRUTH), 2), view, labels, truth)


def brought(*sites, **more):
    found = take_inventory(Federation.of(sites, **more))
    return {one.facts.name: one for one in found.sites}


def test_exact_labels_tell_all_and_no_labels_tell_nothing():
    found = brought(
        site("clinic", exact(SPACE), TRUTH), site("archive", unlabeled(SPACE), None, None)
    )
    clinic, archive = found["clinic"], found["archive"]
    assert clinic.facts.information == 1
    assert (
        clinic.counts.tolist() == clinic.classes.tolist() == clinic.truth.tolist() == [1, 1, 1, 3]
    )
    assert archive.facts.information == 0
    assert archive.classes.tolist() == pytest.approx([1.5] * 4)
    assert archive.truth is None


def test_coarse_labels_spread_over_the_classes_they_cover():
    view = coarse(SPACE, {"insect": ["ant", "bee"], "mammal": ["cat", "dog"]})
    (found,) = brought(site("registry", view, TRUTH // 2)).values()
    assert found.facts.symbols == ["insect", "mammal"]
    assert found.counts.tolist() == [2, 4]
    assert found.classes.tolist() == [1, 1, 2, 2]
    assert found.facts.information == pytest.approx(1 - math.log(2) / math.log(4))
    assert np.array_equal(found.declared, view.codebook.float())


def test_bags_declare_their_class_proportions():
    proportions = torch.tensor(
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.1, 0.1, 0.1, 0.7]]
    )
    view = bags(SPACE, proportions.double(), names=list("wxyz"))
    (found,) = brought(site("wards", view, TRUTH)).values()
    assert np.allclose(found.declared, proportions)


def test_candidate_sets_are_counted_by_class_but_not_listed():
    mask = torch.eye(4)[TRUTH]
    mask[0, 1] = 1
    (found,) = brought(site("undecided", candidates(SPACE, mask), mask)).values()
    assert found.facts.symbols is None
    assert found.counts is None
    assert found.classes.tolist() == [0.5, 1.5, 1, 3]


def test_evidence_is_in_exact_labels():
    groups = {"insect": ["ant", "bee"], "cat": ["cat"], "dog": ["dog"]}
    found = brought(
        site("clinic", exact(SPACE), TRUTH),
        site("registry", coarse(SPACE, groups), torch.tensor([0, 0, 1, 2, 2, 2])),
        site("archive", unlabeled(SPACE), None),
    )
    assert found["clinic"].evidence == pytest.approx([1, 1, 1, 3])
    assert found["archive"].evidence == pytest.approx([0, 0, 0, 0])
    ant, bee, cat, dog = found["registry"].evidence
    assert (cat, dog) == pytest.approx((1, 3))  # their labels are exact
    assert 0 < ant < 0.6
    assert 0 < bee < 0.6


def test_candidate_sets_are_worth_what_the_frequent_ones_are():
    """Two classes, certain but for one sample in six: a set of both is worth nothing."""
    two = LabelSpace(("ant", "bee"))
    mask = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]])
    (found,) = brought(site("undecided", candidates(two, mask), mask, None)).values()
    assert found.classes.tolist() == [2.5, 3.5]
    assert found.worth == pytest.approx([5 / 6, 5 / 6], abs=0.02)


def test_the_server_brings_evidence_like_a_site():
    server = site("server", exact(SPACE), TRUTH)
    found = brought(site("archive", unlabeled(SPACE), None), server=server)
    assert found["server"].evidence == pytest.approx([1, 1, 1, 3])


def test_the_server_comes_last_and_is_marked():
    server = site("server", exact(SPACE), TRUTH)
    found = brought(site("archive", unlabeled(SPACE), None), server=server)
    assert [one.facts.server for one in found.values()] == [False, True]


def test_everything_survives_the_way_through_the_files(tmp_path):
    test = (torch.zeros(4, 2), torch.arange(4))
    before = take_inventory(
        Federation.of(
            [
                site("clinic", exact(SPACE), TRUTH),
                site("archive", unlabeled(SPACE), None, None),
                site("secretive", subset(SPACE, SPACE.names), TRUTH),
            ],
            test=test,
        )
    )
    write_inventory(tmp_path, before)
    after = read_inventory(tmp_path)
    assert (after.classes, after.verdict, after.test) == (before.classes, before.verdict, 4)
    for old, new in zip(before.sites, after.sites, strict=True):
        assert old.facts == new.facts
        for name in ("counts", "classes", "truth", "declared", "worth"):
            one, other = getattr(old, name), getattr(new, name)
            assert (one is None) == (other is None)
            assert one is None or np.array_equal(one, other)


def test_of_a_real_private_site_nothing_about_its_labels_is_written(tmp_path):
    private = private_subset(SPACE, ("cat", "dog"))
    labels = torch.tensor([0, 1, 1, 0, 0, 0])
    real = Site.of("secretive", torch.zeros(6, 2), private, labels)
    played = Site.of("played", torch.zeros(6, 2), private, labels, labels + 2)
    found = brought(real, played, site("clinic", exact(SPACE), TRUTH))
    hidden = found["secretive"]
    assert (hidden.facts.symbols, hidden.facts.information) == (None, None)
    assert (hidden.counts, hidden.classes, hidden.declared) == (None, None, None)
    assert (hidden.worth, hidden.evidence) == (None, None)
    assert found["played"].classes.tolist() == [0, 0, 4, 2]
    write_inventory(tmp_path, take_inventory(Federation.of([real])))
    assert (tmp_path / "sites.json").read_text().count("cat") == 1  # among the target classes
    assert (tmp_path / "sites.safetensors").stat().st_size < 100


def test_an_inventory_from_before_has_no_evidence(tmp_path):
    before = take_inventory(Federation.of([site("clinic", exact(SPACE), TRUTH)]))
    write_inventory(
        tmp_path, replace(before, sites=tuple(replace(one, worth=None) for one in before.sites))
    )
    (found,) = read_inventory(tmp_path).sites
    assert found.classes.tolist() == [1, 1, 1, 3]
    assert found.evidence is None


def test_a_run_from_before_has_no_inventory(tmp_path):
    assert read_inventory(tmp_path) is None
