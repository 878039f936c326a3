"""Small studies that run both in one process and over Flower, and the folders of their sites."""

from pathlib import Path

from inprocess import InProcessGrid

from potluck.federation import Federation
from potluck.flower.memory import Holding, Memory
from potluck.flower.plan import NetworkFolder, Plan
from potluck.flower.server_app import coordinate
from potluck.study.build import load_federation, prepare
from potluck.study.execute import run_study
from potluck.study.runfolder import RunFolder
from potluck.study.schema import Study, parse_study

SITES = [
    {"name": "clinic", "samples": 40, "view": {"kind": "exact"}},
    {
        "name": "registry",
        "samples": 60,
        "view": {
            "kind": "coarse",
            "mapping": {"low": list("01234"), "high": list("56789")},
        },
    },
    {"name": "wards", "samples": 120, "view": {"kind": "bags", "bags": 12}},
    {"name": "undecided", "samples": 40, "view": {"kind": "candidates", "rho": 0.3}},
    {
        "name": "secretive",
        "samples": 60,
        "view": {"kind": "subset", "classes": ["7", "2", "5"], "private": True},
    },
    {"name": "archive", "samples": 30, "view": {"kind": "unlabeled"}},
]


def a_study(**changes) -> Study:
    """Six kinds of labels, a small model, two rounds."""
    table = {
        "rounds": 2,
        "model": {"name": "mlp", "hidden": [12]},
        "local": {"lr": 0.1, "steps": 3, "batch_size": 16},
        "run": {"device": "cpu"},
        "simulation": {"dataset": "digits", "sites": SITES},
        "network": {"absence": 0},
        **changes,
    }
    return parse_study(table, "test")


def site_folders(federation: Federation, at: Path, columns=None) -> dict[str, Path]:
    """Give each site a folder with its own data, as `potluck join` would."""
    aside = {site.name: site for site in federation.validation}
    folders = {}
    for number, site in enumerate(federation.sites):
        folders[site.name] = at / f"{number:06d}"
        Memory(folders[site.name]).keep_data(Holding(site, columns, aside.get(site.name)))
    return folders


def a_grid(study: Study, at: Path, tamper=None) -> InProcessGrid:
    """A grid with the sites of a study."""
    federation, columns = load_federation(study)
    return InProcessGrid(site_folders(federation, at / "sites", columns), tamper)


def over_flower(study: Study, grid: InProcessGrid, out: Path) -> RunFolder:
    """Train a study over a grid, from the start or from where the run folder is."""
    if not out.exists():
        RunFolder.create(out, study.resolved(), study.hash())
        names = tuple(node.name for node in grid.nodes.values())
        NetworkFolder(out / "network").write_plan(Plan("0123abcd", names))
    coordinate(grid, out)
    return RunFolder.open(out)


def in_process(study: Study, out: Path) -> RunFolder:
    """Train a study in one process, by the sequential engine."""
    how = study.run.model_copy(update={"engine": {"name": "sequential"}})
    study = study.model_copy(update={"run": how})
    run_study(study, prepare(study), out, lambda record: None)
    return RunFolder.open(out)
