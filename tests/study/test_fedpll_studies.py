"""The study files of FedPLL-LAAR, and every command of their README, can be read."""

import re
import shlex
from pathlib import Path

import pytest

from potluck.study.schema import read_study
from potluck.study.simulation import simulate

FOLDER = Path(__file__).parents[2] / "examples" / "papers" / "fedpll-laar"
COMMANDS = re.findall(r"^potluck run (.*)$", (FOLDER / "README.md").read_text(), re.MULTILINE)


def overrides_of(command):
    words = shlex.split(command)
    return words[0], words[2::2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_a_study_at_both_scales(command):
    name, overrides = overrides_of(command)
    full = read_study(FOLDER / name, overrides)
    small = read_study(FOLDER / name, overrides, scale="small")
    assert full.rounds == 200
    assert full.simulation.path
    assert small.simulation.dataset == "digits"
    assert full.method["name"] == small.method["name"]


def test_every_study_file_is_mentioned():
    assert {overrides_of(command)[0] for command in COMMANDS} | {"svhn.toml"} == {
        path.name for path in FOLDER.glob("*.toml")
    } - {"reproduce.toml"}
    assert "svhn.toml" in (FOLDER / "README.md").read_text()


def test_small_scale_is_the_papers_setting_on_digits():
    for path in FOLDER.glob("*[0-9n].toml"):
        study = read_study(path, scale="small")
        federation = simulate(study.simulation, study.seed, FOLDER)
        assert len(federation.sites) == 5
        assert all(site.view.kind == "candidates" for site in federation.sites)
