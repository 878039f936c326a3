"""The study files of Private label sets, and every command in their README."""

import shlex
from pathlib import Path

import pytest

from potluck.study.build import make_recipe
from potluck.study.schema import read_study

FOLDER = Path(__file__).parents[2] / "examples" / "papers" / "private-label-sets"
FILES = sorted(path.name for path in FOLDER.glob("*.toml") if path.name != "reproduce.toml")
COMMANDS = [
    line
    for line in (FOLDER / "README.md").read_text().splitlines()
    if line.startswith("potluck run ")
]


def test_there_is_a_file_for_each_data_set_and_setting():
    assert [
        f"{data}-{kind}.toml"
        for data in ("cifar10", "fashion-mnist")
        for kind in ("private", "public")
    ] == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("scale", [None, "small"])
def test_the_files_say_what_the_paper_says(name, scale):
    study = read_study(FOLDER / name, scale=scale)
    simulation, view = study.simulation, study.simulation.sites[0].view
    assert simulation.validation == 0.2
    assert view.private == ("private" in name)
    assert view.softmax == ("own" if view.private else "all")
    assert simulation.server.view.kind == "unlabeled"
    if scale is None:
        assert study.rounds == 100
        assert (study.local.lr, study.local.batch_size, study.local.epochs) == (0.001, 64, 1)
        assert study.local.optimiser["name"] == "adam"
        assert study.model["name"] == "cnn"
        assert simulation.partition["samples_per_site"] == 2000
        assert simulation.server.samples == {"c": 5000, "f": 6000}[name[0]]
    else:
        assert simulation.dataset == "digits"


@pytest.mark.parametrize("scale", [None, "small"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_a_study(command, scale):
    name, *rest = shlex.split(command)[2:]
    assert name in FILES
    assert rest[0::2] == ["-o"] * (len(rest) // 2)
    make_recipe(read_study(FOLDER / name, rest[1::2], scale))
