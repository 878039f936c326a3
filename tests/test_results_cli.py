"""The commands that show and pass on what came of runs, from start to end."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import copied
from PIL import Image

from potluck.cli import main

STUDY = """\
name = "digits, small"
rounds = 2
model = { name = "mlp", hidden = [8] }

[simulation]
dataset = "digits"

[[simulation.sites]]
name = "clinic"
samples = 60
view = { kind = "exact" }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over two learning rates with two seeds."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "study.toml").write_text(STUDY)
    command = "sweep study.toml -g local.lr=0.1,0.5 --seeds 2 -o rounds=1 --out swept"
    swept = copied(*command.split(), cwd=folder)
    assert swept.returncode == 0, swept.stderr
    assert swept.stderr == ""
    (folder / "told.txt").write_text(swept.stdout)
    return folder


def one_run(place: Path) -> Path:
    return next(path for path in sorted((place / "swept").iterdir()) if "small" in path.name)


def test_a_sweep_ends_with_its_comparison(place):
    told = (place / "told.txt").read_text()
    assert "4 runs of 4 rounds in all, 0 of them done" in told
    assert "mean ± sd over 2 seeds" in told
    assert (place / "swept" / "comparison.html").exists()
    assert len(list((place / "swept").glob("digits-small-likelihood-*"))) == 4


def test_compare_prints_and_writes(place):
    ran = copied("compare", "swept", "--test", "wilcoxon", "--out", "table", cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert "Wilcoxon signed-rank test" in ran.stdout
    assert (place / "table" / "comparison.tex").read_text().count(r"\textbf") == 1


def test_report_writes_one_page_and_figures(place):
    ran = copied("report", one_run(place), "--svg", cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert (one_run(place) / "report.html").exists()
    assert (one_run(place) / "figures" / "progress.svg").exists()


def test_export_writes_a_model(place):
    ran = copied("export", one_run(place), "--format", "pt2", "--out", "model.pt2", cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert "model: model.pt2" in ran.stdout


def test_predictions_of_images_name_their_files(place, monkeypatch):
    (place / "images" / "ward").mkdir(parents=True)
    for name in ("b.png", "ward/a.png"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "images" / name)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["potluck", "predict", str(one_run(place)), "images"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    with (place / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == ["b.png", "ward/a.png"]
    assert list(rows[0])[:2] == ["file", "prediction"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("report nowhere", "no such folder"),
        ("compare swept --metric speed", 'unknown metric "speed"'),
        ("sweep study.toml -g local.lr --out o", "write KEY=VALUE,VALUE"),
    ],
)
def test_mistakes_are_one_sentence(place, monkeypatch, capsys, command, told):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["potluck", *command.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err
