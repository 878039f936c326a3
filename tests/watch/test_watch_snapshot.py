"""What the live page is told about a run folder."""

import os
import time

import pytest
from watched_runs import record, recorded, study

from potluck.study.build import load_federation
from potluck.study.inventory import write_inventory
from potluck.study.presence import Presence, write_presence
from potluck.study.stocktaking import take_inventory
from potluck.watch.snapshot import Watched


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path / "run", 3, 4, 10)


def test_progress_and_time_left_follow_the_latest_rounds(folder):
    state = Watched(folder.path).snapshot()
    assert state["problem"] is None
    assert (state["done"], state["study"]["rounds"]) == (4, 10)
    assert state["elapsed"] == pytest.approx(4 * 0.5)
    assert state["left"] == pytest.approx(6 * 0.5)
    assert state["state"] == "running"


def test_before_the_first_round_a_run_is_starting(tmp_path):
    state = Watched(recorded(tmp_path / "run", 3, 0, 10).path).snapshot()
    assert state["state"] == "starting"
    assert state["left"] is None
    assert state["sites"] == []


def test_a_run_with_its_model_is_finished(folder):
    (folder.path / "model.json").write_text("{}")
    assert Watched(folder.path).snapshot()["state"] == "finished"


def test_a_run_without_its_model_after_the_last_round_is_finishing(folder):
    for number in range(5, 11):
        folder.append(record(number, ["clinic 0", "clinic 1"]))
    state = Watched(folder.path).snapshot()
    assert (state["state"], state["left"]) == ("finishing", 0)


def test_a_run_that_has_been_silent_for_long_is_quiet(folder):
    before = time.time() - 300
    os.utime(folder.path / "history.jsonl", (before, before))
    state = Watched(folder.path).snapshot()
    assert state["state"] == "quiet"
    assert state["silent"] == pytest.approx(300, abs=30)


def test_sites_of_a_run_on_one_machine_are_present(folder):
    sites = Watched(folder.path).snapshot()["sites"]
    assert [site["name"] for site in sites] == ["clinic 0", "clinic 1", "clinic 2"]
    assert all(site["present"] and not site["server"] for site in sites)


def test_presence_is_shown_also_of_sites_that_never_took_part(folder):
    away = Presence(False, "2026-01-01T10:00:00+00:00", "never connected")
    write_presence(folder.path, {"clinic 9": away, "clinic 1": Presence.now(True)})
    sites = {site["name"]: site for site in Watched(folder.path).snapshot()["sites"]}
    assert sites["clinic 9"] == {
        "name": "clinic 9",
        "server": False,
        "labels": "",
        "present": False,
        "since": "2026-01-01T10:00:00+00:00",
        "reason": "never connected",
    }
    assert sites["clinic 1"]["present"]


def test_a_site_that_failed_in_the_latest_round_is_absent_until_it_answers(folder):
    names = ["clinic 0", "clinic 1", "clinic 2"]
    folder.append({**record(5, names), "failed": {"clinic 2": "is not connected"}})
    sites = {site["name"]: site for site in Watched(folder.path).snapshot()["sites"]}
    assert (sites["clinic 2"]["present"], sites["clinic 2"]["reason"]) == (
        False,
        "is not connected",
    )
    assert sites["clinic 1"]["present"]
    folder.append({**record(6, names), "failed": {}})
    assert all(site["present"] for site in Watched(folder.path).snapshot()["sites"])


def test_presence_counts_more_than_the_latest_round(folder):
    folder.append({**record(5, ["clinic 1"]), "failed": {"clinic 1": "is not connected"}})
    write_presence(folder.path, {"clinic 1": Presence.now(True)})
    sites = {site["name"]: site for site in Watched(folder.path).snapshot()["sites"]}
    assert sites["clinic 1"]["present"]


def test_the_servers_own_training_is_no_site(folder):
    folder.append({**record(5, ["clinic 0"]), "sites": {"server": {"loss": 1.0}}})
    sites = Watched(folder.path).snapshot()["sites"]
    assert [site["name"] for site in sites if site["server"]] == ["server"]


def test_sites_are_listed_with_what_they_brought_before_the_first_round(tmp_path):
    folder = recorded(tmp_path / "run", 3, 0, 10)
    write_inventory(folder.path, take_inventory(load_federation(study())[0]))
    sites = Watched(folder.path).snapshot()["sites"]
    assert [(site["name"], site["labels"]) for site in sites] == [
        ("north", "exact; 40 samples"),
        ("south", "candidates; 40 samples"),
        ("<i>archive</i>", "unlabeled; 40 samples"),
    ]


def test_a_half_written_line_does_not_count_yet(folder):
    watched = Watched(folder.path)
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"round": 5, ')
    assert watched.snapshot()["done"] == 4


def test_a_resumed_run_that_goes_back_is_sent_in_full(folder):
    watched = Watched(folder.path)
    assert watched.snapshot(after=4)["records"] == []
    folder.truncate_history(2)
    state = watched.snapshot(after=4)
    assert (state["done"], state["after"], state["records"]) == (2, 2, [])


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("history.jsonl", "no json\n", "line 1 is not a round's record"),
        ("presence.json", "[]", "the coordinator writes it anew"),
        ("study.json", "{}", "does not say its format"),
    ],
)
def test_a_damaged_file_is_a_problem_that_the_page_can_show(folder, file, text, problem):
    (folder.path / file).write_text(text)
    assert problem in Watched(folder.path).snapshot()["problem"]
