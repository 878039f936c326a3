"""The command line as users meet it: each command once in a process of its own, then in ours."""

import csv
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from commands import copied, process, start
from PIL import Image

import potluck as potluck_library
from potluck.cli import main

Potluck = Callable[..., str]

ROUNDS = 30
SHORTER = ("-o", f"rounds={ROUNDS}", "-o", "run.checkpoint_every=2")

DIGITS = """\
name = "digits, small"
rounds = 2
model = { name = "mlp", hidden = [8] }

[simulation]
dataset = "digits"

[[simulation.sites]]
name = "clinic"
samples = 60
view = { kind = "exact" }

[scales.smoke]
rounds = 1
local.batch_size = 64
"""


@pytest.fixture
def potluck(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Potluck:
    """Runs a command in this process; gives what it printed, standard error last."""

    def call(*command: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["potluck", *map(str, command)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as stopped:
            main()
        told = capsys.readouterr()
        assert (stopped.value.code or 0) == code, told.err
        return told.out + told.err

    return call


@pytest.fixture(scope="module")
def irises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter with tables, run to its end."""
    place = tmp_path_factory.mktemp("irises")
    assert process("new", "starter", "--kind", "tables", cwd=place).returncode == 0
    ran = process("run", "starter/study.toml", *SHORTER, "--out", "run", cwd=place)
    assert ran.returncode == 0, ran.stderr
    (place / "printed.txt").write_text(ran.stdout)
    return place


@pytest.fixture(scope="module")
def killed(irises: Path) -> Path:
    """The same run, killed with SIGKILL at a random moment in the middle."""
    folder = irises / "killed"
    victim = start("run", "starter/study.toml", *SHORTER, "--out", folder, cwd=irises)
    moment = random.SystemRandom().randint(5, ROUNDS // 2)
    deadline = time.monotonic() + 600
    while _rounds(folder) < moment:
        assert victim.process.is_alive(), victim.ended()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    victim.process.kill()
    assert victim.ended().returncode == -signal.SIGKILL
    assert not (folder / "model.json").exists(), "killed too late to prove anything"
    return folder


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    """A copy of the killed run, to go on with."""
    return shutil.copytree(killed, tmp_path / "run")


def _rounds(folder: Path) -> int:
    history = folder / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0


def _history(folder: Path) -> list[dict[str, object]]:
    records = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def _assert_same_run(one: Path, other: Path) -> None:
    name = "model.safetensors"
    assert (one / name).read_bytes() == (other / name).read_bytes()
    assert _history(one) == _history(other)


def _predictions(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- run


def test_a_run_writes_its_study_history_checkpoints_and_model(irises: Path) -> None:
    names = {path.name for path in (irises / "run").iterdir()}
    assert {
        "study.json",
        "history.jsonl",
        "checkpoints",
        "model.safetensors",
        "model.json",
    } <= names
    history = _history(irises / "run")
    assert [record["round"] for record in history] == list(range(1, ROUNDS + 1))
    assert json.loads((irises / "run" / "model.json").read_text())["classes"] == [
        "setosa",
        "versicolor",
        "virginica",
    ]


def test_away_from_a_terminal_a_run_prints_a_few_plain_lines(irises: Path) -> None:
    printed = (irises / "printed.txt").read_text()
    assert "\x1b" not in printed
    assert f"━━━━ {ROUNDS}/{ROUNDS}" not in printed
    after = printed[printed.index("All 3 classes can be separated") :].splitlines()
    assert len(after) == 6
    assert after[1] == "run folder: run"
    assert after[2] == "engine sequential: the run is too short for compiling to pay back."
    assert re.fullmatch(rf"test accuracy after {ROUNDS} rounds: \d+\.\d\d%", after[3])
    assert after[4] == "model and history: run"
    assert "potluck predict run DATA" in after[5]


def test_the_table_of_sites_says_what_each_brings(irises: Path) -> None:
    printed = (irises / "printed.txt").read_text()
    rows = {
        cells[0]: cells[1:]
        for line in printed.splitlines()
        if line.startswith("│")
        for cells in [[cell.strip() for cell in line.strip("│").split("│")]]
    }
    assert rows["herbarium"] == ["exact", "12", "setosa", "all 3 classes"]
    assert rows["field station"] == ["coarse", "38", "blue flag", "2 groups of classes"]
    assert rows["survey"][:2] == ["bags", "60"]


def test_overrides_and_scales_reach_the_stored_study(tmp_path: Path, potluck: Potluck) -> None:
    study = tmp_path / "study.toml"
    study.write_text(DIGITS)
    changes = ["-o", "model.hidden=[4, 4]", "-o", "name=tried out"]
    potluck("run", study, "--scale", "smoke", *changes, "--out", tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "study.json").read_text())["study"]
    assert stored["rounds"] == 1
    assert stored["local"]["batch_size"] == 64
    assert stored["model"] == {"name": "mlp", "hidden": [4, 4], "dropout": 0.0}
    assert stored["name"] == "tried out"
    assert stored["folder"] == str(tmp_path)


def test_the_run_folder_is_named_after_the_study_and_its_hash(
    tmp_path: Path, potluck: Potluck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(DIGITS)
    potluck("run", "study.toml", "-o", "rounds=1")
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"digits-small-[0-9a-f]{8}", folder.name)
    assert "potluck resume runs" in potluck("run", "study.toml", "-o", "rounds=1", code=2)


def test_a_stored_study_runs_again_to_the_same_model(irises: Path, potluck: Potluck) -> None:
    potluck("run", irises / "run" / "study.json", "--out", irises / "again")
    _assert_same_run(irises / "again", irises / "run")


# --- resume


def test_a_killed_run_resumes_to_the_bytes_of_an_undisturbed_one(
    irises: Path, stopped: Path
) -> None:
    ended = copied("resume", stopped, cwd=irises)
    assert ended.returncode == 0, ended.stderr
    _assert_same_run(stopped, irises / "run")


def test_a_damaged_checkpoint_is_refused_and_previous_goes_on(
    irises: Path, stopped: Path, potluck: Potluck
) -> None:
    # Of those that count: the run may have been killed while it wrote another one.
    newest = max((stopped / "checkpoints").glob("*.json")).with_suffix(".safetensors")
    newest.write_bytes(newest.read_bytes()[:-1])
    told = potluck("resume", stopped, code=2)
    assert newest.name in told
    assert f"potluck resume {stopped} --previous" in told
    potluck("resume", stopped, "--previous")
    _assert_same_run(stopped, irises / "run")


def test_an_interrupted_run_says_how_to_go_on(irises: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    endless = ["-o", "rounds=100000", "-o", "run.engine=sequential"]
    command = ["run", "starter/study.toml", *endless, "--out", str(folder)]
    victim = subprocess.Popen(
        [sys.executable, "-m", "potluck", *command],
        cwd=irises,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A job in the background of a shell is deaf to Ctrl-C, and so would be its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while _rounds(folder) < 1 and victim.poll() is None:
            time.sleep(0.01)
        victim.send_signal(signal.SIGINT)
        _, err = victim.communicate(timeout=300)
    finally:
        victim.kill()
    assert victim.returncode == 130
    assert f"Go on: potluck resume {folder}" in err
    assert "Traceback" not in err


# --- new and check


@pytest.mark.parametrize(("kind", "engine"), [("simulation", "auto"), ("tables", "stacked")])
def test_starters_check_and_run_as_they_are(
    kind: str, engine: str, tmp_path: Path, potluck: Potluck
) -> None:
    assert "Next: potluck check" in potluck("new", tmp_path / "mine", "--kind", kind)
    study = tmp_path / "mine" / "study.toml"
    told = potluck("check", study)
    assert "classes can be separated" in told
    assert f"The study is in order. Next: potluck run {study}" in told
    assert "rounds with all" in told
    assert not list(tmp_path.rglob("*.safetensors"))
    changes = ["-o", "rounds=1", "-o", f"run.engine={engine}"]
    assert "accuracy" in potluck("run", study, *changes, "--out", tmp_path / "run")
    assert (tmp_path / "run" / "model.json").exists()


def test_a_site_file_is_checked_by_itself(irises: Path, potluck: Potluck) -> None:
    starter = irises / "starter"
    told = potluck("check", starter / "sites" / "station.toml", "--study", starter / "study.toml")
    assert "blue flag" in told
    assert "By itself, the site cannot tell all classes apart" in told
    assert "The site file is in order." in told


def test_check_names_classes_that_no_site_can_tell_apart(
    tmp_path: Path, irises: Path, potluck: Potluck
) -> None:
    starter = shutil.copytree(irises / "starter", tmp_path / "starter")
    study = starter / "study.toml"
    told = potluck("check", study, "-o", 'federation.sites=["sites/station.toml"]')
    assert "Only 1 of 2 independent class contrasts can be learned" in told
    assert "Nothing tells apart: versicolor, virginica." in told


# --- predict and evaluate


def test_tables_arrays_and_site_files_give_the_same_predictions(
    irises: Path, tmp_path: Path, potluck: Potluck
) -> None:
    source = irises / "starter" / "data" / "test.csv"
    table = pyarrow.csv.read_csv(source)
    features = table.drop_columns(["species"])
    pyarrow.parquet.write_table(table, tmp_path / "test.parquet")
    x = np.stack([column.to_numpy() for column in features.columns], 1)
    np.savez(tmp_path / "test.npz", x=x)
    (tmp_path / "site.toml").write_text(
        'name = "s"\nview = { kind = "unlabeled" }\n'
        'data = { kind = "table", path = "test.parquet", label = "species" }\n'
    )
    written = []
    for name in (source, tmp_path / "test.parquet", tmp_path / "test.npz", tmp_path / "site.toml"):
        out = tmp_path / "out.csv"
        told = potluck("predict", irises / "run", name, "--out", out)
        assert f"40 predictions over 3 labels: {out}" in told
        written.append(out.read_text())
    assert len(set(written)) == 1
    rows = _predictions(tmp_path / "out.csv")
    assert list(rows[0]) == ["prediction", "p(setosa)", "p(versicolor)", "p(virginica)"]
    for row in rows:
        chances = {name: float(row[f"p({name})"]) for name in ("setosa", "versicolor", "virginica")}
        assert sum(chances.values()) == pytest.approx(1, abs=2e-6)
        assert row["prediction"] == max(chances, key=chances.__getitem__)


def test_predictions_agree_with_the_accuracy_in_the_history(
    irises: Path, tmp_path: Path, potluck: Potluck
) -> None:
    source = irises / "starter" / "data" / "test.csv"
    potluck("predict", irises / "run", source, "--out", tmp_path / "out.csv")
    truth = pyarrow.csv.read_csv(source)["species"].to_pylist()
    found = [row["prediction"] for row in _predictions(tmp_path / "out.csv")]
    accuracy = np.mean([a == b for a, b in zip(truth, found, strict=True)])
    assert accuracy == pytest.approx(_history(irises / "run")[-1]["test"]["accuracy"])  # type: ignore[index]
    assert f"accuracy {accuracy:.2%}" in potluck("evaluate", irises / "run")


def test_with_a_site_predictions_are_in_its_own_labels(
    irises: Path, tmp_path: Path, potluck: Potluck
) -> None:
    starter = irises / "starter"
    out, plain = tmp_path / "own.csv", tmp_path / "plain.csv"
    site = starter / "sites" / "station.toml"
    potluck("predict", irises / "run", starter / "data" / "test.csv", "--out", plain)
    potluck("predict", irises / "run", starter / "data" / "test.csv", "--site", site, "--out", out)
    for own, target in zip(_predictions(out), _predictions(plain), strict=True):
        flags = float(target["p(versicolor)"]) + float(target["p(virginica)"])
        assert float(own["p(blue flag)"]) == pytest.approx(flags, abs=3e-6)
        assert own["prediction"] == ("blue flag" if flags > 0.5 else "bristle-pointed iris")


def test_evaluation_on_a_site_file_is_in_its_own_labels(irises: Path, potluck: Potluck) -> None:
    site = irises / "starter" / "sites" / "station.toml"
    told = potluck("evaluate", irises / "run", "--data", site)
    assert "blue flag" in told
    assert "setosa" not in told


def test_a_folder_of_images_is_predicted(tmp_path: Path, potluck: Potluck) -> None:
    (tmp_path / "study.toml").write_text(DIGITS)
    potluck("run", tmp_path / "study.toml", "--out", tmp_path / "run")
    (tmp_path / "new").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    for name, image in zip("abc", pixels, strict=True):
        Image.fromarray(image).save(tmp_path / "new" / f"{name}.png")
    np.savez(tmp_path / "new.npz", x=pixels)
    for source in ("new", "new.npz"):
        potluck("predict", tmp_path / "run", tmp_path / source, "--out", tmp_path / f"{source}.csv")
    named = _predictions(tmp_path / "new.csv")
    assert [row.pop("file") for row in named] == ["a.png", "b.png", "c.png"]
    assert named == _predictions(tmp_path / "new.npz.csv")


# --- list and help


def test_list_shows_choices_with_their_options(potluck: Potluck) -> None:
    told = potluck("list", "partitions")
    assert "dirichlet" in told
    assert "alpha = required" in told
    assert "models" not in told
    everything = potluck("list")
    for name in ("likelihood", "fedavg", "mlp", "sgd", "cosine", "sequential", "digits", "bags"):
        assert name in everything


@pytest.mark.parametrize(
    ("command", "teaches"),
    [
        ("run", ["STUDY is a TOML file", "-o rounds=5", "[scales.NAME]", "potluck resume"]),
        ("resume", ["FOLDER is the run folder", "--previous"]),
        ("check", ["FILE is a study file", "--study", "tell apart"]),
        ("predict", ["DATA is a table", "NPZ", "folder of images", "--site"]),
        ("evaluate", ["test set", "--data"]),
        ("new", ["--kind", "tables", "runs as it is"]),
        ("list", ["methods", "partitions", "all when left out"]),
        ("demo", ["seven kinds of labels"]),
    ],
)
def test_help_teaches(command: str, teaches: list[str], potluck: Potluck) -> None:
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", potluck(command, "--help")).split())
    for words in teaches:
        assert words in told


# --- imports


def _loaded(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in ended.stdout.split()}


def test_the_library_imports_neither_command_line_nor_files_nor_network() -> None:
    heavy = {"typer", "rich", "pydantic", "pyarrow", "flwr", "matplotlib", "plotly", "sklearn"}
    loaded = _loaded("import potluck\nfor name in potluck.__all__: getattr(potluck, name)")
    assert "torch" in loaded
    assert loaded & heavy == set()


def test_what_only_shows_a_run_does_not_wait_for_torch() -> None:
    modules = ("report.write", "report.comparing", "watch.server", "flower.keys", "console", "cli")
    loaded = _loaded("import potluck." + ", potluck.".join(modules))
    assert {"matplotlib", "typer"} <= loaded
    assert "torch" not in loaded


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(potluck_library.__all__) <= set(dir(potluck_library))
    for name in potluck_library.__all__:
        assert getattr(potluck_library, name) is not None
    with pytest.raises(AttributeError, match="'FedAvgg'"):
        _ = potluck_library.FedAvgg


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be written where the tests are run from."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("check starter/study.toml", "The study is in order"),
        ("audit starter/study.toml", "all promises are kept"),
        ("evaluate run", "accuracy"),
        ("predict run starter/data/test.csv", "40 predictions over 3 labels"),
        ("list methods", "likelihood"),
    ],
)
def test_every_other_command_works_as_a_process(irises: Path, command: str, told: str) -> None:
    _assert_tells(copied(*command.split(), cwd=irises), told)


def test_the_demonstration_works_as_a_process(tmp_path: Path) -> None:
    told = "Together, the sites reach"
    _assert_tells(process("demo", "--seeds", 1, "--rounds", 1, cwd=tmp_path), told)


def _assert_tells(ran: subprocess.CompletedProcess[str], told: str) -> None:
    assert ran.returncode == 0, ran.stderr
    assert told in ran.stdout
    assert ran.stderr == ""
