"""The study files of both FedMT papers, and every command of their READMEs, can be run."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch

import potluck as pl
from potluck.methods import FedMT
from potluck.study.build import make_recipe, prepare
from potluck.study.execute import run_study
from potluck.study.schema import read_study
from potluck.study.simulation import Simulation, simulate
from potluck.study.views import Coarse

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
FOLDERS = [PAPERS / "fedmt-2024", PAPERS / "fedmt-2023"]
COMMANDS = [
    (folder, command)
    for folder in FOLDERS
    for command in re.findall(
        r"^potluck run (.*)$", (folder / "README.md").read_text(), re.MULTILINE
    )
]


def words_of(command):
    words = shlex.split(command)
    return words[0], words[2::2]


@pytest.mark.parametrize(("folder", "command"), COMMANDS, ids=[c for _, c in COMMANDS])
def test_every_command_of_the_readmes_is_a_study_at_both_scales(folder, command):
    name, overrides = words_of(command)
    full = read_study(folder / name, overrides)
    small = read_study(folder / name, overrides, scale="small")
    assert full.method["name"] == small.method["name"]
    assert small.rounds <= full.rounds
    # Flips and crops would leave nothing of a digit.
    for option in ("augment", "weak", "strong"):
        assert small.method.get(option, "none") in ("none", "rotate")
    federation = simulate(small.simulation, small.seed, folder)
    make_recipe(small).check(federation)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_study_file_is_mentioned(folder):
    named = {words_of(command)[0] for where, command in COMMANDS if where == folder}
    assert named == {path.name for path in folder.glob("*.toml")} - {"reproduce.toml"}


def test_the_superclass_script_reads_a_run(tmp_path, capsys, monkeypatch):
    overrides = ["rounds=4", "local.steps=20", "method.tau=0.3", "run.device=cpu"]
    study = read_study(FOLDERS[0] / "table2.toml", overrides, scale="small")
    run_study(study, prepare(study), tmp_path / "run", lambda *_: None)
    script = FOLDERS[0] / "superclass.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "run")])
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["site-1", "site-2", "site-3"]
    assert all(float(line.split(":")[1]) > 0.5 for line in lines)


# --- the options of a simulation that these studies use -----------------------------------------


def simulated(**changes):
    table = {
        "dataset": "digits",
        "sites": [{"name": "site", "count": 2, "view": {"kind": "exact"}}],
        **changes,
    }
    return simulate(Simulation.model_validate(table), 0, Path())


def test_a_revealed_simulation_has_the_same_samples_with_their_true_classes():
    mapping = {"low": list("01234"), "high": list("56789")}
    sites = [{"name": "site", "count": 2, "view": {"kind": "coarse", "mapping": mapping}}]
    server = {"per_class": 2, "view": {"kind": "noisy", "rate": 0.5}}
    hidden = simulated(sites=sites, server=server)
    shown = simulated(sites=sites, server=server, reveal=True)
    for before, after in zip(
        (*hidden.sites, hidden.server), (*shown.sites, shown.server), strict=True
    ):
        assert torch.equal(before.inputs, after.inputs)
        assert after.view.kind == "exact"
        assert torch.equal(after.symbols, before.truth)


def test_per_class_caps_every_class_of_a_site():
    sites = [{"name": "centre", "per_class": 3, "view": {"kind": "exact"}}]
    (centre,) = simulated(sites=sites).sites
    assert torch.bincount(centre.truth).tolist() == [3] * 10


def test_noise_that_a_site_does_not_know_passes_for_exact_labels():
    for known, kind in ((True, "noisy"), (False, "exact")):
        view = {"kind": "noisy", "rate": 0.3, "known": known}
        (site,) = simulated(sites=[{"name": "centre", "view": view}]).sites
        assert site.view.kind == kind
        assert 0.2 < (site.symbols != site.truth).double().mean() < 0.4


def test_coarse_labels_may_be_noisy_at_a_rate_that_the_site_knows():
    mapping = {"low": list("01234"), "high": list("56789")}
    view = {"kind": "coarse", "mapping": mapping, "noise": 0.2}
    (site,) = simulated(sites=[{"name": "site", "view": view}]).sites
    assert site.view.symbols.names == ("low", "high")
    assert torch.allclose(site.view.codebook[0], torch.tensor([0.8] * 5 + [0.2] * 5).double())
    wrong = site.symbols != (site.truth > 4)
    assert 0.15 < wrong.double().mean() < 0.25


def test_a_partition_by_a_grouping_needs_one_that_the_data_set_has():
    with pytest.raises(pl.PotluckError, match="partition_by"):
        simulated(partition_by="superclass")


def test_a_site_may_name_its_labels_without_saying_what_they_mean():
    space = pl.LabelSpace(("a", "b", "c"))
    declared = Coarse(kind="coarse", labels=["x", "y"])
    view, labels = declared.view(space, ["x", "y", "x"], Path())
    site = pl.Site.of("ward", torch.zeros(3, 2), view, labels)
    assert torch.equal(site.symbols, torch.tensor([0, 1, 0]))
    assert torch.equal(view.codebook, torch.full((2, 3), 0.5).double())
    server = pl.Site.of("server", torch.zeros(3, 2), pl.exact(space), ["a", "b", "c"])
    method = FedMT(weak="none", strong="none")
    pl.Recipe(rounds=1, method=method).check(pl.Federation.of([site], server))
