"""Samples with their true classes, and how they are divided into training and test data."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.errors import PotluckError

Groupings = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Name of a coarser label space → {coarse name: the names of its classes}."""

TEST_FRACTION = 0.2
"""The part of each class kept for testing where a data set does not bring its own test data."""


@dataclass(frozen=True, eq=False)
class Labelling:
    """Labels in another space, sample by sample, that no grouping of the classes gives.

    Attributes:
      symbols: (N,) int64 indices into `names`.
      names:   what the symbols are called.
    """

    symbols: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples with their true classes: what a simulation splits among sites and hides.

    Attributes:
      inputs:     (N, C, H, W) uint8 images, or (N, D) float32 features.
      classes:    (N,) int64 indices into `names`.
      names:      names of the K classes.
      groupings:  coarser label spaces that follow from the class (CIFAR-100's superclasses).
      labellings: other label spaces that do not (a second expert, the recording a call is from).
    """

    inputs: Tensor
    classes: Tensor
    names: tuple[str, ...]
    groupings: Groupings = field(default_factory=dict)
    labellings: Mapping[str, Labelling] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, indices: Tensor) -> "Dataset":
        """The samples at `indices` (M,) int64, in that order."""
        labellings = {
            space: Labelling(labelling.symbols[indices], labelling.names)
            for space, labelling in self.labellings.items()
        }
        return replace(
            self,
            inputs=self.inputs[indices],
            classes=self.classes[indices],
            labellings=labellings,
        )


class Split(NamedTuple):
    """A data set's training and test part, over the same classes."""

    train: Dataset
    test: Dataset


def check(dataset: Dataset, where: str) -> Dataset:
    """Return the data set if it keeps its promises; otherwise say which one it breaks.

    Args:
      dataset: what was read.
      where:   its origin, for the message: usually the file or folder.

    Returns:
      The same data set.

    Raises:
      PotluckError: with `where` and the first thing found wrong.
    """
    for problem in _problems(dataset):
        raise PotluckError(f"{where}: {problem}")
    return dataset


def split(
    dataset: Dataset,
    test_fraction: float,
    generator: torch.Generator,
    groups: Tensor | None = None,
) -> Split:
    """Divide every class at random into a training and a test part.

    Samples of one group (a patient, a recording) stay together: a class's groups are shuffled,
    those with more samples than wanted put last, and as many of the first ones become test data
    as come closest to the fraction, but at least one and never all. Samples keep their order.

    Args:
      dataset:       what to divide.
      test_fraction: the wanted part of each class's samples, between 0 and 1.
      generator:     the source of randomness.
      groups:        (N,) int64 group of each sample, each within one class; by default every
                     sample is its own.

    Returns:
      The two parts.
    """
    if not 0 < test_fraction < 1:
        raise PotluckError(f"the test fraction must lie between 0 and 1, but is {test_fraction}.")
    groups = torch.arange(len(dataset)) if groups is None else groups
    pairs = groups * len(dataset.names) + dataset.classes
    if len(torch.unique(pairs)) > len(torch.unique(groups)):
        raise PotluckError(
            "a group has samples of more than one class; a split by class cannot keep it whole."
        )
    chosen = []
    for k in torch.unique(dataset.classes).tolist():
        ids, sizes = torch.unique(groups[dataset.classes == k], return_counts=True)
        if len(ids) == 1:
            raise PotluckError(
                f'class "{dataset.names[k]}" cannot be divided into training and test data: '
                "it has only one sample, or all its samples belong together. "
                "Leave the class out, add samples, or provide your own test set."
            )
        order = torch.randperm(len(ids), generator=generator)
        wanted = test_fraction * int(sizes.sum())
        order = order[(sizes[order] > wanted).int().argsort(stable=True)]
        # The last prefix, all groups, is no choice: something must be left to train on.
        miss = (sizes[order].cumsum(0)[:-1] - wanted).abs()
        chosen.append(ids[order[: int(miss.argmin()) + 1]])
    test = torch.isin(groups, torch.cat(chosen))
    return Split(dataset.subset((~test).nonzero()[:, 0]), dataset.subset(test.nonzero()[:, 0]))


def _problems(dataset: Dataset) -> Iterator[str]:
    inputs, n = dataset.inputs, len(dataset.inputs)
    image = inputs.dtype == torch.uint8 and inputs.ndim == 4
    features = inputs.dtype == torch.float32 and inputs.ndim == 2
    if not (image or features):
        yield (
            f"inputs are {inputs.dtype} of shape {tuple(inputs.shape)}; they must be "
            "uint8 images (N, C, H, W) or float32 features (N, D)."
        )
    if n == 0:
        yield "there are no samples."
    if features and not inputs.isfinite().all():
        row, column = (~inputs.isfinite()).nonzero()[0].tolist()
        yield (
            f"feature {column} of sample {row} (counting from 0) is {inputs[row, column].item()}; "
            "features must be finite numbers. Fill in or remove such samples."
        )
    yield from _symbol_problems("classes", dataset.classes, dataset.names, n)
    for space, labelling in dataset.labellings.items():
        yield from _symbol_problems(f'labels of "{space}"', labelling.symbols, labelling.names, n)
    for space, grouping in dataset.groupings.items():
        if sorted(chain.from_iterable(grouping.values())) != sorted(dataset.names):
            yield f'grouping "{space}" must have every class in exactly one group.'


def _symbol_problems(what: str, symbols: Tensor, names: Sequence[str], n: int) -> Iterator[str]:
    if symbols.dtype != torch.int64 or symbols.ndim != 1:
        yield f"{what} must be int64 (N,), not {symbols.dtype} {tuple(symbols.shape)}."
    if len(symbols) != n:
        yield f"there are {n} inputs but {len(symbols)} {what}; each input needs one."
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        yield f'two {what} have the name "{twice}".'
    outside = (symbols < 0) | (symbols >= len(names))
    if outside.any():
        row = int(outside.nonzero()[0])
        yield (
            f"{what} must lie in 0 to {len(names) - 1}, as there are {len(names)} names; "
            f"sample {row} (counting from 0) has {int(symbols[row])}."
        )
