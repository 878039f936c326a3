"""Simulated label views: what each kind of site would know of samples whose truth is known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt
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
from potluck.data.makers.candidates import (
    class_dependent,
    confusable,
    drop_truth,
    reveal,
    uniform,
)
from potluck.data.makers.coarse import coarsen
from potluck.data.makers.noise import flip, pair, symmetric
from potluck.data.makers.sparse import keep_labels
from potluck.errors import PotluckError, one_of
from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidates,
    coarse,
    exact,
    noisy,
    unlabeled,
)
from potluck.labels.subset import Softmax, declared_subset
from potluck.streams import stream

Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, eq=False)
class Setting:
    """What is the same for all sites of a simulation.

    Args:
      space: the target classes.
      prior: (K,) class prior of the population the model is for.
      sites: how many sites there are.
      seed:  of all random choices.
    """

    space: LabelSpace
    prior: Tensor
    sites: int
    seed: int


@dataclass(frozen=True, eq=False)
class Pool:
    """A site's samples before their labels are weakened.

    Args:
      data:    the samples, with their true classes.
      classes: names of the classes that the partition gave to this site.
      setting: the simulation that the site is part of.
    """

    data: Dataset
    classes: tuple[str, ...]
    setting: Setting

    @property
    def space(self) -> LabelSpace:
        """The target classes."""
        return self.setting.space


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
    brings (CIFAR-100's superclasses); `matrix` gives P(label | class). With `noise`, a label
    is any other one with that probability, which the site knows.
    """

    kind: Literal["coarse"]
    mapping: dict[str, list[str]] | None = None
    grouping: str | None = None
    matrix: list[list[float]] | None = None
    noise: Share = 0.0

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Draw each sample's label from the correspondence."""
        given = [value for value in (self.mapping, self.grouping, self.matrix) if value is not None]
        if len(given) != 1:
            raise PotluckError(
                "a coarse view needs exactly one of mapping, grouping and matrix; "
                f"{len(given)} were given."
            )
        if self.grouping is not None and self.grouping not in pool.data.groupings:
            if not pool.data.groupings:
                raise PotluckError(
                    "this data set brings no groupings of its classes; give a mapping instead."
                )
            raise PotluckError(one_of("grouping", self.grouping, pool.data.groupings))
        named = pool.data.groupings[self.grouping] if self.grouping is not None else given[0]
        view = coarse(pool.space, named)
        if self.noise:
            errors = symmetric(len(view.symbols), self.noise).double()
            view = coarse(pool.space, errors @ view.codebook, view.symbols.names)
        return _all(pool), view, coarsen(pool.data.classes, view.codebook, generator)


class SimulatedNoisy(Simulated):
    """Sites whose labels err: uniformly (`symmetric`) or to the next class (`pair`).

    They know how often; with known = false they take their labels for exact.
    """

    kind: Literal["noisy"]
    noise: Literal["symmetric", "pair"] = "symmetric"
    rate: Share
    known: bool = True

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Flip classes at the given rate."""
        matrices: dict[str, Callable[[int, float], Tensor]] = {"symmetric": symmetric, "pair": pair}
        transition = matrices[self.noise](len(pool.space), self.rate)
        observed = flip(pool.data.classes, transition, generator)
        view = noisy(pool.space, transition) if self.known else exact(pool.space)
        return _all(pool), view, observed


class SimulatedBags(Simulated):
    """Sites that only know the class proportions of sets of samples.

    `bagging` is "fair" (disjoint bags of every sample, so that all methods have the same data),
    or as in FedUL's public code, where bags overlap: "official", and for its IID setting
    "official-iid", which uses fewer samples the more bags there are. `epsilon` is the error in
    the proportions that the site declares (FedUL, table E.9), and `target_prior` what it takes
    for the target prior, the simulation's when left out. `minimum_rank` below the number of
    classes allows sites that do not have all classes, or fewer bags than classes.
    """

    kind: Literal["bags"]
    bags: PositiveInt
    bagging: Literal["fair", "official", "official-iid"] = "fair"
    epsilon: NonNegativeFloat = 0.0
    target_prior: list[float] | None = None
    minimum_rank: PositiveInt | None = None

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Form bags of different proportions."""
        made = self._bags(pool, generator)
        priors = perturb(made.priors, self.epsilon, generator) if self.epsilon else made.priors
        believed = pool.setting.prior if self.target_prior is None else self.target_prior
        view = bags(
            pool.space,
            priors,
            sizes=made.sizes,
            target_prior=believed,
            minimum_rank=self.minimum_rank,
        )
        return made.index, view, made.bag

    def _bags(self, pool: Pool, generator: torch.Generator) -> Bags:
        classes, count = pool.data.classes, len(pool.space)
        if self.bagging == "fair":
            return identifiable_bags(classes, self.bags, count, generator, rank=self.minimum_rank)
        if self.bagging == "official":
            priors = draw_priors(self.bags, count, generator)
        else:
            alike = stream(pool.setting.seed, "bags")  # the same table at all sites
            priors = official_iid_priors(pool.setting.sites, self.bags, count, alike)
        return official_bags(classes, priors, generator)


class SimulatedCandidates(Simulated):
    """Sites with several possible classes per sample; each wrong one with probability ρ.

    `confusable` lists groups of classes that are taken for one another, or names a grouping
    that the data set brings: only classes of the same group are then added. `truth_missing` is
    the share of sets that lack the true class, and `exact` the share of samples whose label
    is exact: a set of one.
    """

    kind: Literal["candidates"]
    rho: Share
    confusable: list[list[str]] | str | None = None
    truth_missing: Share = 0.0
    exact: Share = 0.0

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Add wrong candidates to the truth."""
        truth, count = pool.data.classes, len(pool.space)
        if self.confusable is None:
            mask = uniform(truth, count, self.rho, generator)
        else:
            mask = class_dependent(
                truth, confusable(self._groups(pool), count, self.rho), generator
            )
        mask = drop_truth(mask, truth, self.truth_missing, generator)
        mask = reveal(mask, truth, self.exact, generator)
        return _all(pool), candidates(pool.space, mask), mask

    def _groups(self, pool: Pool) -> list[list[int]]:
        named = self.confusable
        if isinstance(named, str):
            if named not in pool.data.groupings:
                raise PotluckError(one_of("grouping", named, pool.data.groupings))
            named = [list(members) for members in pool.data.groupings[named].values()]
        return [[pool.space.index(name) for name in members] for members in named or []]


class SimulatedSubset(Simulated):
    """Sites where only some classes occur.

    `classes` names them; `count` draws that many; with neither, they are the classes that
    the partition gave to the site (label_subsets). private = true keeps them secret.
    softmax = "own" compares a label with the site's classes only, "all" with all target classes.
    """

    kind: Literal["subset"]
    classes: list[str] | None = None
    count: PositiveInt | None = None
    private: bool = False
    softmax: Softmax = "own"

    def make(self, pool: Pool, generator: torch.Generator) -> Made:
        """Keep the samples of the site's classes."""
        names = self._names(pool, generator)
        view = declared_subset(pool.space, names, self.private, self.softmax)
        keep = (view.codebook > 0).any(0)[pool.data.classes].nonzero().flatten()
        if len(keep) == 0:
            raise PotluckError(f"none of its samples is of the classes {', '.join(names)}.")
        return keep, view, [pool.space.names[k] for k in pool.data.classes[keep].tolist()]

    def _names(self, pool: Pool, generator: torch.Generator) -> list[str]:
        if self.classes is not None and self.count is not None:
            raise PotluckError("a subset view takes classes or count, not both.")
        if self.classes is not None:
            return self.classes
        if self.count is None:
            # In no particular order: that of the target classes would say something about them.
            order = torch.randperm(len(pool.classes), generator=generator).tolist()
            return [pool.classes[i] for i in order]
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


def _all(pool: Pool) -> Tensor:
    """(N,) every sample of the pool."""
    return torch.arange(len(pool.data))
