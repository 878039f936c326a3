"""Broken input of every kind: each is refused before training, in a sentence that says where
it is, what is wrong and what to do. No traceback, no run."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import potluck.study.execute
from potluck.cli import main

Arrange = Callable[[Path], None]

# A study that is in order; every case breaks one thing in it.
SIMULATION = """\
name = "broken"
rounds = 2
model = { name = "mlp", hidden = [8] }

[simulation]
dataset = "digits"

[[simulation.sites]]
name = "clinic"
samples = 40
view = { kind = "exact" }
"""

FEDERATION = """\
name = "broken"
rounds = 2
model = { name = "mlp", hidden = [8] }

[federation]
classes = ["flu", "cold", "well"]
sites = ["north.toml", "south.toml"]
test = { kind = "table", path = "test.csv", label = "diagnosis" }
"""

NORTH = """\
name = "north"
data = { kind = "table", path = "north.csv", label = "diagnosis" }
view = { kind = "exact" }
"""

SOUTH = NORTH.replace("north", "south")

ROWS = """\
age,heat,diagnosis
31,39.5,flu
52,37.0,well
24,38.1,cold
77,39.9,flu
"""

FILES = {
    "simulation.toml": SIMULATION,
    "study.toml": FEDERATION,
    "north.toml": NORTH,
    "south.toml": SOUTH,
    "north.csv": ROWS,
    "south.csv": ROWS,
    "test.csv": ROWS,
}


def edit(file: str, old: str, new: str) -> Arrange:
    """Replace a text in one of the files."""

    def arrange(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text, f"{file} has no {old!r}"
        (folder / file).write_text(text.replace(old, new))

    return arrange


def write(file: str, content: str | bytes) -> Arrange:
    """Write a whole file."""

    def arrange(folder: Path) -> None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)

    return arrange


def both(*steps: Arrange) -> Arrange:
    """One thing after another."""

    def arrange(folder: Path) -> None:
        for step in steps:
            step(folder)

    return arrange


def nothing(folder: Path) -> None:
    """Leave the files as they are."""


def view(text: str) -> Arrange:
    """Give site "north" another view."""
    return edit("north.toml", 'view = { kind = "exact" }', f"view = {text}")


def data(text: str) -> Arrange:
    """Give site "north" other data."""
    old = 'data = { kind = "table", path = "north.csv", label = "diagnosis" }'
    return edit("north.toml", old, f"data = {text}")


def simulated(text: str) -> Arrange:
    """Give the simulated site another view."""
    return edit("simulation.toml", 'view = { kind = "exact" }', f"view = {text}")


def images(sizes: dict[str, tuple[int, int]]) -> Arrange:
    """Images of given sizes, and a site that has them."""

    def arrange(folder: Path) -> None:
        for name, size in sizes.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", size).save(folder / name)

    return both(arrange, data('{ kind = "images", path = "scans", mode = "L" }'))


def arrays(**stored: object) -> Arrange:
    """An NPZ file, and a site that has it."""

    def arrange(folder: Path) -> None:
        np.savez(folder / "north.npz", **{k: np.asarray(v) for k, v in stored.items()})

    return both(arrange, data('{ kind = "arrays", path = "north.npz" }'))


BAGS = '{ kind = "bags", priors = "priors.csv" }'
PRIORS = "bag,flu,cold,well\na,0.8,0.1,0.1\nb,0.1,0.8,0.1\nc,0.1,0.1,0.8\n"


def bags(rows: str, priors: str = PRIORS, declared: str = BAGS) -> Arrange:
    """A site that knows the class proportions of its bags."""
    values = "".join(f"{i},38.0,{bag}\n" for i, bag in enumerate(rows))
    return both(
        write("north.csv", "age,heat,diagnosis\n" + values),
        write("priors.csv", priors),
        view(declared),
    )


CHECK, SIM, SITE = (
    "check study.toml",
    "check simulation.toml",
    "check north.toml --study study.toml",
)

# (what is broken, how to break it, command, what the message must say)
CASES: list[tuple[str, Arrange, str, tuple[str, ...]]] = [
    # --- the study file itself
    ("study missing", nothing, "run nowhere.toml", ()),
    ("study is a folder", lambda p: (p / "dir").mkdir(), "run dir", ()),
    ("study is a folder called toml", lambda p: (p / "dir.toml").mkdir(), "check dir.toml", ()),
    ("study is binary", write("study.toml", b"\xff\xfe\x00rounds"), "run study.toml", ()),
    ("study is invalid TOML", edit("study.toml", "rounds = 2", "rounds = = 2"), CHECK, ()),
    ("study is invalid JSON", write("study.json", "{"), "run study.json", ()),
    ("study is a JSON list", write("study.json", "[1]"), "run study.json", ()),
    ("study JSON missing", nothing, "run study.json", ()),
    ("study JSON is a folder", lambda p: (p / "a.json").mkdir(), "run a.json", ()),
    (
        "study has another ending",
        lambda p: shutil.move(p / "study.toml", p / "study.txt"),
        "check study.txt -o roundz=1",
        (),
    ),
    ("study is empty", write("study.toml", ""), CHECK, ()),
    ("unknown top-level key", edit("simulation.toml", "rounds", "rouns"), SIM, ()),
    ("unknown top-level key, not near", edit("simulation.toml", "rounds", "colour"), SIM, ()),
    ("unknown key in local", nothing, SIM + " -o local.learning_rate=0.1", ()),
    ("unknown key in run", nothing, SIM + " -o run.devise=cpu", ()),
    ("unknown key in simulation", nothing, SIM + " -o simulation.partitoin=iid", ()),
    ("unknown key in a site", edit("simulation.toml", "samples", "sample"), SIM, ()),
    ("unknown key in a view", simulated('{ kind = "candidates", rho = 0.1, rate = 0.2 }'), SIM, ()),
    ("unknown key in federation", edit("study.toml", "classes", "clases"), CHECK, ()),
    ("unknown key in federation.test", edit("study.toml", "label =", "lable ="), CHECK, ()),
    (
        "unknown key in server",
        nothing,
        SIM + " -o simulation.server={view={kind='exact'},per_clas=2}",
        (),
    ),
    ("rounds is text", edit("simulation.toml", "rounds = 2", 'rounds = "many"'), SIM, ()),
    ("rounds is a fraction", nothing, SIM + " -o rounds=2.5", ()),
    ("rounds negative", nothing, SIM + " -o rounds=-3", ()),
    ("rounds zero", nothing, SIM + " -o rounds=0", ()),
    ("rounds missing", edit("simulation.toml", "rounds = 2\n", ""), SIM, ()),
    ("seed is text", nothing, SIM + " -o seed=lucky", ()),
    ("section is a value", nothing, SIM + " -o local=3", ()),
    ("simulation is a value", nothing, SIM + " -o simulation=digits", ()),
    (
        "sites is no list",
        edit("simulation.toml", "[[simulation.sites]]", "[simulation.sites]"),
        SIM,
        (),
    ),
    (
        "no sites",
        write("simulation.toml", 'rounds = 1\nsimulation = { dataset = "digits", sites = [] }'),
        SIM,
        (),
    ),
    ("several complaints", nothing, SIM + " -o rounds=-1 -o local.lr=-1 -o sede=3", ()),
    ("unknown method", nothing, SIM + " -o method=likelyhood", ()),
    ("unknown model", nothing, SIM + " -o model=resnet81", ()),
    ("unknown federated optimiser", nothing, SIM + " -o federated=fedavgg", ()),
    ("unknown local optimiser", nothing, SIM + " -o local.optimiser=sdg", ()),
    ("unknown schedule", nothing, SIM + " -o local.schedule=cosinus", ()),
    ("unknown engine", nothing, SIM + " -o run.engine=sequental", ()),
    ("unknown partition", nothing, SIM + " -o simulation.partition=dirichlett", ()),
    ("unknown data set", nothing, SIM + " -o simulation.dataset=digit", ()),
    ("unknown device", nothing, SIM + " -o run.device=gpu", ()),
    ("unknown batch_norm", nothing, SIM + " -o batch_norm=locl", ()),
    ("unknown standardise", nothing, SIM + " -o standardise=federaton", ()),
    ("unknown option of method", nothing, SIM + " -o method.augmnt=flip", ()),
    ("unknown option of model", nothing, SIM + " -o model.hiden=[4]", ()),
    ("unknown option of optimiser", nothing, SIM + " -o local.optimiser.momentun=0.9", ()),
    ("unknown option of a federated optimiser", nothing, SIM + " -o federated.mu=0.9", ()),
    ("option of what has none", nothing, SIM + " -o local.schedule.gamma=0.9", ()),
    ("missing option of a partition", nothing, SIM + " -o simulation.partition=dirichlet", ()),
    ("option of the wrong type", nothing, SIM + " -o model.hidden=wide", ()),
    ("option outside its choices", nothing, SIM + " -o method.augment=mirror", ()),
    ("option outside its range", nothing, SIM + " -o model.dropout=1.5", ()),
    ("hidden layer of negative width", nothing, SIM + " -o model.hidden=[-4]", ()),
    ("momentum too large", nothing, SIM + " -o local.optimiser.momentum=1.5", ()),
    (
        "partition alpha negative",
        nothing,
        SIM + " -o simulation.partition={name='dirichlet',alpha=-1}",
        (),
    ),
    ("method without a name", nothing, SIM + " -o method=3", ()),
    ("neither simulation nor federation", write("study.toml", "rounds = 1"), CHECK, ()),
    (
        "both simulation and federation",
        nothing,
        CHECK + " -o simulation={dataset='digits',sites=[{name='a',view={kind='exact'}}]}",
        (),
    ),
    ("cohort too large", nothing, SIM + " -o cohort=3", ()),
    ("fednova with adam", nothing, SIM + " -o federated=fednova -o local.optimiser=adam", ()),
    ("fedbn with averaged statistics", nothing, SIM + " -o federated=fedbn", ()),
    ("augmented tables", nothing, CHECK + " -o method.augment=flip", ()),
    ("a model for images on tables", nothing, CHECK + " -o model=lenet", ()),
    ("images too small for the model", nothing, SIM + " -o model=lenet", ()),
    ("cuda without a GPU", nothing, SIM + " -o run.device=cuda", ()),
    ("not a finite number", nothing, SIM + " -o local.lr=inf", ()),
    ("nan", nothing, SIM + " -o local.lr=nan", ()),
    ("override without =", nothing, SIM + " -o rounds", ()),
    ("override without key", nothing, SIM + " -o =3", ()),
    ("override into a list", nothing, SIM + " -o simulation.sites.samples=3", ()),
    ("override into a number", nothing, SIM + " -o rounds.more=3", ()),
    ("unknown scale", nothing, SIM + " --scale small", ()),
    (
        "unknown scale with others",
        write("study.toml", FEDERATION + "[scales.smoke]\nrounds = 1\n"),
        CHECK + " --scale smok",
        (),
    ),
    (
        "scale is no table",
        write("study.toml", "scales = 3\n" + FEDERATION),
        CHECK + " --scale small",
        (),
    ),
    (
        "scale value no table",
        write("study.toml", FEDERATION + "[scales]\nsmall = 3\n"),
        CHECK + " --scale small",
        (),
    ),
    # --- simulated data and views
    (
        "data set path missing",
        nothing,
        SIM + " -o simulation.dataset=mnist -o simulation.path=nowhere",
        (),
    ),
    ("data set without path", nothing, SIM + " -o simulation.dataset=mnist", ()),
    (
        "data set folder without files",
        lambda p: (p / "mnist").mkdir(),
        SIM + " -o simulation.dataset=mnist -o simulation.path=mnist",
        (),
    ),
    ("path where none is needed", nothing, SIM + " -o simulation.path=here", ()),
    ("more sites than samples", edit("simulation.toml", "samples = 40", "count = 5000"), SIM, ()),
    (
        "simulated site twice",
        edit(
            "simulation.toml",
            "[[simulation.sites]]",
            '[[simulation.sites]]\nname = "clinic"\nview = { kind = "exact" }\n[[simulation.sites]]',
        ),
        SIM,
        (),
    ),
    ("simulated view without kind", simulated("{ rho = 0.1 }"), SIM, ()),
    ("simulated view unknown", simulated('{ kind = "bag", bags = 3 }'), SIM, ()),
    ("simulated view is text", simulated('"exact"'), SIM, ()),
    ("simulated coarse with nothing", simulated('{ kind = "coarse" }'), SIM, ()),
    (
        "simulated coarse with two",
        simulated('{ kind = "coarse", mapping = {}, grouping = "super" }'),
        SIM,
        (),
    ),
    (
        "simulated coarse unknown class",
        simulated('{ kind = "coarse", mapping = { low = ["0", "ten"] } }'),
        SIM,
        (),
    ),
    (
        "simulated coarse grouping",
        simulated('{ kind = "coarse", grouping = "superclass" }'),
        SIM,
        (),
    ),
    ("noise rate above 1", simulated('{ kind = "noisy", rate = 1.5 }'), SIM, ()),
    ("noise rate missing", simulated('{ kind = "noisy" }'), SIM, ()),
    ("noise unknown", simulated('{ kind = "noisy", noise = "pairs", rate = 0.1 }'), SIM, ()),
    ("too few simulated bags", simulated('{ kind = "bags", bags = 3 }'), SIM, ()),
    ("more bags than samples", simulated('{ kind = "bags", bags = 100 }'), SIM, ()),
    (
        "target prior wrong length",
        simulated('{ kind = "bags", bags = 12, target_prior = [0.5, 0.5] }'),
        SIM,
        (),
    ),
    ("rho 1", simulated('{ kind = "candidates", rho = 1 }'), SIM, ()),
    ("subset unknown class", simulated('{ kind = "subset", classes = ["0", "eleven"] }'), SIM, ()),
    ("subset empty", simulated('{ kind = "subset", classes = [] }'), SIM, ()),
    ("subset count too large", simulated('{ kind = "subset", count = 11 }'), SIM, ()),
    ("subset two ways", simulated('{ kind = "subset", count = 2, classes = ["0"] }'), SIM, ()),
    (
        "private server",
        nothing,
        SIM + " -o simulation.server={view={kind='subset',count=2,private=true},samples=20}",
        (),
    ),
    ("server without size", nothing, SIM + " -o simulation.server={view={kind='exact'}}", ()),
    (
        "server takes all",
        nothing,
        SIM + " -o simulation.server={view={kind='exact'},samples=9999}",
        (),
    ),
    # --- views of site files
    ("site check without study", nothing, "check north.toml", ()),
    ("site check against a simulation", nothing, "check north.toml --study simulation.toml", ()),
    ("study check against itself", nothing, "run north.toml", ()),
    ("site view missing", edit("north.toml", 'view = { kind = "exact" }', ""), SITE, ()),
    ("site data missing", edit("north.toml", "data =", "dat ="), SITE, ()),
    ("site name missing", edit("north.toml", 'name = "north"', ""), SITE, ()),
    ("site name empty", edit("north.toml", 'name = "north"', 'name = ""'), SITE, ()),
    ("view unknown", view('{ kind = "corse" }'), SITE, ()),
    ("view option unknown", view('{ kind = "coarse", maping = {} }'), SITE, ()),
    ("view without kind", view("{ private = true }"), SITE, ()),
    ("data kind unknown", data('{ kind = "csv", path = "north.csv" }'), SITE, ()),
    (
        "mapping unknown class",
        view('{ kind = "coarse", mapping = { sick = ["flu", "colt"], fine = ["well"] } }'),
        SITE,
        (),
    ),
    (
        "mapping leaves a class",
        view('{ kind = "coarse", mapping = { sick = ["flu"], fine = ["well"] } }'),
        SITE,
        (),
    ),
    (
        "mapping lacks a label",
        view('{ kind = "coarse", mapping = { sick = ["flu", "cold"], fine = ["well"] } }'),
        SITE,
        (),
    ),
    ("mapping is no list", view('{ kind = "coarse", mapping = { flu = "flu" } }'), SITE, ()),
    (
        "mapping and matrix",
        view('{ kind = "coarse", mapping = { a = ["flu"] }, matrix = [[1, 1, 1]] }'),
        SITE,
        (),
    ),
    ("neither mapping nor matrix", view('{ kind = "coarse" }'), SITE, ()),
    (
        "mapping and labels",
        view(
            '{ kind = "coarse", mapping = { flu = ["flu"], cold = ["cold"], well = ["well"] }, labels = ["x"] }'
        ),
        SITE,
        (),
    ),
    (
        "matrix of wrong shape",
        view('{ kind = "coarse", matrix = [[1, 0], [0, 1]], labels = ["a", "b"] }'),
        SITE,
        (),
    ),
    (
        "matrix ragged",
        view('{ kind = "noisy", matrix = [[1, 0], [0, 1, 0], [0, 0, 1]] }'),
        SITE,
        (),
    ),
    (
        "matrix columns",
        view('{ kind = "noisy", matrix = [[80, 10, 10], [10, 80, 10], [10, 10, 80]] }'),
        SITE,
        (),
    ),
    (
        "matrix negative",
        view('{ kind = "noisy", matrix = [[1.2, 0, 0], [-0.2, 1, 0], [0, 0, 1]] }'),
        SITE,
        (),
    ),
    (
        "matrix text",
        view('{ kind = "noisy", matrix = [["x", 0, 0], [0, 1, 0], [0, 0, 1]] }'),
        SITE,
        (),
    ),
    (
        "matrix row count",
        view('{ kind = "coarse", matrix = [[1, 1, 1]], labels = ["a", "b"] }'),
        SITE,
        (),
    ),
    ("bag without priors", bags("aabbccd"), SITE, ()),
    ("priors do not sum", bags("abc", PRIORS.replace("0.8", "0.4")), SITE, ()),
    ("too few bags", bags("aabb", PRIORS.replace("c,0.1,0.1,0.8\n", "")), SITE, ()),
    (
        "equal bags",
        bags("abc", "bag,flu,cold,well\na,0.2,0.3,0.5\nb,0.2,0.3,0.5\nc,0.1,0.1,0.8\n"),
        SITE,
        (),
    ),
    ("bag without samples", bags("aabb"), SITE, ()),
    ("bag twice", bags("abc", PRIORS + "a,0.1,0.1,0.8\n"), SITE, ()),
    (
        "priors table missing",
        bags("abc", PRIORS, '{ kind = "bags", priors = "prior.csv" }'),
        SITE,
        (),
    ),
    ("priors table without bag", bags("abc", PRIORS.replace("bag", "ward")), SITE, ()),
    ("priors table lacks a class", bags("abc", PRIORS.replace("cold", "colt")), SITE, ()),
    (
        "priors of wrong length",
        bags("ab", PRIORS, '{ kind = "bags", priors = { a = [0.5, 0.5], b = [1, 0] } }'),
        SITE,
        (),
    ),
    (
        "target prior zero",
        bags(
            "abc", PRIORS, '{ kind = "bags", priors = "priors.csv", target_prior = [0.5, 0.5, 0] }'
        ),
        SITE,
        (),
    ),
    (
        "minimum rank zero",
        bags("abc", PRIORS, '{ kind = "bags", priors = "priors.csv", minimum_rank = 0 }'),
        SITE,
        (),
    ),
    (
        "bags without label column",
        both(
            bags("abc"), data('{ kind = "table", path = "north.csv", features = ["age", "heat"] }')
        ),
        SITE,
        (),
    ),
    (
        "candidates unknown",
        both(view('{ kind = "candidates" }'), edit("north.csv", "flu", "flu|colt")),
        SITE,
        (),
    ),
    (
        "candidates empty",
        both(view('{ kind = "candidates" }'), edit("north.csv", "24,38.1,cold", "24,38.1,|")),
        SITE,
        (),
    ),
    (
        "candidates other separator",
        both(view('{ kind = "candidates" }'), edit("north.csv", "flu", "flu;cold")),
        SITE,
        (),
    ),
    ("candidates separator empty", view('{ kind = "candidates", separator = "" }'), SITE, ()),
    (
        "candidates without labels",
        both(
            view('{ kind = "candidates" }'),
            data('{ kind = "table", path = "north.csv", features = ["age", "heat"] }'),
        ),
        SITE,
        (),
    ),
    (
        "candidate matrix not 0/1",
        both(arrays(x=np.eye(3, 2), y=np.eye(3) * 0.5), view('{ kind = "candidates" }')),
        SITE,
        (),
    ),
    ("declared subset unknown", view('{ kind = "subset", classes = ["flu", "colt"] }'), SITE, ()),
    ("declared subset empty", view('{ kind = "subset", classes = [] }'), SITE, ()),
    ("class outside the subset", view('{ kind = "subset", classes = ["flu", "well"] }'), SITE, ()),
    (
        "private class outside the subset",
        view('{ kind = "subset", classes = ["flu", "well"], private = true }'),
        SITE,
        (),
    ),
    # --- data of site files
    ("site file missing", lambda p: (p / "north.toml").unlink(), CHECK, ()),
    ("site file invalid", write("north.toml", 'name = "north'), CHECK, ()),
    ("site csv missing", lambda p: (p / "north.csv").unlink(), CHECK, ()),
    ("label column missing", edit("north.csv", "diagnosis", "diagnose"), CHECK, ()),
    (
        "feature missing",
        data(
            '{ kind = "table", path = "north.csv", label = "diagnosis", features = ["age", "heet"] }'
        ),
        CHECK,
        (),
    ),
    ("text in a feature", edit("north.csv", "39.5", "high"), CHECK, ()),
    ("decimal comma", edit("north.csv", "39.5", '"39,5"'), CHECK, ()),
    ("nan in a feature", edit("north.csv", "39.5", "nan"), CHECK, ()),
    ("missing value", edit("north.csv", "39.5", ""), CHECK, ()),
    ("missing label", edit("north.csv", "39.5,flu", "39.5,"), CHECK, ()),
    ("ragged csv", edit("north.csv", "39.5,flu", "39.5,flu,extra"), CHECK, ()),
    ("semicolons", edit("north.csv", ",", ";"), CHECK, ()),
    ("empty file", write("north.csv", ""), CHECK, ()),
    ("only a header", write("north.csv", "age,heat,diagnosis\n"), CHECK, ()),
    (
        "excel file",
        both(write("north.xlsx", b"PK"), edit("north.toml", "north.csv", "north.xlsx")),
        CHECK,
        (),
    ),
    ("label outside the space", edit("north.csv", "cold", "kold"), CHECK, ()),
    (
        "no label column named",
        edit("north.toml", ', label = "diagnosis"', ', features = ["age", "heat"]'),
        CHECK,
        (),
    ),
    (
        "columns in another order",
        write("south.csv", "heat,age,diagnosis\n39.5,31,flu\n"),
        CHECK,
        (),
    ),
    (
        "a column too many",
        write("south.csv", "age,heat,pulse,diagnosis\n31,39.5,80,flu\n"),
        CHECK,
        (),
    ),
    ("test set columns", write("test.csv", "heat,age,diagnosis\n39.5,31,flu\n"), CHECK, ()),
    ("test set label", edit("test.csv", "cold", "kold"), CHECK, ()),
    (
        "test set without label",
        edit("study.toml", ', label = "diagnosis"', ', features = ["age", "heat"]'),
        CHECK,
        (),
    ),
    ("test set missing", lambda p: (p / "test.csv").unlink(), CHECK, ()),
    ("duplicate site names", edit("south.toml", 'name = "south"', 'name = "north"'), CHECK, ()),
    ("same site file twice", edit("study.toml", "south.toml", "north.toml"), CHECK, ()),
    ("duplicate classes", edit("study.toml", '"cold"', '"flu"'), CHECK, ()),
    ("no classes", edit("study.toml", '["flu", "cold", "well"]', "[]"), CHECK, ()),
    ("one class", edit("study.toml", '["flu", "cold", "well"]', '["flu"]'), CHECK, ()),
    (
        "images unreadable",
        both(images({"scans/flu/1.png": (4, 4)}), write("scans/flu/2.png", b"not an image")),
        CHECK,
        (),
    ),
    (
        "images of different sizes",
        images({"scans/flu/1.png": (4, 4), "scans/flu/2.png": (5, 4)}),
        CHECK,
        (),
    ),
    ("images without folders", images({"scans/1.png": (4, 4)}), CHECK, ()),
    ("images folder missing", data('{ kind = "images", path = "scans" }'), CHECK, ()),
    (
        "images in an unknown class",
        images({"scans/flu/1.png": (4, 4), "scans/kold/2.png": (4, 4)}),
        CHECK,
        (),
    ),
    (
        "images and tables together",
        images({"scans/flu/1.png": (4, 4), "scans/cold/2.png": (4, 4)}),
        CHECK,
        (),
    ),
    (
        "image table lists missing files",
        both(
            images({"scans/1.png": (4, 4)}),
            write("list.csv", "file,label\n1.png,flu\n2.png,flu\n"),
            edit("north.toml", 'mode = "L"', 'mode = "L", table = "list.csv"'),
        ),
        CHECK,
        (),
    ),
    (
        "image size zero",
        both(
            images({"scans/flu/1.png": (4, 4)}), edit("north.toml", 'mode = "L"', "size = [0, 4]")
        ),
        CHECK,
        (),
    ),
    ("npz without array", arrays(inputs=np.zeros((2, 2)), y=["flu", "well"]), CHECK, ()),
    ("npz with other counts", arrays(x=np.zeros((3, 2)), y=["flu", "well"]), CHECK, ()),
    ("npz with nan", arrays(x=[[0.0, np.nan]], y=["flu"]), CHECK, ()),
    ("npz of objects", arrays(x=np.array([[1, None]], dtype=object), y=["flu"]), CHECK, ()),
    ("npz label index", arrays(x=np.zeros((2, 2)), y=[0, 3]), CHECK, ()),
    ("npz fractional labels", arrays(x=np.zeros((2, 2)), y=[0.0, 1.5]), CHECK, ()),
    (
        "npz is no npz",
        both(write("north.npz", "text"), data('{ kind = "arrays", path = "north.npz" }')),
        CHECK,
        (),
    ),
    ("npz of another shape", arrays(x=np.zeros((2, 5)), y=["flu", "well"]), CHECK, ()),
    # --- runs
    ("run into a finished run", nothing, "run study.toml --out finished", ()),
    (
        "run into a folder of other things",
        write("other/notes.txt", "x"),
        "run study.toml --out other",
        (),
    ),
    ("run into a file", nothing, "run study.toml --out test.csv", ()),
    ("run below a file", nothing, "run study.toml --out test.csv/run", ()),
    ("resume nothing", nothing, "resume nowhere", ()),
    ("resume no run folder", lambda p: (p / "dir").mkdir(), "resume dir", ()),
    ("resume a file", nothing, "resume study.toml", ()),
    ("resume a finished run", nothing, "resume finished", ()),
    ("predict with an unfinished run", nothing, "predict stopped test.csv", ()),
    ("evaluate an unfinished run", nothing, "evaluate stopped", ()),
    (
        "predict on other columns",
        write("new.csv", "age,pulse\n1,2\n"),
        "predict finished new.csv",
        (),
    ),
    ("predict on nothing", nothing, "predict finished nowhere.csv", ()),
    ("predict on a missing folder", nothing, "predict finished nowhere", ()),
    ("predict on a text file", write("new.txt", "1,2"), "predict finished new.txt", ()),
    ("predict on a study file", nothing, "predict finished study.toml", ()),
    (
        "predict on arrays of another shape",
        lambda p: np.savez(p / "new.npz", x=np.zeros((2, 5))),
        "predict finished new.npz",
        (),
    ),
    (
        "predict on images with a table model",
        images({"scans/1.png": (4, 4)}),
        "predict finished scans",
        (),
    ),
    (
        "predict into a missing folder",
        nothing,
        "predict finished test.csv --out no/such/folder.csv",
        (),
    ),
    (
        "predict into a folder",
        lambda p: (p / "dir").mkdir(),
        "predict finished test.csv --out dir",
        (),
    ),
    (
        "predict for a site with candidates",
        view('{ kind = "candidates" }'),
        "predict finished test.csv --site north.toml",
        (),
    ),
    ("predict for a missing site", nothing, "predict finished test.csv --site nowhere.toml", ()),
    ("predict for a study as site", nothing, "predict finished test.csv --site study.toml", ()),
    ("evaluate on a table", nothing, "evaluate finished --data test.csv", ()),
    (
        "evaluate on other columns",
        write("north.csv", "heat,age,diagnosis\n39.5,31,flu\n"),
        "evaluate finished --data north.toml",
        (),
    ),
    (
        "evaluate on unlabelled",
        view('{ kind = "unlabeled" }'),
        "evaluate finished --data north.toml",
        (),
    ),
    (
        "evaluate after the test set moved",
        lambda p: (p / "test.csv").unlink(),
        "evaluate finished",
        (),
    ),
    # --- new and list
    ("new into a full folder", write("mine/notes.txt", "x"), "new mine", ()),
    ("new of unknown kind", nothing, "new mine --kind table", ()),
    ("new below a file", nothing, "new test.csv/mine", ()),
    ("list of what is not", nothing, "list method", ()),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the good files, a finished run and one stopped after its first round."""
    folder = tmp_path_factory.mktemp("runs")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    from potluck.study.execute import prepare, run_study
    from potluck.study.schema import read_study

    study = read_study(folder / "study.toml")
    run_study(study, prepare(study), folder / "finished", lambda record: None)

    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, prepare(study), folder / "stopped", stop)
    return folder


@pytest.fixture
def folder(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def potluck(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["potluck", *command.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.mark.parametrize(
    ("arrange", "command", "says"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_broken_input_is_explained_before_training(
    arrange: Arrange,
    command: str,
    says: tuple[str, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request,
) -> None:
    arrange(folder)
    code = potluck(command, monkeypatch)
    err = capsys.readouterr().err
    with open("/tmp/h1/out.txt", "a") as f:
        f.write(f"### {request.node.callspec.id} [{command}] -> {code}\n{err}\n")
