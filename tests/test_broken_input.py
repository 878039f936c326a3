"""Broken input of every kind: each is refused before training, in a sentence that says where
it is, what is wrong and what to do. No traceback, no run."""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from commands import copied
from PIL import Image

from potluck.cli import main
from potluck.study import execute
from potluck.study.build import prepare
from potluck.study.checkpoint import load, save
from potluck.study.execute import run_study
from potluck.study.schema import read_study

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

EXTRA_SITE = """\
[[simulation.sites]]
name = "clinic"
view = { kind = "unlabeled" }

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


def folder(name: str) -> Arrange:
    """Make a folder."""
    return lambda place: (place / name).mkdir()


def remove(file: str) -> Arrange:
    """Remove a file."""
    return lambda place: (place / file).unlink()


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
    """Images of given sizes in a folder, and a site that has them."""

    def arrange(folder: Path) -> None:
        for name, size in sizes.items():
            (folder / "scans" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", size).save(folder / "scans" / name)

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


NEWEST = Path("stopped/checkpoints/round-000001.safetensors")


def truncated(place: Path) -> None:
    """Cut the newest checkpoint in half, as a full disk does."""
    whole = (place / NEWEST).read_bytes()
    (place / NEWEST).write_bytes(whole[: len(whole) // 2])


def altered(place: Path) -> None:
    """Change one byte of the newest checkpoint."""
    whole = bytearray((place / NEWEST).read_bytes())
    whole[-1] ^= 1
    (place / NEWEST).write_bytes(whole)


def another_study(place: Path) -> None:
    """Put another study's checkpoint where the newest was."""
    folder = (place / NEWEST).parent
    state = load(folder, read_study(place / "stopped" / "study.json").hash())
    shutil.rmtree(folder)
    save(state, "0123456789abcdef", folder)


def damaged_model(place: Path) -> None:
    """Change one byte of a final model."""
    path = place / "finished" / "model.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)


SIM, CHECK = "check simulation.toml", "check study.toml"
SITE = "check north.toml --study study.toml"


class Case(NamedTuple):
    """What is broken, how to break it, a command, and what its message must say."""

    name: str
    arrange: Arrange
    command: str
    says: Sequence[str]


STUDY_FILES = [
    Case("missing", nothing, "run nowhere.toml", ["nowhere.toml: there is no such file"]),
    Case("folder", folder("dir"), "run dir", ["dir is a folder; give the file itself"]),
    Case("folder.toml", folder("dir.toml"), "check dir.toml", ["dir.toml is a folder"]),
    Case("binary", write("study.toml", b"\xff\xfe\x00"), CHECK, ["not a text file", "UTF-8"]),
    Case(
        "invalid TOML",
        edit("study.toml", "rounds = 2", "rounds = = 2"),
        "run study.toml",
        ["study.toml is not valid TOML", "line 2"],
    ),
    Case("invalid JSON", write("a.json", "{"), "run a.json", ["a.json is not valid JSON"]),
    Case("JSON list", write("a.json", "[1]"), "run a.json", ["a.json is no study", "study.json"]),
    Case("JSON missing", nothing, "run a.json", ["a.json: there is no such file"]),
    Case("JSON folder", folder("a.json"), "run a.json", ["a.json is a folder"]),
    Case("empty", write("study.toml", ""), CHECK, ["study.toml: rounds is missing; add it"]),
    Case("site file", nothing, "run north.toml", ["is a site file, not a study", "--study"]),
]

KEYS = [
    Case(
        "top level",
        edit("simulation.toml", "rounds", "rouns"),
        SIM,
        ["rounds is missing", 'unknown key "rouns"', 'did you mean "rounds"?'],
    ),
    Case("far off", nothing, SIM + " -o zzz=1", ['zzz: unknown key "zzz"', "Known: batch_norm"]),
    Case("local", nothing, SIM + " -o local.epoch=1", ["local.epoch", 'did you mean "epochs"?']),
    Case("run", nothing, SIM + " -o run.devise=cpu", ["run.devise", 'did you mean "device"?']),
    Case(
        "simulation",
        nothing,
        SIM + " -o simulation.partitoin=iid",
        ["simulation.partitoin", 'did you mean "partition"?'],
    ),
    Case(
        "simulated site",
        edit("simulation.toml", "samples", "sample"),
        SIM,
        ["simulation.sites[0].sample", 'did you mean "samples"?'],
    ),
    Case(
        "simulated view",
        simulated('{ kind = "noisy", rate = 0.1, rho = 0.2 }'),
        SIM,
        ['simulation.sites[0].view.rho: unknown key "rho"', "Known: ", "noise"],
    ),
    Case(
        "simulated server",
        nothing,
        SIM + " -o simulation.server={view={kind='exact'},per_clas=2}",
        ["simulation.server.per_clas", 'did you mean "per_class"?'],
    ),
    Case(
        "federation",
        edit("study.toml", "classes", "clases"),
        CHECK,
        ["federation.classes is missing", "federation.clases", 'did you mean "classes"?'],
    ),
    Case(
        "federation.test",
        edit("study.toml", "label =", "lable ="),
        CHECK,
        ["federation.test.lable", 'did you mean "label"?', "features"],
    ),
    Case(
        "site file",
        edit("north.toml", "data =", "dat ="),
        SITE,
        ["north.toml: data is missing", 'did you mean "data"?'],
    ),
    Case(
        "declared view",
        view('{ kind = "coarse", maping = {} }'),
        SITE,
        ["view.maping", 'did you mean "mapping"?'],
    ),
]

VALUES = [
    Case("text", nothing, SIM + " -o rounds=many", ['rounds must be a whole number; it is "many"']),
    Case("fraction", nothing, SIM + " -o rounds=2.5", ["must be a whole number; it is 2.5"]),
    Case("negative", nothing, SIM + " -o rounds=-3", ["rounds must be above 0; it is -3"]),
    Case("zero", nothing, SIM + " -o rounds=0", ["rounds must be above 0; it is 0"]),
    Case("a table", nothing, SIM + " -o rounds.more=3", ["whole number; it is a table"]),
    Case("missing", edit("simulation.toml", "rounds = 2", ""), SIM, ["rounds is missing; add it"]),
    Case("infinite", nothing, SIM + " -o local.lr=inf", ["local.lr must be a finite number"]),
    Case("nan", nothing, SIM + " -o local.lr=nan", ["local.lr must be a finite number"]),
    Case("no section", nothing, SIM + " -o local=3", ["local must be a table"]),
    Case(
        "sites no list",
        edit("simulation.toml", "[[simulation.sites]]", "[simulation.sites]"),
        SIM,
        ["simulation.sites must be a list"],
    ),
    Case(
        "no sites",
        nothing,
        CHECK + " -o federation.sites=[]",
        ["federation.sites is empty", "potluck coordinate"],
    ),
    Case(
        "several at once",
        nothing,
        SIM + " -o rounds=-1 -o local.lr=-1 -o sede=3",
        ["rounds must be above 0", "local.lr must be above 0", 'did you mean "seed"?'],
    ),
    Case("device", nothing, SIM + " -o run.device=gpu", ["run.device", "Known: cpu, cuda, auto"]),
    Case("batch_norm", nothing, SIM + " -o batch_norm=locl", ["batch_norm", '"local"?']),
    Case("no name", nothing, SIM + " -o method=3", ["method: give a name", '"likelihood"']),
    Case("two classes", nothing, CHECK + " -o federation.classes=['flu']", ["2 or more entries"]),
    Case(
        "distinct classes",
        nothing,
        CHECK + " -o federation.classes=['flu','flu']",
        ["federation.classes", '"flu" more than once'],
    ),
]

NAMES = [
    Case(
        f"{key}={given}",
        nothing,
        f"{SIM} -o {key}={given}",
        [f"simulation.toml: {key}", f'unknown {what} "{given}"', f'did you mean "{meant}"?'],
    )
    for key, what, given, meant in [
        ("method", "method", "likelyhood", "likelihood"),
        ("model", "model", "resnet81", "resnet18"),
        ("federated", "federated optimiser", "fedavgg", "fedavg"),
        ("local.optimiser", "optimiser", "sdg", "sgd"),
        ("local.schedule", "schedule", "cosinus", "cosine"),
        ("run.engine", "engine", "sequental", "sequential"),
        ("simulation.partition", "partition", "dirichlett", "dirichlet"),
        ("simulation.dataset", "data set", "digit", "digits"),
    ]
]

OPTIONS = [
    Case(given, nothing, f"{SIM} -o {given}", says)
    for given, says in [
        ("method.augmnt=flip", ['unknown option of likelihood "augmnt"', '"augment"?']),
        ("model.hiden=[4]", ['unknown option of mlp "hiden"', 'did you mean "hidden"?']),
        ("local.optimiser.momentun=0.9", ["local.optimiser.momentun", '"momentum"?']),
        ("federated.mu=0.9", ['unknown option of fedavg "mu"', "Known: weights"]),
        ("local.schedule.gamma=0.9", ['schedule "constant" has no options; remove it']),
        ("simulation.partition=dirichlet", ["partition.alpha is missing", "alpha = …"]),
        ("model.hidden=wide", ['model.hidden must be a list, such as [a, b]; it is "wide"']),
        ("method.augment=mirror", ['method.augment is an unknown choice "mirror"', "flip"]),
        ("model.dropout=1.5", ['model "mlp": dropout must be', "not 1.5"]),
        ("model.hidden=[-4]", ["hidden must be a list of positive"]),
        ("model.dropout=inf", ["model.dropout must be a finite number"]),
        ("local.optimiser.momentum=1.5", ["local.optimiser.momentum is 1.5", "below 1"]),
        ("simulation.partition={name='dirichlet',alpha=-1}", ["alpha must be above 0"]),
    ]
]

TOGETHER = [
    Case("no source", write("study.toml", "rounds = 1"), CHECK, ["[federation]", "neither is"]),
    Case(
        "two sources",
        nothing,
        CHECK + " -o simulation={dataset='digits',sites=[{name='a',view={kind='exact'}}]}",
        ["exactly one of [simulation]", "both are here"],
    ),
    Case("cohort", nothing, SIM + " -o cohort=3", ["cohort is 3", "leave it out for all"]),
    Case(
        "fednova with adam",
        nothing,
        SIM + " -o federated=fednova -o local.optimiser=adam",
        ["simulation.toml: federated.name is fednova", "use sgd"],
    ),
    Case("fedbn", nothing, SIM + " -o federated=fedbn", ['set batch_norm = "local"']),
    Case("augment", nothing, CHECK + " -o method.augment=flip", ["not images", '"none"']),
    Case("image model", nothing, CHECK + " -o model=lenet", ['for tables use "linear" or "mlp"']),
]

OVERRIDES = [
    Case("no =", nothing, SIM + " -o rounds", ['override "rounds": write KEY=VALUE']),
    Case("no key", nothing, SIM + " -o =3", ["write KEY=VALUE"]),
    Case(
        "into a list",
        nothing,
        SIM + " -o simulation.sites.samples=3",
        ["sites: it is a list of 1", "count them from 0, e.g. sites.0"],
    ),
    Case("no entry", nothing, SIM + " -o simulation.sites.1.samples=3", ['"1" is none of its']),
    Case("no scales", nothing, SIM + " --scale small", ["has no scales", "leave out --scale"]),
    Case(
        "unknown scale",
        write("study.toml", FEDERATION + "[scales.smoke]\nrounds = 1\n"),
        CHECK + " --scale smok",
        ['unknown scale "smok"', 'did you mean "smoke"?'],
    ),
    Case(
        "scales no table",
        write("study.toml", "scales = 3\n" + FEDERATION),
        CHECK + " --scale small",
        ["has no scales"],
    ),
    Case(
        "scale no table",
        write("study.toml", FEDERATION + "[scales]\nsmall = 3\n"),
        CHECK + " --scale small",
        ["scales.small must be a table"],
    ),
]

SIMULATED_DATA = [
    Case(
        "no such path",
        nothing,
        SIM + " -o simulation.dataset=mnist -o simulation.path=nowhere",
        ["simulation.toml: simulation: path", 'nowhere" of data set "mnist" does not exist'],
    ),
    Case("no path", nothing, SIM + " -o simulation.dataset=mnist", ["needs a path"]),
    Case(
        "empty path",
        folder("mnist"),
        SIM + " -o simulation.dataset=mnist -o simulation.path=mnist",
        ['no files of data set "mnist" found. Looked at'],
    ),
    Case("needless path", nothing, SIM + " -o simulation.path=x", ["leave out the path"]),
    Case(
        "more sites than samples",
        edit("simulation.toml", "samples = 40", "count = 5000"),
        SIM,
        ["simulation.partition", "cannot split", "use fewer sites"],
    ),
    Case(
        "name twice",
        edit("simulation.toml", "[simulation]", EXTRA_SITE + "[simulation]"),
        SIM,
        ['two sites are called "clinic"'],
    ),
    Case(
        "private server",
        nothing,
        SIM + " -o simulation.server={view={kind='subset',count=2,private=true},samples=20}",
        ["the server's own view is private", "give it a subset view"],
    ),
    Case(
        "server of no size",
        nothing,
        SIM + " -o simulation.server={view={kind='exact'}}",
        ["simulation.server needs either per_class or samples"],
    ),
    Case(
        "server takes all",
        nothing,
        SIM + " -o simulation.server={view={kind='exact'},samples=9999}",
        ["simulation.server takes all", "leave some for the sites"],
    ),
]

SIMULATED_VIEWS = [
    Case(declared, simulated(f"{{ {declared} }}"), SIM, says)
    for declared, says in [
        ("rho = 0.1", ["sites[0].view needs a kind", "Known: exact, coarse"]),
        ('kind = "bag", bags = 3', ['unknown kind "bag"', 'did you mean "bags"?']),
        ('kind = "coarse"', ['site "clinic": a coarse view needs exactly one of', "0 were"]),
        ('kind = "coarse", mapping = {}, grouping = "x"', ["exactly one of", "2 were given"]),
        ('kind = "coarse", mapping = { low = ["0", "ten"] }', ['unknown target class "ten"']),
        ('kind = "coarse", grouping = "super"', ["no groupings", "give a mapping instead"]),
        ('kind = "noisy", rate = 1.5', ["view.rate must be below 1; it is 1.5"]),
        ('kind = "noisy"', ["simulation.sites[0].view.rate is missing"]),
        ('kind = "noisy", noise = "pairs", rate = 0.1', ["view.noise", '"pair"?']),
        ('kind = "bags", bags = 100', ["cannot fill 100 bags with 40 samples; use fewer bags"]),
        ('kind = "candidates", rho = 1', ["view.rho must be below 1; it is 1."]),
        ('kind = "subset", classes = ["0", "eleven"]', ['site "clinic"', '"eleven". Known: 0']),
        ('kind = "subset", classes = []', ["class set of the site is empty; name the classes"]),
        ('kind = "subset", count = 11', ["count is 11, but there are only 10 classes"]),
        ('kind = "subset", count = 2, classes = ["0"]', ["takes classes or count, not both"]),
    ]
] + [
    Case("text", simulated('"exact"'), SIM, ['view = { kind = "exact" }']),
]

SITE_FILES = [
    Case("no study", nothing, "check north.toml", ["potluck check north.toml --study study.toml"]),
    Case(
        "of a simulation",
        nothing,
        "check north.toml --study simulation.toml",
        ["simulation.toml is a simulation", "[federation]"],
    ),
    Case("no view", edit("north.toml", "view =", "#"), SITE, ["north.toml: view is missing"]),
    Case("no name", edit("north.toml", "name =", "#"), SITE, ["north.toml: name is missing"]),
    Case(
        "empty name",
        edit("north.toml", 'name = "north"', 'name = ""'),
        SITE,
        ["north.toml: name must not be empty"],
    ),
    Case("data: no kind", data('{ path = "north.csv" }'), SITE, ['data = { kind = "table" }']),
    Case("data: text", data('"north.csv"'), SITE, ["data needs a kind", "table, images, arrays"]),
    Case("data: kind", data('{ kind = "tabel", path = "x" }'), SITE, ['did you mean "table"?']),
    Case(
        "Windows path",
        edit("north.toml", '"north.csv"', '"C:\\data\\north.csv"'),
        SITE,
        ["north.toml is not valid TOML", "line 2", "Write paths with / instead"],
    ),
    Case("missing", remove("north.toml"), CHECK, ["north.toml: there is no such file"]),
    Case("invalid", write("north.toml", 'name = "n'), CHECK, ["north.toml is not valid TOML"]),
    Case(
        "name twice",
        edit("south.toml", 'name = "south"', 'name = "north"'),
        CHECK,
        ["north.toml and south.toml both have", 'name "north"', "a name of its own"],
    ),
    Case("listed twice", edit("study.toml", "south", "north"), CHECK, ["list it once"]),
]

DECLARED_VIEWS = [
    Case(declared, view(f"{{ {declared} }}"), SITE, ["north.toml", *says])
    for declared, says in [
        ('kind = "corse"', ["view.kind", 'unknown kind "corse"', 'did you mean "coarse"?']),
        ("private = true", ["view needs a kind", "Known: exact"]),
        (
            'kind = "coarse", mapping = { sick = ["flu", "colt"], fine = ["well"] }',
            ['site "north"', 'label "sick" covers an unknown', 'did you mean "cold"?'],
        ),
        (
            'kind = "coarse", mapping = { sick = ["flu"], fine = ["well"] }',
            ['site "north"', 'no label covers the target class "cold"', "add each"],
        ),
        (
            'kind = "coarse", mapping = { sick = ["flu", "cold"], fine = ["well"] }',
            ['"cold"', "1 of 4 samples, first in number 3", "Add the label to view.mapping"],
        ),
        ('kind = "coarse", mapping = { flu = "flu" }', ["view.mapping.flu must be a list"]),
        ('kind = "coarse", mapping = {}, matrix = [[1]]', ["either view.mapping", "both are"]),
        ('kind = "coarse"', ["either view.mapping", "neither is given"]),
        (
            'kind = "coarse", mapping = { a = ["flu", "cold", "well"] }, labels = ["x"]',
            ["view.labels names the rows of a matrix; leave it out"],
        ),
        (
            'kind = "coarse", matrix = [[1, 0], [0, 1]], labels = ["a", "b"]',
            ["must have 2 rows × 3 columns", "it is 2 × 2"],
        ),
        ('kind = "coarse", matrix = [[1, 1, 1]], labels = ["a", "b"]', ["it is 1 × 3"]),
        ('kind = "noisy", matrix = [[1, 0], [0, 1, 0], [0]]', ["rows have different lengths"]),
        (
            'kind = "noisy", matrix = [[80, 10, 10], [10, 80, 10], [10, 10, 80]]',
            ['column of class "flu" sums to 100, not 1', "divide percentages by 100"],
        ),
        (
            'kind = "noisy", matrix = [[1.2, 0, 0], [-0.2, 1, 0], [0, 0, 1]]',
            ["negative entry -0.2 in row 2, column 1", "between 0 and 1"],
        ),
        ('kind = "noisy", matrix = [["x"]]', ['view.matrix[0][0] must be a number; it is "x"']),
        ('kind = "candidates", separator = ""', ["view.separator must not be empty"]),
        ('kind = "subset", classes = ["flu", "colt"]', ["view.classes", 'you mean "cold"?']),
        ('kind = "subset", classes = []', ["view.classes", "name the classes that occur there"]),
        (
            'kind = "subset", classes = ["flu", "well"]',
            ['"cold"', "Add the class to view.classes, or leave these samples out"],
        ),
        (
            'kind = "subset", classes = ["flu", "well"], private = true',
            ['"cold"', "Add the class to view.classes, or leave these samples out"],
        ),
    ]
]

NO_LABELS = data('{ kind = "table", path = "north.csv", features = ["age", "heat"] }')
CANDIDATES = view('{ kind = "candidates" }')

OBSERVATIONS = [
    Case("bag without priors", bags("abcd"), SITE, ['bag "d" occurs in the data', "view.priors"]),
    Case(
        "priors do not sum to 1",
        bags("abc", PRIORS.replace("0.8", "0.4")),
        SITE,
        ['row of bag "a" sums to 0.6, not 1', "divide percentages"],
    ),
    Case(
        "too few bags",
        bags("ab", PRIORS.replace("c,0.1,0.1,0.8\n", "")),
        SITE,
        ["rank 2 but there are 3 classes", "add bags", "minimum_rank = 2"],
    ),
    Case(
        "bags alike",
        bags("abc", "bag,flu,cold,well\na,0.2,0.3,0.5\nb,0.2,0.3,0.5\nc,0.1,0.1,0.8\n"),
        SITE,
        ["rank 2", "3 bags, 2 distinct rows"],
    ),
    Case("empty bag", bags("ab"), SITE, ['bag "c", but no sample is in it; remove the bag']),
    Case("bag twice", bags("abc", PRIORS + "a,0.1,0.1,0.8\n"), SITE, ["view.priors", '"a" more']),
    Case(
        "no priors table",
        bags("abc", PRIORS, '{ kind = "bags", priors = "prior.csv" }'),
        SITE,
        ["view.priors", 'prior.csv" does not exist'],
    ),
    Case(
        "priors table without bags",
        bags("abc", PRIORS.replace("bag", "bags")),
        SITE,
        ["view.priors", 'unknown column "bag"', 'did you mean "bags"?'],
    ),
    Case(
        "priors table without a class",
        bags("abc", PRIORS.replace("cold", "colt")),
        SITE,
        ["view.priors", 'unknown column "cold"'],
    ),
    Case(
        "priors of two classes",
        bags("ab", PRIORS, '{ kind = "bags", priors = { a = [0.5, 0.5], b = [1, 0] } }'),
        SITE,
        ["must have 2 rows × 3 columns"],
    ),
    Case(
        "priors a number",
        bags("abc", PRIORS, '{ kind = "bags", priors = 3 }'),
        SITE,
        ["north.toml: view.priors must be"],
    ),
    Case(
        "target prior zero",
        bags("abc", PRIORS, BAGS.replace("}", ", target_prior = [0.5, 0.5, 0] }")),
        SITE,
        ['target prior π is 0 for class "well"', "give the class a share"],
    ),
    Case(
        "minimum rank",
        bags("abc", PRIORS, BAGS.replace("}", ", minimum_rank = 0 }")),
        SITE,
        ["minimum_rank is 0", "from 1 to"],
    ),
    Case("bags, no labels", both(bags("abc"), NO_LABELS), SITE, ['"bags"', "data.label"]),
    Case("candidates, no labels", both(CANDIDATES, NO_LABELS), SITE, ["data.label"]),
    Case("exact, no labels", NO_LABELS, SITE, ['view.kind is "exact"', "data.label"]),
    Case(
        "unknown candidate",
        both(CANDIDATES, edit("north.csv", "flu", "flu|colt")),
        SITE,
        ['unknown label "colt"', 'did you mean "cold"?'],
    ),
    Case(
        "no candidate",
        both(CANDIDATES, edit("north.csv", "24,38.1,cold", "24,38.1,|")),
        SITE,
        ["candidate set of sample 2 is empty", "list all classes"],
    ),
    Case(
        "other separator",
        both(CANDIDATES, edit("north.csv", "flu", "flu;cold")),
        SITE,
        ['unknown label "flu;cold"', 'separated by "|" (view.separator)'],
    ),
    Case(
        "candidate matrix",
        both(arrays(x=np.eye(3, 2), y=np.eye(3) * 0.5), CANDIDATES),
        SITE,
        ["1 for a candidate and 0 otherwise", "sample 0 has 0.5"],
    ),
    Case(
        "label outside the space",
        edit("north.csv", "cold", "kold"),
        CHECK,
        ["north.toml", 'unknown label "kold"', '"cold"?', "Correct the label", "kind coarse"],
    ),
]

TABLES = [
    Case("missing", remove("north.csv"), CHECK, ['site "north"', 'north.csv" does not exist']),
    Case(
        "no such feature",
        edit("north.toml", "label =", 'features = ["age", "heet"], label ='),
        CHECK,
        ['north.csv": unknown column "heet"', 'did you mean "heat"?'],
    ),
    Case(
        "text",
        edit("north.csv", "39.5", "high"),
        CHECK,
        ['column "heat" has text (row 1: "high")', "leave it out of the features"],
    ),
    Case("decimal comma", edit("north.csv", "39.5", '"39,5"'), CHECK, ['"heat" has text', "39,5"]),
    Case("nan", edit("north.csv", "39.5", "nan"), CHECK, ['"heat" has no value in 1 of 4 rows']),
    Case("no value", edit("north.csv", "39.5", ""), CHECK, ["has no value", "Fill them in"]),
    Case("no label", edit("north.csv", "39.5,flu", "39.5,"), CHECK, ['"diagnosis" has no value']),
    Case("ragged", edit("north.csv", "39.5,flu", "1,2,3"), CHECK, ["Expected 3 columns, got 4"]),
    Case("semicolons", edit("north.csv", ",", ";"), CHECK, ['Then say separator = ";"']),
    Case("empty", write("north.csv", ""), CHECK, ["north.csv", "Empty CSV file"]),
    Case("no rows", write("north.csv", "age,heat,diagnosis\n"), CHECK, ["has no rows"]),
    Case(
        "excel",
        both(write("north.xlsx", b"PK"), edit("north.toml", "north.csv", "north.xlsx")),
        CHECK,
        ["north.xlsx", "must end in .csv"],
    ),
    Case(
        "other order",
        write("south.csv", "heat,age,diagnosis\n39.5,31,flu\n"),
        CHECK,
        ['"south" has the input columns heat, age, but "north" has age, heat', "same order"],
    ),
    Case(
        "one column more",
        write("south.csv", "age,heat,pulse,diagnosis\n31,39.5,80,flu\n"),
        CHECK,
        ['"south" has the input columns age, heat, pulse', "data.features"],
    ),
    Case(
        "other order in the test set",
        write("test.csv", "heat,age,diagnosis\n39.5,31,flu\n"),
        CHECK,
        ['"the test set" has the input columns heat, age'],
    ),
    Case("test label", edit("test.csv", "cold", "kold"), CHECK, ["federation.test", '"cold"?']),
    Case("no test set", remove("test.csv"), CHECK, ["federation.test", "does not exist"]),
    Case(
        "no test labels",
        edit("study.toml", 'label = "diagnosis"', 'features = ["age", "heat"]'),
        CHECK,
        ["federation.test: the test set needs labels"],
    ),
]

IMAGES_AND_ARRAYS = [
    Case(
        "unreadable",
        both(images({"flu/1.png": (4, 4)}), write("scans/flu/2.png", b"not an image")),
        CHECK,
        ["scans/flu/2.png", "cannot be read as an image"],
    ),
    Case(
        "sizes",
        images({"flu/1.png": (4, 4), "flu/2.png": (5, 4)}),
        CHECK,
        ["has 4 × 4 pixels", "has 4 × 5", "give a size"],
    ),
    Case("no folders", images({"1.png": (4, 4)}), CHECK, ["no sub-folders", "sub-folder of that"]),
    Case("no images", data('{ kind = "images", path = "scans" }'), CHECK, ["does not exist"]),
    Case("label", images({"kold/1.png": (4, 4)}), CHECK, ['unknown label "kold"', '"cold"?']),
    Case("and tables", images({"flu/1.png": (4, 4)}), CHECK, ['"south" is a table and "north" is']),
    Case(
        "listed but missing",
        both(
            images({"1.png": (4, 4)}),
            write("list.csv", "file,label\n1.png,flu\n2.png,flu\n"),
            edit("north.toml", 'mode = "L"', 'mode = "L", table = "list.csv"'),
        ),
        CHECK,
        ["list.csv", "lists 1 of 2 images that are not there", "2.png"],
    ),
    Case(
        "resized to nothing",
        both(images({"flu/1.png": (4, 4)}), edit("north.toml", 'mode = "L"', "size = [0, 4]")),
        CHECK,
        ["cannot be resized to (0, 4)"],
    ),
    Case("array", arrays(inputs=np.zeros((2, 2)), y=["flu", "well"]), CHECK, ['array "x". Known']),
    Case("counts", arrays(x=np.zeros((3, 2)), y=["flu", "well"]), CHECK, ["has 3 samples, but"]),
    Case("array nan", arrays(x=[[0.0, np.nan]], y=["flu"]), CHECK, ["row 0, column 1", "is nan"]),
    Case(
        "objects",
        arrays(x=np.array([[1, None]], dtype=object), y=["flu"]),
        CHECK,
        ["must hold numbers or text"],
    ),
    Case("index", arrays(x=np.zeros((2, 2)), y=[0, 3]), CHECK, ["label index 3 is outside 0…2"]),
    Case("fractions", arrays(x=np.zeros((2, 2)), y=[0.0, 1.5]), CHECK, ["give names, or whole"]),
    Case(
        "no archive",
        both(write("north.npz", "text"), data('{ kind = "arrays", path = "north.npz" }')),
        CHECK,
        ["north.npz", "is not an NPZ file"],
    ),
]

RUNS = [
    Case("run again", nothing, "run study.toml --out finished", ["potluck resume finished"]),
    Case("run", write("d/notes", "x"), "run study.toml --out d", ["not empty", "another --out"]),
    Case("run to a file", nothing, "run study.toml --out test.csv", ["is a file, not a folder"]),
    Case("run below a file", nothing, "run study.toml --out test.csv/run", ["cannot be written"]),
    Case("resume nothing", nothing, "resume nowhere", ["nowhere: not a run folder"]),
    Case("resume other", folder("dir"), "resume dir", ["it has no study.json", "potluck run"]),
    Case("resume finished", nothing, "resume finished", ["finished: this run is finished"]),
    Case(
        "resume without older",
        nothing,
        "resume stopped --previous",
        ["oldest checkpoint there is that of round 1", "without --previous"],
    ),
    Case("half a checkpoint", truncated, "resume stopped", ["round-000001.safetensors"]),
    Case("altered checkpoint", altered, "resume stopped", ["round-000001.safetensors"]),
    Case(
        "checkpoint of another study",
        another_study,
        "resume stopped",
        ["round-000001", "another study"],
    ),
    Case(
        "study.json cut short", write("stopped/study.json", "{"), "resume stopped", ["study.json"]
    ),
    Case("damaged model", damaged_model, "predict finished test.csv", ["model.safetensors"]),
    Case("predict early", nothing, "predict stopped test.csv", ["potluck resume stopped"]),
    Case("evaluate early", nothing, "evaluate stopped", ["no final model", "potluck resume"]),
]

USE = [
    Case(
        "other columns",
        write("new.csv", "age,pulse\n1,2\n"),
        "predict finished new.csv",
        ["the model takes the columns age, heat", 'new.csv": unknown column "heat"'],
    ),
    Case("no table", nothing, "predict finished no.csv", ['"no.csv" does not exist']),
    Case("no folder", nothing, "predict finished no", ["no: there is no such file or folder"]),
    Case("text", write("new.txt", "1"), "predict finished new.txt", ["give a table (.csv"]),
    Case("study", nothing, "predict finished study.toml", ["or a site file (.toml)"]),
    Case(
        "other size",
        arrays(x=np.zeros((2, 5))),
        "predict finished north.npz",
        ["samples have the size 5", "was trained on 2", "same kind of samples"],
    ),
    Case("images", images({"1.png": (4, 4)}), "predict finished scans", ["the size 3 × 4 × 4"]),
    Case("no out", nothing, "predict finished test.csv --out a/b.csv", ["no folder a; make it"]),
    Case("out", folder("dir"), "predict finished test.csv --out dir", ["--out dir is a folder"]),
    Case(
        "candidates' labels",
        CANDIDATES,
        "predict finished test.csv --site north.toml",
        ['north.toml: view.kind is "candidates"', "leave --site out"],
    ),
    Case("no site", nothing, "predict finished test.csv --site no.toml", ["no.toml: there is no"]),
    Case(
        "study as site",
        nothing,
        "predict finished test.csv --site study.toml",
        ["study.toml is a study, not a site file"],
    ),
    Case("table", nothing, "evaluate finished --data test.csv", ["test.csv is data; give a site"]),
    Case(
        "evaluate other order",
        write("north.csv", "heat,age,diagnosis\n39.5,31,flu\n"),
        "evaluate finished --data north.toml",
        ["input columns are heat, age", "trained on age, heat, in this order"],
    ),
    Case(
        "evaluate unlabelled",
        view('{ kind = "unlabeled" }'),
        "evaluate finished --data north.toml",
        ['view.kind is "unlabeled", which does not say what is right'],
    ),
    Case("new over", write("mine/notes", "x"), "new mine", ["not empty; choose another name"]),
    Case("new kind", nothing, "new mine --kind table", ["--kind", 'did you mean "tables"?']),
    Case("new below a file", nothing, "new test.csv/mine", ["test.csv/mine: cannot be written"]),
    Case("list", nothing, "list method", ['unknown list "method"', 'did you mean "methods"?']),
]

GROUPS = {
    "study file": STUDY_FILES,
    "key": KEYS,
    "value": VALUES,
    "name": NAMES,
    "option": OPTIONS,
    "together": TOGETHER,
    "override": OVERRIDES,
    "simulated data": SIMULATED_DATA,
    "simulated view": SIMULATED_VIEWS,
    "site file": SITE_FILES,
    "declared view": DECLARED_VIEWS,
    "observation": OBSERVATIONS,
    "table": TABLES,
    "samples": IMAGES_AND_ARRAYS,
    "run": RUNS,
    "use": USE,
}
CASES = {f"{group}: {case.name}": case for group, cases in GROUPS.items() for case in cases}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the good files, a finished run and one stopped after its first round."""
    place = tmp_path_factory.mktemp("runs")
    for name, text in FILES.items():
        (place / name).write_text(text)
    study = read_study(place / "study.toml")
    prepared = prepare(study)
    run_study(study, prepared, place / "finished", lambda record: None)

    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, prepared, place / "stopped", stop)
    return place


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder, where training is a failure of the test."""

    def train(*_: object) -> None:
        pytest.fail("training started")

    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(execute, "run", train)
    return tmp_path


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_broken_input_is_explained_before_training(
    case: Case, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case.arrange(here)
    before = sorted(here.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["potluck", *case.command.split()])

    with pytest.raises(SystemExit) as stopped:
        main()

    told = capsys.readouterr()
    assert stopped.value.code == 2
    assert told.err.startswith("error: ")
    assert [fragment for fragment in case.says if fragment not in told.err] == [], told.err
    assert "Traceback" not in told.out + told.err
    assert sorted(here.rglob("*")) == before


def test_forty_kinds_and_more_are_told_apart() -> None:
    assert len(CASES) == sum(len(cases) for cases in GROUPS.values()) >= 40


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_explained(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["potluck", "check", "study.toml", "-o", "run.device=cuda"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    assert 'run.device is "cuda", but PyTorch finds no GPU here' in capsys.readouterr().err


def test_an_engine_that_needs_a_gpu_is_explained(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["potluck", "run", "study.toml", "-o", "run.device=cpu", "-o", "run.engine=graphed"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    assert 'run.engine is "graphed", which needs a GPU' in capsys.readouterr().err


def test_a_label_column_that_is_not_there_is_named_with_the_nearest_one(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("north.csv", "diagnosis", "diagnose")(here)
    monkeypatch.setattr(sys, "argv", ["potluck", "check", "study.toml"])
    with pytest.raises(SystemExit):
        main()
    assert 'unknown column "diagnosis"; did you mean "diagnose"?' in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["study file: invalid TOML", "observation: label outside the space", "use: other size"]
)
def test_a_process_ends_with_the_message_and_code_2(name: str, here: Path) -> None:
    case = CASES[name]
    case.arrange(here)
    ended = copied(*case.command.split(), cwd=here)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stdout + ended.stderr
    assert all(fragment in ended.stderr for fragment in case.says), ended.stderr
