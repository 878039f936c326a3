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
from potluck.study.papers import read_paper
from potluck.study.reproduction import (
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


def planned(papers: Path, seeds: int = 2, *overrides: str):
    paper = read_paper(papers, "made-up")
    return plan(paper, paper.experiment("table-1"), "small", range(seeds), overrides)


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


def test_results_of_the_source_lie_with_the_source(papers):
    ours, results = default_folders(None, None)
    assert (ours / "fedul" / "reproduce.toml").exists()
    assert results.parts[-3:] == ("benchmarks", "results", "papers")
    assert default_folders(papers, None)[1] == Path("results")


def test_the_command_from_start_to_page(papers, tmp_path, monkeypatch, capsys):
    words = ["reproduce", "--papers", "papers", "made-up", "table-1", "-o", "run.device=cpu"]
    ran = subprocess.run(
        [sys.executable, "-m", "potluck.cli", *words],
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
        monkeypatch.setattr(sys, "argv", f"potluck reproduce --papers papers {words}".split())
        with pytest.raises(SystemExit) as leaving:
            main()
        assert not leaving.value.code
    listed = capsys.readouterr().out
    assert "made-up: Made up (Nobody 2020)" in listed
    assert re.search(r"table-1 +4 runs +digits +Table 1: learning rates", listed)
    page = (tmp_path / "page.md").read_text()
    assert "| made-up table-1 | reproduced | 1 of 1 | 2 of 2 |" in page
    assert "### Table 1: learning rates" in page


def test_seeds_that_were_trained_apart_become_one_table_without_training(papers, tmp_path):
    def command(*words):
        ran = subprocess.run(
            [sys.executable, "-m", "potluck.cli", "reproduce", "--papers", "papers", *words],
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
        command(*table, "--seeds", "1", "--first-seed", str(seed), "--results", folder.name)
        stored = read_results(folder / name)
        assert [run.seed for run in stored.runs] == [seed, seed]
        apart += stored.runs
        shutil.copy(folder / name, tmp_path / "all" / f"{folder.name}.json")

    shutil.rmtree(tmp_path / "runs")
    said = command(*table, "--seeds", "2", "--results", "all")
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
