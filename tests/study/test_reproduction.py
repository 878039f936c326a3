"""Running a paper's table: once, stopped, resumed, with more seeds, and as a command."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from potluck.cli import main
from potluck.errors import PotluckError
from potluck.report.reproduction import measured
from potluck.study import limit as limits
from potluck.study.limit import Limit
from potluck.study.papers import read_paper
from potluck.study.reproduction import (
    all_results,
    default_folders,
    plan,
    progress_of,
    read_results,
    reproduce,
    with_earlier_seeds,
)

STUDY = """\
name = "tiny"
rounds = 2
model = "linear"
local.epochs = 5

[simulation]
dataset = "digits"

[[simulation.sites]]
name = "clinic"
samples = 40
view = { kind = "exact" }

[scales.small]
rounds = 1
"""

PAPER = """\
title = "Made up (Nobody 2020)"
seeds = 2

[[experiments]]
name = "table-1"
title = "Table 1: learning rates"
metric = "error"
columns = [{ name = "few", values = { n = 50 } }]
overrides = ["simulation.sites.0.samples=$n"]
orderings = [{ rows = ["fast", "slow"] }]

[[experiments.rows]]
name = "fast"
study = "study.toml"
overrides = ["local.lr=0.5"]
paper = [20.0]
goals = { few = 100.0 }

[[experiments.rows]]
name = "slow"
study = "study.toml"
overrides = ["local.lr=1e-6"]
"""


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers" / "made-up"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(STUDY)
    (folder / "reproduce.toml").write_text(PAPER)
    return folder.parent


def planned(papers: Path, seeds: int = 2, *overrides: str, only: tuple[str, ...] = ()):
    paper = read_paper(papers, "made-up")
    return plan(paper, paper.experiment("table-1"), "small", range(seeds), overrides, only=only)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time in seconds, as a limit sees it."""
    now = [0.0]
    monkeypatch.setattr(limits, "monotonic", lambda: now[0])
    return now


def command(monkeypatch, words: str) -> int:
    """Give a command in this process, which is quicker than a new one."""
    monkeypatch.setattr(sys, "argv", ["potluck", "reproduce", "--papers", "papers", *words.split()])
    with pytest.raises(SystemExit) as leaving:
        main()
    return leaving.value.code or 0


class StoppedError(Exception):
    """As if somebody had pulled the plug."""


def test_a_stopped_table_goes_on_without_repeating_cells(papers, tmp_path):
    results, runs, seen = tmp_path / "results", tmp_path / "runs", []

    def stop_in_the_third(study, record):
        seen.append(study.hash())
        if len(seen) == 3:
            raise StoppedError

    whole = planned(papers)
    with pytest.raises(StoppedError):
        reproduce(whole, results, runs, measured, stop_in_the_third)
    kept = read_results(whole.file(results))
    assert [(run.row, run.column, run.seed) for run in kept.runs] == [
        ("fast", "few", 0),
        ("slow", "few", 0),
    ]
    assert progress_of(whole, results, runs)[:3] == (4, 2, 4)
    shutil.rmtree(runs)  # another machine: only the results are there

    again = []
    reproduce(whole, results, runs, measured, lambda study, record: again.append(study.hash()))
    assert not set(seen[:2]) & set(again)
    assert len(again) == len(whole.runs) - 2
    stored = read_results(whole.file(results))
    assert stored.runs[:2] == kept.runs
    assert len(stored.runs) == len(whole.runs)
    assert len(stored.sessions) == 1
    assert not list(runs.glob("*/checkpoints"))


def test_fewer_seeds_later_lose_nothing_and_other_overrides_are_refused(papers, tmp_path):
    results, runs = tmp_path / "results", tmp_path / "runs"
    both = planned(papers)
    reproduce(both, results, runs, measured, lambda *_: None)
    before = both.file(results).read_text()

    one = with_earlier_seeds(planned(papers, 1), results)
    reproduce(one, results, runs, measured, lambda *_: pytest.fail("trained again"))
    assert sorted(json.loads(before)["runs"], key=str) == sorted(
        json.loads(both.file(results).read_text())["runs"], key=str
    )
    with_earlier_seeds(planned(papers, 2, "run.device=cpu"), results)
    with pytest.raises(PotluckError, match=r"holds results with no overrides.*another --results"):
        with_earlier_seeds(planned(papers, 2, "local.batch_size=8"), results)


def test_what_does_not_fit_in_the_time_left_waits_but_not_what_never_fits(clock):
    limit = Limit(10)
    assert limit.allows(600)
    clock[0] = 300
    assert limit.allows(300)
    assert not limit.allows(301)
    assert limit.allows(601)  # longer than all of it: to be done in parts
    clock[0] = 600
    assert limit.reached
    assert not limit.allows(0)
    assert Limit().allows(1e9)


def test_a_run_stops_in_time_after_a_checkpoint_and_goes_on_from_there(papers, tmp_path, clock):
    results, runs, seen = tmp_path / "results", tmp_path / "runs", []
    whole = planned(papers, 1, "rounds=5", "run.checkpoint_every=2")

    def a_minute(study, record):
        clock[0] += 60
        seen.append((study.local.lr, record["round"]))

    limit = Limit(5.5)
    # After round 4, the next checkpoint would be there after 6 minutes.
    assert reproduce(whole, results, runs, measured, a_minute, limit) == []
    assert limit.reached
    assert seen == [(0.5, 1), (0.5, 2), (0.5, 3), (0.5, 4)]
    assert not whole.file(results).exists()
    assert progress_of(whole, results, runs) == (2, 0, 10, 4)

    seen.clear()
    reproduce(whole, results, runs, measured, a_minute, Limit(60))
    assert seen == [(0.5, 5), *((1e-6, number) for number in range(1, 6))]
    assert [run.rounds for run in read_results(whole.file(results)).runs] == [5, 5]


def test_a_limit_that_comes_between_checkpoints_is_kept_too(papers, tmp_path, clock):
    seen = []

    def slower_and_slower(study, record):
        seen.append(record["round"])
        clock[0] += 10 ** record["round"]

    whole = planned(papers, 1, "rounds=5", "run.checkpoint_every=2")
    limit = Limit(5)
    reproduce(whole, tmp_path / "results", tmp_path / "runs", measured, slower_and_slower, limit)
    assert seen == [1, 2, 3]
    assert progress_of(whole, tmp_path / "results", tmp_path / "runs")[2:] == (10, 3)


def test_runs_that_take_too_long_by_earlier_ones_are_passed_over(papers, tmp_path, clock):
    results, runs = tmp_path / "results", tmp_path / "runs"
    one = planned(papers, 1)
    reproduce(one, results, runs, measured, lambda *_: None)
    stored = json.loads(one.file(results).read_text())
    for run in stored["runs"]:
        run["seconds"] = 400.0 if run["row"] == "fast" else 100.0
    one.file(results).write_text(json.dumps(stored))

    both, seen = planned(papers), []
    limit = Limit(10)
    clock[0] = 300
    reproduce(both, results, runs, measured, lambda study, _: seen.append(study.local.lr), limit)
    assert seen == [1e-6]
    assert not limit.reached
    assert progress_of(both, results, runs)[:2] == (4, 3)


def test_chosen_cells_are_trained_and_others_kept(papers, tmp_path):
    results, runs, seen = tmp_path / "results", tmp_path / "runs", []
    for name in ("slow", "fast"):
        some = planned(papers, 1, only=(name, "few"))
        assert progress_of(some, results, runs)[:2] == (1, 0)
        reproduce(some, results, runs, measured, lambda study, _: seen.append(study.local.lr))
    assert seen == [1e-6, 0.5]
    assert [run.row for run in read_results(some.file(results)).runs] == ["fast", "slow"]
    with pytest.raises(PotluckError, match=r'"table-1": unknown row or column "fst"; did you mean'):
        planned(papers, only=("fst",))


def test_results_of_the_source_lie_with_the_source(papers):
    ours, results = default_folders(None, None)
    assert (ours / "fedul" / "reproduce.toml").exists()
    assert results.parts[-3:] == ("benchmarks", "results", "papers")
    assert default_folders(papers, None)[1] == Path("results")


def test_stored_results_are_those_of_todays_studies():
    # An option that a method gained since, say, would make its runs unknown, and lose them.
    papers, results = default_folders(None, None)
    for path, stored in all_results(results).items():
        paper = read_paper(papers, stored.paper)
        seeds = sorted({run.seed for run in stored.runs})
        experiment = paper.experiment(stored.experiment)
        today = plan(paper, experiment, stored.scale, seeds, stored.overrides)
        keys = {(*run.place, run.seed): run.key for run in today.runs}
        for run in stored.runs:
            assert keys[run.row, run.column, run.seed] == run.study, (path.name, run.row)


def test_the_command_from_start_to_page(papers, tmp_path, monkeypatch, capsys):
    words = ["reproduce", "--papers", "papers", "made-up", "table-1", "-o", "run.device=cpu"]
    ran = subprocess.run(
        [sys.executable, "-m", "potluck", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "made-up table-1: 4 runs, 0 of them done" in ran.stdout
    assert "fast better than slow: holds in 1 of 1 (2 of 2 by seed)" in ran.stdout
    assert "reproduced: results/made-up-table-1-full.json" in ran.stdout
    stored = json.loads((tmp_path / "results" / "made-up-table-1-full.json").read_text())
    assert {run["seed"] for run in stored["runs"]} == {0, 1}
    assert all(run["rounds"] == 2 and run["seconds"] > 0 for run in stored["runs"])
    (session,) = stored["sessions"]
    assert session["command"].startswith("potluck reproduce --papers papers made-up table-1")
    assert all(session[key] for key in ("commit", "hardware", "python", "versions"))

    monkeypatch.chdir(tmp_path)
    for words in ("--page page.md", ""):
        assert command(monkeypatch, words) == 0
    listed = capsys.readouterr().out
    assert "made-up: Made up (Nobody 2020)" in listed
    assert re.search(r"table-1 +4 runs +digits +Table 1: learning rates", listed)
    page = (tmp_path / "page.md").read_text()
    assert "| made-up table-1 | reproduced | 1 of 1 | 2 of 2 |" in page
    assert "### Table 1: learning rates" in page


def test_seeds_that_were_trained_apart_become_one_table_without_training(papers, tmp_path):
    def trained(*words):
        ran = subprocess.run(
            [sys.executable, "-m", "potluck", "reproduce", "--papers", "papers", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    table = ["made-up", "table-1", "--scale", "small", "-o", "run.device=cpu"]
    name = "made-up-table-1-small.json"
    (tmp_path / "all").mkdir()
    apart = []
    for seed in (0, 1):
        folder = tmp_path / f"seed-{seed}"
        trained(*table, "--seeds", "1", "--first-seed", str(seed), "--results", folder.name)
        stored = read_results(folder / name)
        assert [run.seed for run in stored.runs] == [seed, seed]
        apart += stored.runs
        shutil.copy(folder / name, tmp_path / "all" / f"{folder.name}.json")

    shutil.rmtree(tmp_path / "runs")
    said = trained(*table, "--seeds", "2", "--results", "all")
    assert "4 runs, 4 of them done" in said
    assert not (tmp_path / "runs").exists()
    for copy in (tmp_path / "all").glob("seed-*.json"):
        copy.unlink()
    whole = read_results(tmp_path / "all" / name)
    assert [(run.seed, run.study, run.values) for run in whole.runs] == [
        (run.seed, run.study, run.values) for run in apart
    ]
    commands = [whole.sessions[run.session].command for run in whole.runs]
    assert ["--first-seed 1" in words for words in commands] == [False, False, True, True]


def test_many_papers_in_one_go_and_what_had_no_time(papers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(papers / "made-up", papers / "urgent")
    description = papers / "urgent" / "reproduce.toml"
    description.write_text("order = -1\n" + PAPER.replace("1e-6", "1e-7"))
    small = "--scale small --seeds 1 -o run.device=cpu"

    assert command(monkeypatch, f"made-up table-1 urgent {small} --only slow") == 0
    said = capsys.readouterr().out
    assert said.index("made-up table-1: 1 runs, 0") < said.index("urgent table-1: 1 runs, 0")
    assert "left:" not in said

    # Nothing but a limit: all of them, in their order; and what is known becomes a table.
    (tmp_path / "results" / "made-up-table-1-small.json").rename(tmp_path / "results" / "copy.json")
    assert command(monkeypatch, f"{small} --minutes 0") == 0
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("left: ")]
    assert lines == [
        f"left: {name} table-1: 1 of 2 runs, 1 rounds" for name in ("urgent", "made-up")
    ]
    assert said.endswith("Go on with the same command.\n")
    (run,) = read_results(tmp_path / "results" / "made-up-table-1-small.json").runs
    assert run.row == "slow"

    assert command(monkeypatch, f"{small} --minutes 60") == 0
    said = capsys.readouterr().out
    # What they share was trained for the first.
    assert said.index("urgent table-1: 2 runs, 1") < said.index("made-up table-1: 2 runs, 2")
    assert "left:" not in said


def test_experiments_without_data_are_left_out_only_if_not_asked_for(
    papers, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(papers / "made-up", papers / "far-away")
    there = '"digits"', '"mnist"\npath = "nowhere"'
    (papers / "far-away" / "study.toml").write_text(STUDY.replace(*there))
    limited = "--seeds 1 --minutes 0 -o run.device=cpu"
    assert command(monkeypatch, limited) == 0
    said = capsys.readouterr().out
    assert "far-away table-1: left out, since its data are not there" in said
    assert "left: made-up table-1: 2 of 2 runs" in said
    assert "left: far-away" not in said
    assert command(monkeypatch, f"made-up far-away {limited}") == 2
    assert 'data set "mnist" is needed in the folder' in capsys.readouterr().err
