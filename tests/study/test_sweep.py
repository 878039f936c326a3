"""Many studies in one go: which, where, and what happens when some are stopped or fail."""

import json
from pathlib import Path

import pytest

from potluck.errors import PotluckError
from potluck.study.runfolder import RunFolder
from potluck.study.sweep import (
    Sweep,
    is_sweep_file,
    parse_values,
    read_sweep,
    rounds_done,
    run_folder,
    run_studies,
)

STUDY = """\
name = "digits, small"
rounds = 3
model = { name = "mlp", hidden = [8] }

[simulation]
dataset = "digits"

[[simulation.sites]]
name = "clinic"
count = 2
samples = 40
view = { kind = "candidates", rho = 0.3 }

[scales.tiny]
rounds = 1
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def told(seen):
    """A function for `run_studies` that notes whose rounds were run."""

    def on_round(study, record):
        seen.append((study.method["name"], study.seed, record["round"]))

    return on_round


def timeless(path: Path) -> list[dict]:
    return [{**record, "seconds": None} for record in RunFolder(path).history()]


# Which studies


def test_a_sweep_is_every_combination(study):
    sweep = Sweep(
        files=(study,),
        methods=("likelihood", {"name": "candidate-targets", "rule": "renormalise"}),
        grid={"local.lr": (0.1, 0.01), "simulation.sites.0.view.rho": (0.2, 0.5)},
        seeds=(0, 4),
        overrides=("rounds=2",),
    )
    studies = sweep.studies()
    assert len({one.hash() for one in studies}) == len(studies) == 2 * 2 * 2 * 2
    assert {one.rounds for one in studies} == {2}
    assert {one.seed for one in studies} == {0, 4}
    assert {one.method.get("rule") for one in studies} == {None, "renormalise"}
    assert {one.simulation.sites[0].view.rho for one in studies} == {0.2, 0.5}


def test_studies_that_come_out_the_same_are_listed_once(study):
    assert len(Sweep((study, study), seeds=(1, 1)).studies()) == 1


def test_a_scale_applies_before_everything_else(study):
    assert Sweep((study,), scale="tiny").studies()[0].rounds == 1
    assert Sweep((study,), scale="tiny", grid={"rounds": (5,)}).studies()[0].rounds == 5


def test_a_mistake_names_the_setting(study):
    sweep = Sweep((study,), grid={"local.lr": (0.1, -1)})
    with pytest.raises(PotluckError, match=r"local\.lr=-1 seed=0: .*local\.lr"):
        sweep.studies()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local.lr=0.1,0.01", ("local.lr", (0.1, 0.01))),
        ("federated=fedavg, scaffold", ("federated", ("fedavg", "scaffold"))),
        ("model.hidden=[8],[16,8]", ("model.hidden", ([8], [16, 8]))),
        ("cohort=2", ("cohort", (2,))),
    ],
)
def test_values_on_the_command_line(text, expected):
    assert parse_values(text) == expected


@pytest.mark.parametrize("text", ["local.lr", "=3", "local.lr="])
def test_a_grid_without_key_or_values_is_refused(text):
    with pytest.raises(PotluckError, match="write KEY=VALUE,VALUE"):
        parse_values(text)


# Sweep files


def test_a_sweep_file_reads_aloud(study):
    path = study.with_name("sweep.toml")
    path.write_text(
        'studies = ["study.toml"]\nseeds = 2\nmethods = ["likelihood"]\noverrides = ["rounds=1"]\n'
        '[grid]\nlocal.lr = [0.1, 0.01]\n"local.epochs" = [1, 2]\n'
    )
    assert is_sweep_file(path)
    assert not is_sweep_file(study)
    sweep = read_sweep(path)
    assert sweep.seeds == (0, 1)
    assert sweep.grid == {"local.lr": (0.1, 0.01), "local.epochs": (1, 2)}
    assert len(sweep.studies()) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('studies = ["study.toml"]\nsead = 2', "sead"),
        ("studies = []", "studies"),
        ('studies = ["study.toml"]\n[grid]\nlocal.lr = 0.1', r"grid\.local\.lr must be a list"),
        ('studies = ["study.toml"]\nseeds = 0', "seeds"),
    ],
)
def test_mistakes_in_a_sweep_file_are_explained(study, text, message):
    path = study.with_name("sweep.toml")
    path.write_text(text)
    with pytest.raises(PotluckError, match=rf"sweep\.toml.*{message}"):
        read_sweep(path)


# Running


def test_finished_runs_are_skipped_and_new_ones_added(study, tmp_path):
    out, seen = tmp_path / "out", []
    one = Sweep((study,), overrides=("rounds=1",), seeds=(0,)).studies()
    two = Sweep((study,), overrides=("rounds=1",), seeds=(0, 1)).studies()
    (first,) = run_studies(one, out, told(seen))
    assert first.path == run_folder(one[0], out)
    assert first.path.name.startswith("digits-small-likelihood-0-")
    assert first.path.name.endswith(one[0].hash()[:8])
    assert sum(rounds_done(study, out) for study in two) == 1
    assert len(run_studies(two, out, told(seen))) == 2
    assert seen == [("likelihood", 0, 1), ("likelihood", 1, 1)]


def test_a_stopped_run_goes_on_and_ends_with_the_same_bytes(study, tmp_path):
    studies = Sweep((study,)).studies()

    def stop(study, record):
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_studies(studies, tmp_path / "stopped", stop)
    seen = []
    (stopped,) = run_studies(studies, tmp_path / "stopped", told(seen))
    assert [number for _, _, number in seen] == [3]
    (whole,) = run_studies(studies, tmp_path / "whole", told([]))
    for name in ("model", "sites", "evaluation"):
        file = f"{name}.safetensors"
        assert (stopped.path / file).read_bytes() == (whole.path / file).read_bytes()
    assert json.dumps(timeless(stopped.path)) == json.dumps(timeless(whole.path))


def test_a_run_that_fails_does_not_stop_the_others(study, tmp_path):
    grid = {"local.lr": (1e30, 0.1)}
    failed, fine = run_studies(Sweep((study,), grid=grid).studies(), tmp_path / "o", told([]))
    assert "training diverged" in failed.error
    assert fine.error is None
    assert RunFolder(fine.path).finished


def test_a_mistake_in_the_last_setting_comes_to_light_before_training(study, tmp_path):
    grid = {"cohort": (1, 9)}
    seen = []
    with pytest.raises(PotluckError, match="digits, small, method likelihood: cohort is 9"):
        run_studies(Sweep((study,), grid=grid).studies(), tmp_path / "out", told(seen))
    assert seen == []
