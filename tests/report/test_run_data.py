"""A run folder as arrays over sites and rounds."""

import json

import numpy as np
import pytest
from synthetic_runs import study, synthetic_run

from potluck.errors import PotluckError
from potluck.report.run import ABSENT, NOT_CHOSEN, SAT_OUT, TOOK_PART, read_run
from potluck.study.runfolder import RunFolder, hash_of

NUMBERS = {"loss": 1.0, "samples": 4.0, "steps": 1.0, "drift": 0.5}


def run_of(path, *records):
    folder = RunFolder.create(path, study(), hash_of(study()))
    for record in records:
        folder.append(record)
    return read_run(path)


def record(number, cohort, sites, sat_out=(), **more):
    return {
        "round": number,
        "lr": 0.1,
        "cohort": list(cohort),
        "sat_out": list(sat_out),
        "sites": dict.fromkeys(sites, NUMBERS),
        **more,
    }


def test_each_site_took_part_sat_out_was_absent_or_was_not_chosen(tmp_path):
    run = run_of(tmp_path / "r", record(1, "ab", "a", sat_out="b"), record(2, "bc", "c"))
    assert run.sites == ("a", "b", "c")
    assert run.participation.tolist() == [
        [TOOK_PART, NOT_CHOSEN],
        [SAT_OUT, ABSENT],
        [NOT_CHOSEN, TOOK_PART],
    ]


def test_tables_have_a_row_for_everyone_and_the_server_is_no_site(tmp_path):
    run = run_of(tmp_path / "r", record(1, "a", ["a", "server"]), record(2, "b", ["b", "server"]))
    assert run.everyone == ("a", "b", "server")
    assert run.sites == ("a", "b")
    nan = np.nan
    np.testing.assert_array_equal(run.metrics["drift"], [[0.5, nan], [nan, 0.5], [0.5, 0.5]])


def test_numbers_that_were_not_finite_are_missing(tmp_path):
    one = record(1, "a", "a")
    one["sites"] = {"a": {"loss": float("inf")}}
    assert np.isnan(run_of(tmp_path / "r", one).metrics["loss"]).all()


def test_rounds_without_evaluation_are_left_out_of_the_curve(tmp_path):
    test = {"accuracy": 0.5, "loss": 1.0, "per_class": [0.5]}
    run = run_of(tmp_path / "r", record(1, "a", "a"), record(2, "a", "a", test=test))
    rounds, accuracy = run.tested("accuracy")
    assert (rounds.tolist(), accuracy.tolist()) == ([2], [0.5])


def test_a_run_without_rounds_has_nothing_to_see(tmp_path):
    with pytest.raises(PotluckError, match=r"no round.*potluck resume"):
        run_of(tmp_path / "r")


def test_sites_of_a_kind_stand_together(tmp_path):
    synthetic_run(tmp_path / "r", sites=7)
    run = read_run(tmp_path / "r")
    kinds = [run.kind(site) for site in run.sites]
    assert kinds == ["exact", "exact", "coarse", "coarse", "noisy", "candidates", "unlabeled"]


def test_a_damaged_inventory_is_refused(tmp_path):
    synthetic_run(tmp_path / "r")
    path = tmp_path / "r" / "sites.json"
    facts = json.loads(path.read_text())
    facts["sites"][0]["samples"] = 1
    path.write_text(json.dumps(facts))
    with pytest.raises(PotluckError, match=r"sites\.json: changed since it was written"):
        read_run(tmp_path / "r")
