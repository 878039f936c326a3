"""A label view: what a site can observe about a sample, as likelihoods under each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.arrays import as_array
from potluck.labels.masks import as_mask, distinct_rows
from potluck.labels.space import LabelSpace

Labels = Sequence[Any] | np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class LabelView:
    """How the symbols that a site observes relate to the K target classes.

    A sample whose symbol is z, and whose class posteriors are η, was observed with probability
    (A[z]·η) / (b·η). Every kind of label is these two tensors; the constructors beside this
    file (`exact`, `coarse`, `noisy`, `bags`, `candidates`, `subset`, `unlabeled`) make them.

    Args:
      kind:       the name of the constructor that made it, for people.
      space:      the K target classes.
      symbols:    names of the Z symbols.
      codebook:   (Z, K) float64, A: the likelihood of each symbol under each class.
      normaliser: (K,) float64, b.
      prior:      (K,) float64, class prior of the population the model is for.
      private:    whether the site's class set is a secret from the other sites.
    """

    kind: str
    space: LabelSpace
    symbols: LabelSpace
    codebook: Tensor
    normaliser: Tensor
    prior: Tensor
    private: bool = False

    @property
    def held(self) -> Tensor:
        """(K,) bool: the classes that can occur here. Only their head rows learn from this site."""
        return self.normaliser > 0

    @cached_property
    def holds_all(self) -> bool:
        """Whether every class can occur here."""
        return bool(self.held.all())

    @property
    def classes(self) -> Tensor:
        """(C,) int64: the classes that can occur here, in the order of the site's symbols."""
        held = self.held.nonzero().flatten()
        first_symbol = (self.codebook[:, held] > 0).int().argmax(0)
        return held[first_symbol.argsort(stable=True)]

    @property
    def proportions(self) -> Tensor:
        """(Z, K) class proportions among the samples of each symbol: p(y | z) ∝ A[z, y] π_y.

        For `bags` these are the declared priors Π. A symbol that never occurs has zeros.
        """
        joint = self.codebook * self.prior
        return joint / joint.sum(1, keepdim=True).clamp_min(torch.finfo(joint.dtype).tiny)

    @cached_property
    def log_codebook(self) -> Tensor:
        """(Z, K) float64: log A."""
        return self.codebook.log()

    @cached_property
    def log_normaliser(self) -> Tensor:
        """(K,) float64: log b."""
        return self.normaliser.log()

    def own(self) -> "LabelView":
        """The view as the site itself knows it.

        A private site knows only its own classes: its view is over them alone, in its own
        order, and carries no trace of the target classes. Other sites know the target classes.
        """
        return self._narrowed if self.private else self

    @cached_property
    def _narrowed(self) -> "LabelView":
        held = self.classes
        space = self.symbols
        return LabelView(
            kind="exact",
            space=space,
            symbols=space,
            codebook=self.codebook[:, held],
            normaliser=self.normaliser[held],
            prior=torch.full_like(self.prior[held], 1 / len(space)),
        )

    def observe(self, labels: Labels | None, count: int) -> Tensor:
        """Encode what a site wrote down for its samples.

        Args:
          labels: names of symbols, their indices, (count, K) rows of marks (candidate sets, or
                  one-hot classes), or None where there is only one symbol.
          count:  how many samples the site has.

        Returns:
          (count,) int64 symbol indices.
        """
        if labels is None:
            if len(self.symbols) > 1:
                raise PotluckError(
                    f"its {self.kind} view needs one label per sample, and none were given; "
                    "a site without labels has the view unlabeled."
                )
            return torch.zeros(count, dtype=torch.int64)
        values = np.atleast_1d(as_array("the labels", labels))
        if len(values) != count:
            raise PotluckError(
                f"there are {count} samples but {len(values)} labels; give one label per sample."
            )
        if values.ndim == 2:
            symbols = _match_rows(as_mask(self.space, values), self.codebook)
        else:
            symbols = self.symbols.encode(values)
        self._check_possible(symbols)
        return symbols

    def _check_possible(self, symbols: Tensor) -> None:
        """Refuse what the view says can never be observed: its likelihood would be log 0."""
        never = (self.codebook == 0).all(1)
        if (wrong := never[symbols]).any():
            first = int(wrong.nonzero()[0])
            name = self.symbols.names[int(symbols[first])]
            raise PotluckError(
                f'sample {first} has the label "{name}", which by the declared matrix never '
                f"occurs ({int(wrong.sum())} such samples). Correct the matrix or the label."
            )

    def rows(self, symbols: Tensor) -> Tensor:
        """(N,) symbols → (N, K) rows a_i = A[z_i]."""
        return self.codebook[symbols]

    def project(self, probabilities: Tensor) -> Tensor:
        """Predict in the site's own terms: class posteriors → probabilities of its symbols.

        Args:
          probabilities: (N, K) class posteriors η.

        Returns:
          (N, Z) with entries (A η)_z / (b·η). Rows sum to 1, but for `candidates`, whose
          sets overlap and where an entry is the probability that the class is in the set.
        """
        # A softmax that underflowed to 0 on all of the site's classes must not become 0/0.
        eta = probabilities.double().clamp_min(torch.finfo(torch.float32).tiny)
        return (eta @ self.codebook.T / (eta @ self.normaliser).unsqueeze(1)).to(
            probabilities.dtype
        )


def _match_rows(mask: Tensor, codebook: Tensor) -> Tensor:
    """For each (N, K) row of marks, the index of the codebook row that equals it."""
    rows, index = distinct_rows(torch.cat([codebook == 1, mask]))
    symbol_of = torch.full((len(rows),), -1)
    symbol_of[index[: len(codebook)]] = torch.arange(len(codebook))
    found = symbol_of[index[len(codebook) :]]
    if (wrong := (found < 0) | (codebook[found] != mask).any(1)).any():
        raise PotluckError(
            f"the label row of sample {int(wrong.nonzero()[0])} is none of those that the view "
            "was made with; make the view from the same rows."
        )
    return found


def uniform_prior(space: LabelSpace) -> Tensor:
    """(K,) float64: every class equally likely."""
    return torch.full((len(space),), 1 / len(space), dtype=torch.float64)


def full_normaliser(space: LabelSpace) -> Tensor:
    """(K,) float64 ones: all classes can occur."""
    return torch.ones(len(space), dtype=torch.float64)
