"""A simulated federation: a data set split among sites, its labels turned into weaker ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator
from torch import Tensor

from potluck.data.dataset import Dataset
from potluck.data.makers.bags import (
    Bags,
    draw_priors,
    identifiable_bags,
    official_bags,
    official_iid_priors,
    perturb,
)
from potluck.data.makers.candidates import uniform
from potluck.data.makers.coarse import coarsen
from potluck.data.makers.noise import flip, pair, symmetric
from potluck.data.makers.sparse import keep_labels
from potluck.data.partitions import PARTITIONS, LabelSubsets, deal
from potluck.data.readers import DATASETS, read_dataset
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation, Site
from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidates,
    coarse,
    exact,
    noisy,
    private_subset,
    subset,
    unlabeled,
)
from potluck.labels.checks import as_prior
from potluck.streams import stream
from potluck.study.options import complete, make

Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, eq=False)
class Pool:
    """A site's samples before their labels are weakened.

    Args:
      data:    the samples, with their true classes.
      space:   the target classes.
      classes: names of the classes that the partition gave to this site.
      prior:   (K,) class prior of the population the model is for.
      sites:   how many sites there are.
      common:  source of what is drawn alike at all sites.
    """

    data: Dataset
    space: LabelSpace
    classes: tuple[str, ...]
    prior: Tensor
    sites: int
    common: torch.Generator


Made = tuple[Tensor, LabelView, Any]
"""Which samples the site keeps (M,), its view, and what it observed of them."""


class Simulated(BaseModel):
    """What every simulated view has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Weaken the labels of a site."""
        raise PotluckError(f"a view of kind {type(self).__name__} cannot be simulated.")


class SimulatedExact(Simulated):
    """Sites that know the class of every sample, or have only the `labelled` share of them."""

    kind: Literal["exact"]
    labelled: Annotated[float, Field(gt=0, le=1)] = 1.0

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """The true classes of the samples that have a label; the others drop out."""
        keep = keep_labels(len(pool.data), generator, fraction=self.labelled).nonzero().flatten()
        if len(keep) == 0:
            raise PotluckError(
                f"labelled = {self.labelled} of {len(pool.data)} samples leaves none; raise it."
            )
        return keep, exact(pool.space), pool.data.classes[keep]


class SimulatedCoarse(Simulated):
    """Sites that label in another space.

    `mapping` says which classes each label covers; `grouping` takes one that the data set
    brings (CIFAR-100's superclasses); `matrix` gives P(label | class).
    """

    kind: Literal["coarse"]
    mapping: dict[str, list[str]] | None = None
    grouping: str | None = None
    matrix: list[list[float]] | None = None

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Draw each sample's label from the correspondence."""
        given = [value for value in (self.mapping, self.grouping, self.matrix) if value is not None]
        if len(given) != 1:
            raise PotluckError(
                "a coarse view needs exactly one of mapping, grouping and matrix; "
                f"{len(given)} were given."
            )
        if self.grouping is not None and self.grouping not in pool.data.groupings:
            raise PotluckError(one_of("grouping", self.grouping, pool.data.groupings))
        named = pool.data.groupings[self.grouping] if self.grouping is not None else given[0]
        view = coarse(pool.space, named)
        return _all(pool), view, coarsen(pool.data.classes, view.codebook, generator)


class SimulatedNoisy(Simulated):
    """Sites whose labels err: uniformly (`symmetric`) or to the next class (`pair`)."""

    kind: Literal["noisy"]
    noise: Literal["symmetric", "pair"] = "symmetric"
    rate: Share

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Flip classes at the given rate; the site knows the rate."""
        matrices: dict[str, Callable[[int, float], Tensor]] = {"symmetric": symmetric, "pair": pair}
        transition = matrices[self.noise](len(pool.space), self.rate)
        observed = flip(pool.data.classes, transition, generator)
        return _all(pool), noisy(pool.space, transition), observed


class SimulatedBags(Simulated):
    """Sites that only know the class proportions of sets of samples.

    `bagging` is "fair" (disjoint bags of every sample, so that all methods have the same data),
    or as in FedUL's public code, where bags overlap: "official", and for its IID setting
    "official-iid", which uses fewer samples the more bags there are. `epsilon` is the error in
    the proportions that the site declares (FedUL, table E.9). `minimum_rank` below the number of
    classes allows sites that do not have all classes, or fewer bags than classes.
    """

    kind: Literal["bags"]
    bags: PositiveInt
    bagging: Literal["fair", "official", "official-iid"] = "fair"
    epsilon: NonNegativeFloat = 0.0
    minimum_rank: PositiveInt | None = None

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Form bags of different proportions."""
        made = self._bags(pool, generator)
        priors = perturb(made.priors, self.epsilon, generator) if self.epsilon else made.priors
        view = bags(
            pool.space,
            priors,
            sizes=made.sizes,
            target_prior=pool.prior,
            minimum_rank=self.minimum_rank,
        )
        return made.index, view, made.bag

    def _bags(self, pool: Pool, generator: torch.Generator) -> Bags:
        classes, count = pool.data.classes, len(pool.space)
        if self.bagging == "fair":
            return identifiable_bags(
                classes, self.bags, count, generator, rank=self.minimum_rank
            )
        if self.bagging == "official":
            priors = draw_priors(self.bags, count, generator)
        else:
            priors = official_iid_priors(pool.sites, self.bags, count, pool.common)
        return official_bags(classes, priors, generator)


class SimulatedCandidates(Simulated):
    """Sites with several possible classes per sample; each wrong one with probability ρ."""

    kind: Literal["candidates"]
    rho: Share

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Add wrong candidates to the truth."""
        mask = uniform(pool.data.classes, len(pool.space), self.rho, generator)
        return _all(pool), candidates(pool.space, mask), mask


class SimulatedSubset(Simulated):
    """Sites where only some classes occur.

    `classes` names them; `count` draws that many; with neither, they are the classes that
    the partition gave to the site (label_subsets). private = true keeps them secret.
    """

    kind: Literal["subset"]
    classes: list[str] | None = None
    count: PositiveInt | None = None
    private: bool = False

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Keep the samples of the site's classes."""
        names = self._names(pool, generator)
        view = (private_subset if self.private else subset)(pool.space, names)
        keep = view.held[pool.data.classes].nonzero().flatten()
        if len(keep) == 0:
            raise PotluckError(f"none of its samples is of the classes {', '.join(names)}.")
        return keep, view, [pool.space.names[k] for k in pool.data.classes[keep].tolist()]

    def _names(self, pool: Pool, generator: torch.Generator) -> list[str]:
        if self.classes is not None and self.count is not None:
            raise PotluckError("a subset view takes classes or count, not both.")
        if self.classes is not None:
            return self.classes
        if self.count is None:
            return list(pool.classes)
        if self.count > len(pool.space):
            raise PotluckError(
                f"count is {self.count}, but there are only {len(pool.space)} classes."
            )
        drawn = torch.randperm(len(pool.space), generator=generator)[: self.count]
        return [pool.space.names[k] for k in drawn.tolist()]


class SimulatedUnlabeled(Simulated):
    """Sites that know nothing about their samples."""

    kind: Literal["unlabeled"]

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Forget the classes."""
        return _all(pool), unlabeled(pool.space), None


SimulatedView = Annotated[
    SimulatedExact
    | SimulatedCoarse
    | SimulatedNoisy
    | SimulatedBags
    | SimulatedCandidates
    | SimulatedSubset
    | SimulatedUnlabeled,
    Field(discriminator="kind"),
]


class SimulatedSites(BaseModel):
    """Some sites with the same kind of labels.

    `count` sites are called name-1, name-2, … ; `samples` is the most that each of them has.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    view: SimulatedView
    count: PositiveInt = 1
    samples: PositiveInt | None = None


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
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    path: str | None = None
    target_prior: list[float] | None = None
    partition: dict[str, Any] = Field(
        default_factory=lambda: {"name": "iid"}, validate_default=True
    )
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
        return complete("simulation.partition", "partition", PARTITIONS, given)


def simulate(simulation: Simulation, seed: int, folder: Path) -> Federation:
    """Make the federation that a simulation describes.

    Args:
      simulation: what the study file says.
      seed:       of all random choices.
      folder:     what the data set's path is relative to.
    """
    path = None if simulation.path is None else folder / simulation.path
    train, test = read_dataset(simulation.dataset, path)
    space = LabelSpace(train.names)
    server, rest = _served(simulation.server, train, space, seed)
    names, groups = _named(simulation.sites)
    generator = stream(seed, "partition")
    split = make(
        PARTITIONS,
        simulation.partition,
        classes=rest.classes,
        sites=len(names),
        generator=generator,
    )
    parts = split.indices if isinstance(split, LabelSubsets) else split
    held = split.subsets if isinstance(split, LabelSubsets) else _present(rest, parts)
    sites = [
        _site(name, group, rest.subset(part), space, mine, seed)
        for name, group, part, mine in zip(names, groups, parts, held, strict=True)
    ]
    return Federation.of(sites, server, (test.inputs, test.classes))


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
    space: LabelSpace,
    held: Tensor,
    seed: int,
) -> Site:
    generator = stream(seed, name, "labels")
    if group.samples is not None and group.samples < len(data):
        data = data.subset(torch.randperm(len(data), generator=generator)[: group.samples])
    classes = tuple(space.names[k] for k in held.nonzero().flatten().tolist())
    return _weakened(name, group.view, Pool(data, space, classes), generator)


def _weakened(name: str, view: Simulated, pool: Pool, generator: torch.Generator) -> Site:
    try:
        keep, made, observed = view.make(pool, generator)
    except PotluckError as error:
        raise PotluckError(f'simulation: site "{name}": {error}') from None
    kept = pool.data.subset(keep)
    return Site.of(name, kept.inputs, made, observed, kept.classes)


def _served(
    server: SimulatedServer | None, train: Dataset, space: LabelSpace, seed: int
) -> tuple[Site | None, Dataset]:
    """The server's own samples, and what is left for the sites."""
    if server is None:
        return None, train
    if (server.per_class is None) == (server.samples is None):
        raise PotluckError("simulation.server needs either per_class or samples.")
    generator = stream(seed, "server")
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
    pool = Pool(train.subset(mine), space, space.names)
    return _weakened("server", server.view, pool, generator), train.subset(rest.nonzero().flatten())


def _rank_in_class(classes: Tensor) -> Tensor:
    """(N,) how many earlier samples have the same class."""
    one_hot = torch.nn.functional.one_hot(classes)
    return one_hot.cumsum(0).gather(1, classes.unsqueeze(1)).squeeze(1) - 1


def _present(data: Dataset, parts: list[Tensor]) -> list[Tensor]:
    """For each part, (K,) bool: the classes that occur in it."""
    count = len(data.names)
    return [torch.bincount(data.classes[part], minlength=count) > 0 for part in parts]


def _all(pool: Pool) -> Tensor:
    return torch.arange(len(pool.data))
