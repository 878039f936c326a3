"""The study files of FedUL, and every command of their README, can be read and simulated."""

import re
import shlex
from pathlib import Path

import pytest

from potluck.study.build import make_recipe
from potluck.study.schema import read_study
from potluck.study.simulation import simulate

FOLDER = Path(__file__).parents[2] / "examples" / "papers" / "fedul"
COMMANDS = re.findall(r"^potluck run (.*)$", (FOLDER / "README.md").read_text(), re.MULTILINE)


def overrides_of(command):
    words = shlex.split(command)
    return words[0], words[2::2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_a_study_at_both_scales(command):
    name, overrides = overrides_of(command)
    full = read_study(FOLDER / name, overrides)
    small = read_study(FOLDER / name, overrides, scale="small")
    assert full.rounds == 100
    assert full.simulation.path
    assert full.method["name"] == small.method["name"]
    federation = simulate(small.simulation, small.seed, FOLDER)
    make_recipe(small).check(federation)


def test_every_study_file_is_mentioned():
    named = {overrides_of(command)[0] for command in COMMANDS}
    assert named == {path.name for path in FOLDER.glob("*.toml")} - {"reproduce.toml"}


def test_all_methods_get_the_same_images_unless_official():
    def images(*overrides):
        study = read_study(FOLDER / "mnist.toml", overrides, scale="small")
        federation = simulate(study.simulation, study.seed, FOLDER)
        return [sorted(site.inputs.flatten(1).tolist()) for site in federation.sites]

    sets = images()
    assert sets == images("simulation.sites.0.view.bags=40")
    assert sets == images("simulation.reveal=true")
    assert sets == images('simulation.sites.0.view={kind="exact"}')
    tenth = images('simulation.sites.0.view={kind="exact",labelled=0.1}')
    for few, many in zip(tenth, sets, strict=True):
        assert len(few) == round(len(many) / 10)
        assert all(image in many for image in few)
    official = images(
        "simulation.sites.0.view.bagging=official-iid", "simulation.sites.0.view.bags=20"
    )
    assert sum(map(len, official)) < 0.7 * sum(map(len, sets))
