"""Studies to start from: they run as they are, and their comments say what to change."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from sklearn.datasets import load_iris

from potluck.data.makers.bags import identifiable_bags
from potluck.errors import PotluckError, one_of
from potluck.study.files import writing


def write_starter(folder: Path, kind: str) -> Path:
    """Write a study to start from.

    Args:
      folder: where; it must be empty or not there yet.
      kind:   "simulation" (one file) or "tables" (a study, site files and small CSV tables).

    Returns:
      the study file.
    """
    kinds: dict[str, Callable[[Path], None]] = {"simulation": _simulation, "tables": _tables}
    if kind not in kinds:
        raise PotluckError(f"--kind: {one_of('kind of study', kind, kinds)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PotluckError(f"{folder} is there already and is not empty; choose another name.")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        kinds[kind](folder)
    return folder / "study.toml"


def _simulation(folder: Path) -> None:
    (folder / "study.toml").write_text(_template("digits.toml"), encoding="utf-8")


def _tables(folder: Path) -> None:
    (folder / "sites").mkdir()
    (folder / "data").mkdir()
    (folder / "study.toml").write_text(_template("tables/study.toml"), encoding="utf-8")
    for name in ("herbarium", "station", "survey"):
        text = _template(f"tables/{name}.toml")
        (folder / "sites" / f"{name}.toml").write_text(text, encoding="utf-8")
    _write_irises(folder / "data")


def _write_irises(folder: Path) -> None:
    """Split Fisher's irises into a test set and three sites that label in three ways."""
    iris = load_iris()
    columns = [name.removesuffix(" (cm)").replace(" ", "_") for name in iris.feature_names]
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(iris.target), generator=generator).numpy()
    test, herbarium, station, survey = np.split(order, [40, 52, 90])
    species = iris.target_names[iris.target]
    own_names = np.where(species == "setosa", "bristle-pointed iris", "blue flag")

    def write(name: str, rows: np.ndarray, label: str, values: np.ndarray) -> None:
        table = {c: iris.data[rows, i] for i, c in enumerate(columns)} | {label: values}
        pyarrow.csv.write_csv(pa.table(table), folder / f"{name}.csv")

    write("test", test, "species", species[test])
    write("herbarium", herbarium, "species", species[herbarium])
    write("station", station, "name", own_names[station])
    classes = torch.from_numpy(iris.target[survey]).long()
    made = identifiable_bags(classes, 4, 3, generator)
    plots = np.array(["north", "east", "south", "west"])
    write("survey", survey[made.index.numpy()], "plot", plots[made.bag.numpy()])
    shares = {"bag": plots} | {
        str(name): made.priors[:, k].numpy().round(3) for k, name in enumerate(iris.target_names)
    }
    pyarrow.csv.write_csv(pa.table(shares), folder / "survey-priors.csv")


def _template(name: str) -> str:
    return files("potluck").joinpath("templates", *name.split("/")).read_text(encoding="utf-8")
