"""Study files: defaults, hashes, overrides, scales, and named things with options."""

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from potluck.data.partitions import PARTITIONS
from potluck.engines import ENGINES
from potluck.errors import PotluckError
from potluck.federated import FEDERATED
from potluck.local import LOCAL_OPTIMISERS, SCHEDULES
from potluck.methods import METHODS
from potluck.models import MODELS
from potluck.study.build import make_recipe
from potluck.study.options import complete, make, options_of
from potluck.study.runfolder import RunFolder
from potluck.study.schema import (
    Local,
    Run,
    Study,
    merged,
    parse_override,
    parse_study,
    read_study,
)
from potluck.study.simulated_views import SimulatedCandidates, SimulatedExact
from potluck.study.simulation import SimulatedSites, Simulation

SITES = [
    {"name": "a", "view": {"kind": "exact"}},
    {"name": "b", "view": {"kind": "candidates", "rho": 0.3}, "count": 2},
]
LEAST: dict[str, Any] = {"rounds": 3, "simulation": {"dataset": "digits", "sites": SITES}}

TOML = """\
rounds = 3

[model]
name = "mlp"
hidden = [16]

[simulation]
dataset = "digits"
sites = [{ name = "a", view = { kind = "candidates", rho = 0.3 } }]

[scales.small]
rounds = 1
local.epochs = 2
model.hidden = [4]
"""


def parsed(**changes: Any) -> Study:
    return parse_study({**LEAST, **changes}, "study.toml")


# --- defaults


def test_a_resolved_study_has_every_default_written_out() -> None:
    resolved = parsed().resolved()
    assert resolved.keys() == Study.model_fields.keys()
    assert resolved["local"].keys() == Local.model_fields.keys()
    assert resolved["run"].keys() == Run.model_fields.keys()
    assert resolved["simulation"].keys() == Simulation.model_fields.keys()
    for site, kind in zip(
        resolved["simulation"]["sites"], (SimulatedExact, SimulatedCandidates), strict=True
    ):
        assert site.keys() == SimulatedSites.model_fields.keys()
        assert site["view"].keys() == kind.model_fields.keys()


@pytest.mark.parametrize(
    ("path", "known", "name"),
    [
        ("model", MODELS, "mlp"),
        ("method", METHODS, "likelihood"),
        ("federated", FEDERATED, "fedavg"),
        ("local.optimiser", LOCAL_OPTIMISERS, "sgd"),
        ("local.schedule", SCHEDULES, "constant"),
        ("run.engine", ENGINES, "auto"),
        ("simulation.partition", PARTITIONS, "iid"),
    ],
)
def test_a_resolved_choice_has_every_option_with_its_default(
    path: str, known: dict[str, Any], name: str
) -> None:
    found: Any = parsed().resolved()
    for key in path.split("."):
        found = found[key]
    options = {key: default for key, (_, default) in options_of(known[name]).items()}
    assert found == json.loads(json.dumps({"name": name, **options}))


def test_a_resolved_study_means_itself() -> None:
    study = parsed(local={"schedule": {"name": "step", "milestones": [1, 2]}})
    again = parse_study(json.loads(json.dumps(study.resolved())), "study.json")
    assert again == study
    assert again.hash() == study.hash()


def test_the_recipe_has_the_studys_values() -> None:
    study = parsed(
        seed=7,
        cohort=2,
        local={"lr": 0.5, "steps": 4, "optimiser": {"momentum": 0.9}, "schedule": "cosine"},
        federated={"name": "fedprox", "mu": 0.2},
    )
    recipe = make_recipe(study)
    assert (recipe.rounds, recipe.seed, recipe.cohort) == (3, 7, 2)
    assert (recipe.local.lr, recipe.local.steps) == (0.5, 4)
    assert recipe.local.optimiser.momentum == 0.9  # type: ignore[attr-defined]
    assert type(recipe.local.schedule).__name__ == "Cosine"
    assert recipe.federated.mu == 0.2  # type: ignore[attr-defined]


# --- the hash


CHANGES = [
    "name=other",
    "seed=1",
    "rounds=4",
    "cohort=2",
    "batch_norm=local",
    "standardise=federation",
    "model=linear",
    "model.hidden=[127]",
    "model.dropout=0.1",
    "method.augment=flip",
    "federated=fednova",
    "federated.weights=uniform",
    "federated.server_lr=0.9",
    "local.lr=0.2",
    "local.optimiser=adam",
    "local.optimiser.momentum=0.9",
    "local.schedule=cosine",
    "local.epochs=2",
    "local.steps=2",
    "local.batch_size=31",
    "local.last_batch=drop",
    "local.l1=0.1",
    "local.clip=1.0",
    "local.optimiser_state=keep",
    "simulation.dataset=mnist",
    "simulation.path=there",
    "simulation.partition={name='dirichlet', alpha=0.5}",
    "simulation.partition={name='dirichlet', alpha=0.6}",
    "simulation.sites.0.name=c",
    "simulation.sites.0.view.kind=unlabeled",
    "simulation.sites.1.view.rho=0.4",
    "simulation.sites.1.count=3",
    "simulation.sites.1.samples=10",
    "simulation.server={view={kind='exact'}, samples=9}",
    "simulation.server={view={kind='exact'}, per_class=9}",
]


def test_the_hash_changes_with_every_scientific_value() -> None:
    changed = [parse_study(merged(LEAST, parse_override(text)), "study") for text in CHANGES]
    assert len({study.hash() for study in [parsed(), *changed]}) == len(CHANGES) + 1


def test_the_hash_does_not_depend_on_how_the_study_is_written() -> None:
    spelt_out = parsed(
        local={"lr": 0.1, "optimiser": {"name": "sgd"}}, federated="fedavg", model={"hidden": [128]}
    )
    assert spelt_out.hash() == parsed().hash()
    assert parsed(folder="/elsewhere").hash() == parsed().hash()
    assert parsed(seed=1).hash() != parsed().hash()


def test_a_run_folders_study_reads_back_with_its_hash(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TOML)
    study = read_study(tmp_path / "study.toml")
    RunFolder.create(tmp_path / "run", study.resolved(), study.hash())
    again = read_study(tmp_path / "run" / "study.json")
    assert again.hash() == study.hash()
    assert again == study
    assert again.folder == str(tmp_path)  # where the data is, not where the run is


# --- overrides and scales


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("rounds=5", {"rounds": 5}),
        ("local.lr=1e-3", {"local": {"lr": 0.001}}),
        ("method=fedul", {"method": "fedul"}),
        ('name="two words"', {"name": "two words"}),
        ("name=two words", {"name": "two words"}),
        ("model.hidden=[64, 32]", {"model": {"hidden": [64, 32]}}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("local={lr=0.5}", {"local": {"lr": 0.5}}),
        ("name=a=b", {"name": "a=b"}),
        (" rounds = 5 ", {"rounds": 5}),
    ],
)
def test_an_override_is_a_key_and_a_toml_value_or_text(text: str, table: dict[str, Any]) -> None:
    assert parse_override(text) == table


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=3", ".a=3", ""])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(PotluckError, match="write KEY=VALUE"):
        parse_override(text)


@pytest.mark.parametrize(
    ("base", "change", "result"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}}, {"a": 1, "b": {"c": 4, "d": 3}}),
        # a bare name takes options
        ({"model": "mlp"}, {"model": {"hidden": [4]}}, {"model": {"name": "mlp", "hidden": [4]}}),
        # another name starts afresh: its options are not those of the old one
        ({"m": {"name": "mlp", "hidden": [4]}}, {"m": "linear"}, {"m": "linear"}),
        ({"m": {"name": "x", "a": 1}}, {"m": {"name": "y", "b": 2}}, {"m": {"name": "y", "b": 2}}),
        # lists are replaced whole, or entry by entry
        ({"a": [1, 2, 3]}, {"a": [4]}, {"a": [4]}),
        ({"s": [{"x": 1, "y": 2}, {}]}, {"s": {"0": {"x": 4}}}, {"s": [{"x": 4, "y": 2}, {}]}),
        ({"a": [1, 2, 3]}, {"a": {"0": 9}}, {"a": [9, 2, 3]}),
    ],
)
def test_changes_merge_into_tables(
    base: dict[str, Any], change: dict[str, Any], result: dict[str, Any]
) -> None:
    before = deepcopy(base)
    assert merged(base, change) == result
    assert base == before


def test_overrides_apply_in_order_on_top_of_the_scale(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TOML)
    small = read_study(tmp_path / "study.toml", scale="small")
    assert (small.rounds, small.local.epochs) == (1, 2)
    assert small.model["hidden"] == (4,)
    study = read_study(
        tmp_path / "study.toml",
        ["local.epochs=5", "local.epochs=6", "simulation.sites.0.view.rho=0.7"],
        "small",
    )
    assert (study.rounds, study.local.epochs) == (1, 6)
    assert study.simulation is not None
    assert study.simulation.sites[0].view.rho == 0.7  # type: ignore[union-attr]
    assert read_study(tmp_path / "study.toml").rounds == 3


# --- named things with options


@dataclass(frozen=True)
class Thing:
    """A thing."""

    size: int
    ratio: float = 0.5
    mode: Literal["fast", "slow"] = "fast"
    layers: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Bare:
    """A thing without options."""


THINGS = {"thing": Thing, "bare": Bare}


def test_completing_fills_in_defaults_and_converts_values() -> None:
    full = complete("x", "thing", THINGS, {"name": "thing", "size": 3, "layers": [2, 3]}, "bare")
    assert full == {"name": "thing", "size": 3, "ratio": 0.5, "mode": "fast", "layers": (2, 3)}
    assert make(THINGS, full) == Thing(3, layers=(2, 3))


def test_a_name_alone_or_nothing_is_enough_where_nothing_is_required() -> None:
    assert complete("x", "thing", THINGS, "bare", "bare") == {"name": "bare"}
    assert complete("x", "thing", THINGS, {}, "bare") == {"name": "bare"}
    assert complete("x", "thing", THINGS, {"size": 1}, "thing")["name"] == "thing"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, 'x: give a name, or a table with a name, e.g. x = "bare"'),
        ({"name": 3}, "x: give a name"),
        ("thong", 'x.name: unknown thing "thong"; did you mean "thing"?'),
        ("thing", r"x.size is missing; thing \"thing\" needs it: x = \{ name = \"thing\", size"),
        ({"name": "bare", "size": 1}, 'x.size: thing "bare" has no options; remove it'),
        ({"name": "thing", "sise": 1}, 'unknown option of thing "sise"; did you mean "size"?'),
        ({"name": "thing", "size": "big"}, 'x.size must be a whole number; it is "big"'),
        ({"name": "thing", "size": 1, "ratio": float("inf")}, "x.ratio must be a finite number"),
        ({"name": "thing", "size": 1, "mode": "fats"}, '"fats"; did you mean "fast"?'),
        ({"name": "thing", "size": 1, "layers": 3}, "x.layers must be a list"),
    ],
)
def test_what_does_not_fit_is_explained(given: Any, message: str) -> None:
    with pytest.raises(PotluckError, match=message.replace("?", r"\?")):
        complete("x", "thing", THINGS, given, "bare")
