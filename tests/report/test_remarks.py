"""What a report points at, and that it stays quiet otherwise."""

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_runs import synthetic_run

from potluck.report.remarks import remarks
from potluck.report.run import read_run
from potluck.study.inventory import Brought
from potluck.study.outcome import read_outcome


@pytest.fixture
def run(tmp_path):
    """Four sites, one of each labelled kind; twelve rounds."""
    synthetic_run(tmp_path / "r", rounds=12, sites=4)
    return read_run(tmp_path / "r")


def changed(run, change):
    """The run with every record changed."""
    history = [json.loads(json.dumps(record)) for record in run.history]
    for record in history:
        change(record)
    return replace(run, history=history)


def test_a_healthy_run_needs_no_second_look(run):
    assert remarks(run) == []


def test_a_fall_of_accuracy_is_noticed(run):
    def fall(record):
        record["test"]["accuracy"] = 0.9 if record["round"] == 5 else 0.7

    (said,) = remarks(changed(run, fall))
    assert "90.0% after round 5 and is 70.0% at the end" in said


def test_classes_that_are_weak_or_never_predicted_are_named(run):
    def weak(record):
        record["test"]["per_class"] = [0.9, 0.9, 0.9, 0.1]

    outcome = read_outcome(run.path)
    confusion = np.array([[5, 0, 1, 0], [0, 5, 0, 0], [0, 1, 5, 0], [1, 2, 2, 0]])
    test = replace(outcome.test, confusion=confusion)
    said = remarks(replace(changed(run, weak), outcome=replace(outcome, test=test)))
    assert "Never predicted: class 3." in said
    assert any("class 3 (10%)" in one for one in said)


def thinned(run, k=0, share=0.01, **changes):
    """The run with a share of the evidence about a class, and other changes in each site."""
    sites = []
    for one in run.inventory.sites:
        worth = one.worth.copy()
        worth[k] *= share
        sites.append(replace(one, worth=worth, **changes))
    return replace(run, inventory=replace(run.inventory, sites=tuple(sites)))


def test_a_class_with_hardly_any_evidence_is_named(run):
    (said,) = remarks(thinned(run))
    assert said.startswith("Less than 5% of the evidence that sites bring about the mean class")
    assert "class 0 (0." in said
    assert "class 1" not in said
    assert remarks(thinned(run, share=0.3)) == []


def test_nothing_is_said_about_evidence_while_a_site_does_not_tell(run):
    thin = thinned(run)
    first, *others = thin.inventory.sites
    untold = (Brought(first.facts), *others)
    assert remarks(replace(thin, inventory=replace(thin.inventory, sites=untold))) == []
    assert remarks(thinned(run, classes=None)) == []


def test_a_site_that_pulls_the_other_way_is_named(run):
    def pull(record):
        if "noisy site 02" in record["updates"]:
            record["updates"]["noisy site 02"]["agreement"] = -0.4

    (said,) = remarks(changed(run, pull))
    assert said.startswith("Pulled against the other sites")
    assert "noisy site 02" in said


def test_a_site_whose_loss_rises_is_named(run):
    def rise(record):
        for name, numbers in record["sites"].items():
            numbers["loss"] = record["round"] if name == "exact site 00" else 1.0

    (said,) = remarks(changed(run, rise))
    assert "Training loss rose" in said
    assert said.endswith("exact site 00.")


def test_a_site_that_drifts_far_is_named(run):
    def drift(record):
        for name, numbers in record["sites"].items():
            numbers["drift"] = 9.0 if name == "exact site 00" else 1.0

    (said,) = remarks(changed(run, drift))
    assert said == "Drift more than 4 times as far as the median site: exact site 00."


def test_sites_without_use_for_their_labels_are_named(tmp_path):
    synthetic_run(tmp_path / "r", rounds=6, sites=5)
    (said,) = remarks(read_run(tmp_path / "r"))
    assert said.startswith("Sat out every round")
    assert "unlabelled site 04" in said


def test_an_estimate_that_contradicts_the_declared_mapping_is_named(run):
    outcome = read_outcome(run.path)
    (site,) = outcome.correspondence
    swapped = run.brought[site].declared[[1, 0]]
    (said,) = remarks(replace(run, outcome=replace(outcome, correspondence={site: swapped})))
    assert (
        f'"{site}": samples of class "class 0" mostly have the label "group 1" by the estimate '
        "(100%), but the declared mapping does not allow it (and 3 more classes)"
    ) in said


def with_bags(run, share, size, mistakes=0.1):
    """The run with a site of four bags of equal size, a share of whose samples is misplaced."""
    name = "exact site 00"

    def misplace(record):
        record["test"]["accuracy"] = 1 - mistakes
        for site, numbers in record["sites"].items():
            numbers["misplaced"] = share if site == name else 0.0

    declared = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    sites = tuple(
        replace(
            one,
            facts=replace(one.facts, kind="bags", samples=4 * size),
            counts=np.full(4, size),
            declared=declared,
        )
        if one.facts.name == name
        else one
        for one in run.inventory.sites
    )
    return changed(replace(run, inventory=replace(run.inventory, sites=sites)), misplace)


def test_no_more_misplaced_samples_than_mistakes_are_no_reason_to_doubt_proportions(run):
    assert remarks(with_bags(run, 0.1, size=1000)) == []
    assert remarks(with_bags(run, 0.11, size=100)) == []  # less than three standard errors more
    assert remarks(with_bags(run, 0.04, size=1000, mistakes=0.0)) == []  # rounded proportions


def test_bags_with_other_proportions_than_declared_are_named(run):
    (said,) = remarks(with_bags(run, 0.25, size=1000))
    assert said.startswith("Declared perhaps wrongly (proportions: more samples would have to be")
    assert "mistakes in the test, 10%" in said
    assert said.endswith("exact site 00 (25%). Check them.")


def test_small_bags_may_differ_from_a_population_by_chance(run):
    (said,) = remarks(with_bags(run, 0.2, size=10, mistakes=0.05))
    assert said.startswith("Bags that seem not to have the declared proportions")
    assert "exact site 00 (20%)" in said
    assert said.endswith("may differ as much by chance.")


def test_where_sizes_are_not_told_chance_is_not_excluded(run):
    one = with_bags(run, 0.25, size=1000)
    sites = tuple(replace(site, counts=None) for site in one.inventory.sites)
    (said,) = remarks(replace(one, inventory=replace(one.inventory, sites=sites)))
    assert said.endswith("may differ as much by chance.")


def test_without_a_test_nobody_knows_the_models_mistakes(run):
    def untested(record):
        del record["test"]

    assert remarks(changed(with_bags(run, 0.3, size=1000), untested)) == []
