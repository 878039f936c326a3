"""From a checked study to the objects that train."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from potluck.engines import ENGINES, Engine, Graphed, Recipe
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace
from potluck.messages import Tensors
from potluck.models import build, draw_rows
from potluck.models.network import Network
from potluck.streams import stream
from potluck.study.explain import about
from potluck.study.moments import input_sums, moments
from potluck.study.options import make
from potluck.study.recipe import recipe_of, recipe_values
from potluck.study.schema import RealFederation, Study, read_study
from potluck.study.simulation import simulate
from potluck.study.sitefile import load_site, read_site_file


@dataclass(frozen=True, eq=False)
class Prepared:
    """All that a run needs, checked.

    Args:
      federation: who takes part, with data on the training device.
      recipe:     what all parties agree on.
      network:    the model.
      engine:     who runs the local part of a round.
      device:     where it trains.
      columns:    names of the input columns, when the sites' data are tables.
    """

    federation: Federation
    recipe: Recipe
    network: Network
    engine: Engine
    device: torch.device
    columns: tuple[str, ...] | None


def prepare(study: Study) -> Prepared:
    """Load the data, build everything, and check that it fits together."""
    device = choose_device(study)
    federation, columns = load_federation(study)
    recipe = make_recipe(study)
    recipe.check(federation)
    network = make_network(
        study, federation, (input_sums(site.inputs) for site in federation.sites)
    )
    engine = make(ENGINES, study.run.engine)
    if isinstance(engine, Graphed) and device.type != "cuda":
        raise PotluckError(
            'run.engine is "graphed", which needs a GPU, but the study runs on the CPU; use '
            '"auto", "threaded", "stacked" or "sequential".'
        )
    return Prepared(federation.to(device), recipe, network, engine, device, columns)


def make_recipe(study: Study) -> Recipe:
    """The recipe that a study describes."""
    return recipe_of(recipe_values(study))


def load_federation(study: Study) -> tuple[Federation, tuple[str, ...] | None]:
    """The federation that a study describes, and the input columns of tables."""
    folder = Path(study.folder)
    if study.simulation is not None:
        return simulate(study.simulation, study.seed, folder), None
    assert study.federation is not None
    return _from_site_files(study.federation, folder)


def load_test(study: Study) -> tuple[Tensor, Tensor] | None:
    """The test set of a study, if it has one; sites' data is not looked at."""
    if study.federation is not None:
        return own_data(study.federation, Path(study.folder), {})[1]
    return load_federation(study)[0].test


def study_classes(path: Path | None, site: Path) -> LabelSpace:
    """The target classes of the study that a site file is to be checked against.

    Args:
      path: the study file.
      site: the site file, for the message when there is no study.
    """
    if path is None:
        space = read_site_file(site).space()
        if space is not None:
            return space
        raise PotluckError(
            f"{site} is a site file; its labels mean something only in a study. Name the study's "
            f"classes in it (classes = […]), or say which: potluck check {site} --study study.toml"
        )
    study = read_study(path)
    if study.federation is None:
        raise PotluckError(f"{path} is a simulation; site files belong to a [federation].")
    return LabelSpace(tuple(study.federation.classes))


def choose_device(study: Study) -> torch.device:
    """The device to train on; "auto" takes a GPU where there is one."""
    wanted = study.run.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise PotluckError(
            'run.device is "cuda", but PyTorch finds no GPU here; use "cpu" or "auto".'
        )
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def _from_site_files(
    real: RealFederation, folder: Path
) -> tuple[Federation, tuple[str, ...] | None]:
    if not real.sites:
        raise PotluckError(
            "federation.sites is empty: list the sites' files to train here, or train over a "
            "network: potluck coordinate."
        )
    space = LabelSpace(tuple(real.classes))
    loaded = [load_site(folder / file, space) for file in real.sites]
    _check_names([site.name for site, _ in loaded], real.sites)
    columns = {site.name: names for site, names in loaded}
    server, test = own_data(real, folder, columns)
    sites = [site for site, _ in loaded]
    return Federation.of(sites, server, test), next(iter(columns.values()))


def own_data(
    real: RealFederation, folder: Path, columns: dict[str, tuple[str, ...] | None]
) -> tuple[Site | None, tuple[Tensor, Tensor] | None]:
    """What the server itself has: data of its own, and a test set.

    Args:
      real:    what the study says.
      folder:  what paths are relative to.
      columns: the input columns of each site; those of the server's tables are added, and all
               must agree.
    """
    space = LabelSpace(tuple(real.classes))
    server, test = None, None
    if real.server is not None:
        server, names = load_site(folder / real.server, space)
        columns[server.name] = names
    if real.test is not None:
        with about("federation.test"):
            held = real.test.read(folder)
            columns["the test set"] = held.columns
            if held.labels is None:
                raise PotluckError("the test set needs labels; say where they are.")
            test = (held.inputs, space.encode(held.labels))
    check_columns(columns)
    return server, test


def _check_names(names: Sequence[str], files: Sequence[str]) -> None:
    """Sites are told apart by name."""
    for position, name in enumerate(names):
        if name in names[:position]:
            raise PotluckError(
                f"federation.sites: {files[names.index(name)]} and {files[position]} both have "
                f'the name "{name}"; give each site a name of its own, and list it once.'
            )


def check_columns(columns: Mapping[str, tuple[str, ...] | None]) -> None:
    """All tables must have the same columns in the same order, or inputs would be mixed up."""
    if not columns:
        return
    (first, expected), *others = columns.items()
    for name, found in others:
        if found == expected:
            continue
        if found is None or expected is None:
            table, other = (first, name) if found is None else (name, first)
            raise PotluckError(
                f'"{table}" is a table and "{other}" is not; all need the same kind of data '
                "(arrays have no column names by which to compare them with tables)."
            )
        raise PotluckError(
            f'"{name}" has the input columns {_listed(found)}, but "{first}" has '
            f"{_listed(expected)}; list the same columns in the same order in data.features of "
            "each site file."
        )


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(columns[:12]) + (f", … ({len(columns)} in all)" if len(columns) > 12 else "")


def make_network(study: Study, federation: Federation, sums: Iterable[Tensors]) -> Network:
    """The model that a study describes, with its first parameters.

    Args:
      study:      the study.
      federation: who takes part; only the shape of samples, the classes, and whether a site is
                  private matter.
      sums:       what each site says of its inputs (`input_sums`); looked at where the study
                  standardises inputs.
    """
    options = {key: value for key, value in study.model.items() if key != "name"}
    mean, std = moments(sums) if study.standardise == "federation" else (None, None)
    classifier = build(
        study.model["name"],
        tuple(federation.sites[0].inputs.shape[1:]),
        len(federation.space),
        generator=stream(study.seed, "model"),
        mean=mean,
        std=std,
        **options,
    )
    if any(site.view.private for site in federation.sites):
        draw_rows(classifier.head, federation.space.names, study.seed)
    return Network(classifier)
