"""The event files that --tensorboard writes, read back with TensorBoard's own reader."""

import math
import sys
from contextlib import nullcontext

import pytest
import typer
from commands import copied

from potluck import console
from potluck.cli import COMMANDS
from potluck.errors import PotluckError
from potluck.study.runfolder import RunFolder
from potluck.study.tensorboard import logged, scalars

STUDY = """
rounds = 4
name = "logged"
[run]
device = "cpu"
[simulation]
dataset = "digits"
[[simulation.sites]]
name = "north"
samples = 30
view = { kind = "exact" }
[[simulation.sites]]
name = "south/2"
samples = 30
view = { kind = "candidates", rho = 0.3 }
"""


def read(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_a_run_and_its_resumption_log_every_number_of_the_history(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)

    def stop_in_the_third(record):
        if record["round"] == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(console, "progress", lambda *_, **__: nullcontext(stop_in_the_third))
        with pytest.raises(typer.Exit):
            COMMANDS["Train"]["run"](
                tmp_path / "study.toml", out=tmp_path / "run", tensorboard=tmp_path / "logs"
            )
    COMMANDS["Train"]["resume"](tmp_path / "run", tensorboard=tmp_path / "logs")

    found, history = read(tmp_path / "logs" / "run"), RunFolder(tmp_path / "run").history()
    names = [str(k) for k in range(10)]
    for number, record in enumerate(history, 1):
        for tag, value in scalars(record, names).items():
            step, logged_value = found[tag][number - 1]
            assert step == number
            assert logged_value == pytest.approx(value, rel=1e-6), tag
    assert len(found["model/accuracy"]) == 4
    assert {"loss by site/north", "loss by site/south/2", "accuracy by class/7"} <= set(found)


def test_numbers_that_are_missing_are_left_out():
    record = {"round": 1, "lr": 0.1, "cohort": [], "sat_out": [], "sites": {}}
    assert scalars(record, ["a"]) == {"run/learning rate": 0.1}
    record["test"] = {"accuracy": 0.5, "loss": 1.0, "per_class": [math.nan, None]}
    assert "accuracy by class/a" not in scalars(record, ["a", "b"])


def test_without_a_directory_nothing_is_logged():
    def on_round(_):
        return None

    with logged(on_round, None, []) as same:
        assert same is on_round


def test_a_missing_package_is_named_before_training(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    missing = pytest.raises(PotluckError, match=r"pip install 'potluck\[tensorboard\]'")
    with missing, logged(lambda _: None, tmp_path, []):
        pass


def test_the_option_works_as_a_command(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "study.toml").write_text(STUDY)
    options = ["--out", "runs/one", "--tensorboard", "logs"]
    ran = copied("run", "study.toml", "-o", "rounds=1", *options, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "model/accuracy" in read(tmp_path / "logs" / "one")
