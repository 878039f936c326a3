"""A simulated federation: a data set split among sites, its labels turned into weaker ones."""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)
from torch import Tensor

from potluck.data.dataset import Dataset
from potluck.data.partitions import PARTITIONS, LabelSubsets, deal
from potluck.data.readers import DATASETS, read_dataset
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace, exact
from potluck.labels.checks import as_prior
from potluck.labels.view import uniform_prior
from potluck.streams import stream
from potluck.study.explain import about
from potluck.study.options import complete, make
from potluck.study.simulated_views import (
    Pool,
    Setting,
    Share,
    Simulated,
    SimulatedSubset,
    SimulatedView,
)


class SimulatedSites(BaseModel):
    """Some sites with the same kind of labels.

    `count` sites are called name-1, name-2, … ; `samples` is the most that each of them has,
    `per_class` the most that it has of any class.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    view: SimulatedView
    count: PositiveInt = 1
    samples: PositiveInt | None = None
    per_class: PositiveInt | None = None


class SimulatedServer(BaseModel):
    """Data that the server itself holds: `per_class` samples of each class, or `samples` in all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    view: SimulatedView
    per_class: PositiveInt | None = None
    samples: PositiveInt | None = None


class Simulation(BaseModel):
    """A data set, how it is split, and what each site knows of its part.

    `target_prior` has the share of each class in the population the model is for, uniform when
    left out: bags views are told, and test samples are left out until the test set has it.
    `partition_by` names a grouping of the classes that the partition sees instead of the classes.
    reveal = true tells every site the true classes: the upper bound of all methods.
    `validation` is the share of each site's samples that it keeps out of training, to choose the
    best round by. They have the site's own kind of labels, and each site predicts those;
    validation_labels = "exact" sets them aside before labels are weakened and gives them their
    true classes, as where labels of sets or groups are cheap and a few samples are labelled well.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    path: str | None = None
    target_prior: list[float] | None = None
    partition: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    partition_by: str | None = None
    reveal: bool = False
    validation: Share = 0.0
    validation_labels: Literal["own", "exact"] = "own"
    sites: Annotated[list[SimulatedSites], Field(min_length=1)]
    server: SimulatedServer | None = None

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, name: str) -> str:
        if name not in DATASETS:
            raise PotluckError(f"simulation.dataset: {one_of('data set', name, DATASETS)}")
        return name

    @field_validator("partition", mode="before")
    @classmethod
    def _known_partition(cls, given: Any) -> dict[str, Any]:
        return complete("simulation.partition", "partition", PARTITIONS, given, "iid")

    @model_validator(mode="after")
    def _exact_validation(self) -> "Simulation":
        if self.validation_labels == "own":
            return self
        if not self.validation:
            raise PotluckError(
                'simulation.validation_labels is "exact", but simulation.validation keeps no '
                "samples aside; give it a share, e.g. 0.2, or leave validation_labels out."
            )
        for group in self.sites:
            if isinstance(group.view, SimulatedSubset):
                raise PotluckError(
                    f'simulation.validation_labels is "exact", but "{group.name}" has a subset '
                    "view: its labels are exact among its own classes, and it has no samples of "
                    "others. Leave validation_labels out."
                )
        return self


def simulate(simulation: Simulation, seed: int, folder: Path) -> Federation:
    """Make the federation that a simulation describes.

    Args:
      simulation: what the study file says.
      seed:       of all random choices.
      folder:     what the data set's path is relative to.
    """
    path = folder / simulation.path if simulation.path else None  # a scale may clear it with ""
    with about("simulation"):
        train, test = read_dataset(simulation.dataset, path)
    space = LabelSpace(train.names)
    names, groups = _named(simulation.sites)
    setting = Setting(space, _target_prior(simulation, space), len(names), seed)
    if simulation.target_prior is not None:
        test = _with_prior(test, setting)
    server, rest = _served(simulation.server, train, setting)
    generator = stream(seed, "partition")
    with about("simulation.partition"):
        split = make(
            PARTITIONS,
            simulation.partition,
            classes=_groups(rest, simulation.partition_by),
            sites=len(names),
            generator=generator,
        )
    if isinstance(split, LabelSubsets) and simulation.partition_by is not None:
        raise PotluckError(
            "simulation.partition_by does not go with a partition that gives each site some of "
            "the classes; leave it out."
        )
    parts = split.indices if isinstance(split, LabelSubsets) else split
    held = split.subsets if isinstance(split, LabelSubsets) else _present(rest, parts)
    sites, aside = [], []
    for name, group, part, mine in zip(names, groups, parts, held, strict=True):
        site, kept = _site(name, group, rest.subset(part), mine, setting, simulation)
        sites.append(site)
        aside += kept
    federation = Federation.of(sites, server, (test.inputs, test.classes), aside)
    return federation.revealed() if simulation.reveal else federation


def _groups(data: Dataset, grouping: str | None) -> Tensor:
    """(N,) the class of each sample, or its group in a grouping that the data set brings."""
    if not grouping:  # a scale may clear it with ""
        return data.classes
    if grouping not in data.groupings:
        raise PotluckError(one_of("simulation.partition_by", grouping, data.groupings))
    group = {name: i for i, names in enumerate(data.groupings[grouping].values()) for name in names}
    return torch.tensor([group[name] for name in data.names])[data.classes]


def _target_prior(simulation: Simulation, space: LabelSpace) -> Tensor:
    if simulation.target_prior is None:
        return uniform_prior(space)
    return as_prior("simulation.target_prior", simulation.target_prior, space)


def _with_prior(test: Dataset, setting: Setting) -> Dataset:
    """As many of the test samples as can be had with the class shares of the target prior."""
    have = torch.bincount(test.classes, minlength=len(setting.space))
    wanted = ((have / setting.prior).min() * setting.prior + 1e-9).long()
    if (none := wanted == 0).any():
        name = setting.space.names[int(none.nonzero()[0])]
        raise PotluckError(
            f'simulation.target_prior gives class "{name}" a share that the {len(test)} test '
            "samples cannot show: not one sample of it would be left; make its share larger."
        )
    chosen = deal(test.classes, wanted.unsqueeze(0), stream(setting.seed, "test")) == 0
    return test.subset(chosen.nonzero().flatten())


def _named(groups: list[SimulatedSites]) -> tuple[list[str], list[SimulatedSites]]:
    names, owners = [], []
    for group in groups:
        many = group.count > 1
        names += [f"{group.name}-{i + 1}" if many else group.name for i in range(group.count)]
        owners += [group] * group.count
    return names, owners


def _site(
    name: str,
    group: SimulatedSites,
    data: Dataset,
    held: Tensor,
    setting: Setting,
    simulation: Simulation,
) -> tuple[Site, list[Site]]:
    """A site as it trains, and what it keeps for validation: one site again, or none."""
    generator = stream(setting.seed, name, "labels")
    if group.samples is not None and group.samples < len(data):
        data = data.subset(torch.randperm(len(data), generator=generator)[: group.samples])
    if group.per_class is not None:
        order = torch.randperm(len(data), generator=generator)
        data = data.subset(order[_rank_in_class(data.classes[order]) < group.per_class])
    classes = tuple(setting.space.names[k] for k in held.nonzero().flatten().tolist())
    share, aside = simulation.validation, []
    if simulation.validation_labels == "exact":
        train, kept = _divided(name, len(data), share, setting.seed)
        known = data.subset(kept)
        aside = [Site.of(name, known.inputs, exact(setting.space), known.classes, known.classes)]
        data = data.subset(train)
    site = _weakened(name, group.view, Pool(data, classes, setting), generator)
    if share and simulation.validation_labels == "own":
        train, kept = _divided(name, len(site), share, setting.seed)
        site, aside = site.subset(train), [site.subset(kept)]
    return site, aside


def _weakened(name: str, view: Simulated, pool: Pool, generator: torch.Generator) -> Site:
    with about(f'simulation: site "{name}"'):
        keep, made, observed = view.make(pool, generator)
    kept = pool.data.subset(keep)
    return Site.of(name, kept.inputs, made, observed, kept.classes)


def _divided(name: str, samples: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which of a site's samples are for training, and which it keeps for validation."""
    order = torch.randperm(samples, generator=stream(seed, name, "validation"))
    kept = round(share * samples)
    if not 0 < kept < samples:
        raise PotluckError(
            f'simulation.validation is {share}, but site "{name}" has {samples} samples; '
            "give it more samples or change the share."
        )
    return order[kept:], order[:kept]


def _served(
    server: SimulatedServer | None, train: Dataset, setting: Setting
) -> tuple[Site | None, Dataset]:
    """The server's own samples, and what is left for the sites."""
    if server is None:
        return None, train
    if (server.per_class is None) == (server.samples is None):
        raise PotluckError("simulation.server needs either per_class or samples.")
    generator = stream(setting.seed, "server")
    order = torch.randperm(len(train), generator=generator)
    if server.per_class is not None:
        rank = _rank_in_class(train.classes[order])
        mine = order[rank < server.per_class]
    else:
        mine = order[: server.samples]
    rest = torch.ones(len(train), dtype=torch.bool)
    rest[mine] = False
    if not rest.any():
        raise PotluckError(
            f"simulation.server takes all {len(train)} training samples; leave some for the sites."
        )
    pool = Pool(train.subset(mine), setting.space.names, setting)
    return _weakened("server", server.view, pool, generator), train.subset(rest.nonzero().flatten())


def _rank_in_class(classes: Tensor) -> Tensor:
    """(N,) how many earlier samples have the same class."""
    one_hot = torch.nn.functional.one_hot(classes)
    return one_hot.cumsum(0).gather(1, classes.unsqueeze(1)).squeeze(1) - 1


def _present(data: Dataset, parts: list[Tensor]) -> list[Tensor]:
    """For each part, (K,) bool: the classes that occur in it."""
    count = len(data.names)
    return [torch.bincount(data.classes[part], minlength=count) > 0 for part in parts]
