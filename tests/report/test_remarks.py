"""What a report points at, and that it stays quiet otherwise."""

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_runs import synthetic_run

from potluck.report.remarks import remarks
from potluck.report.run import read_run
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
