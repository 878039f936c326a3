"""`candidates`: several possible classes per sample, one of them true."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.labels.arrays import as_array
from potluck.labels.masks import as_mask, distinct_rows
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior

SEPARATOR = "|"


def candidates(space: LabelSpace, sets: Any) -> LabelView:
    """Labels that are sets S of classes: a = 1 on S and 0 elsewhere, b = 1 (partial labels).

    The symbols are the sets that occur; give `view.observe` the same matrix. That a = 1 on all
    of S says that a set is as likely for each class in it, as when wrong candidates are added
    at random; a set then tells only that the true class is in it.

    Args:
      space: the K target classes.
      sets:  (N, K) 0/1 matrix (dense, or a SciPy sparse matrix) whose row i marks the
             candidates of sample i. `candidate_mask` makes one from joined names.
    """
    _check_separator(space, SEPARATOR)
    codebook, _ = distinct_rows(as_mask(space, sets))
    return LabelView(
        kind="candidates",
        space=space,
        symbols=LabelSpace(tuple(_joined(space, codebook))),
        codebook=codebook.double(),
        normaliser=full_normaliser(space),
        prior=uniform_prior(space),
    )


def candidate_mask(
    space: LabelSpace, joined: Sequence[str] | np.ndarray, separator: str = SEPARATOR
) -> Tensor:
    """Names joined by a separator ("cat|lynx") → (N, K) bool candidate masks.

    Args:
      space:     the K target classes.
      joined:    N texts, each with at least one class name.
      separator: what stands between the names; blanks around names do not count.
    """
    _check_separator(space, separator)
    given = as_array("the candidate sets", joined)
    if given.ndim != 1:
        raise PotluckError(
            f'candidate sets must be one text per sample, such as "a{separator}b", not an array '
            f"of shape {given.shape}."
        )
    texts, inverse = np.unique(given.astype(str), return_inverse=True)
    rows = torch.zeros(len(texts), len(space), dtype=torch.bool)
    for i, text in enumerate(texts):  # distinct texts, not samples
        names = [name.strip() for name in text.split(separator) if name.strip()]
        if not names:
            first = int(np.flatnonzero(inverse == i)[0])
            raise PotluckError(
                f"the candidate set of sample {first} is empty; every sample needs at least one "
                "candidate (list all classes for a sample nothing is known about)."
            )
        rows[i, [space.index(name) for name in names]] = True
    return rows[torch.from_numpy(inverse)]


def _check_separator(space: LabelSpace, separator: str) -> None:
    if mixed := [name for name in space if separator in name]:
        raise PotluckError(
            f'the class name "{mixed[0]}" contains "{separator}", which stands between the names '
            "of candidates; rename the class."
        )


def _joined(space: LabelSpace, codebook: Tensor) -> list[str]:
    names = np.array(space.names, dtype=object)
    return [SEPARATOR.join(names[row]) for row in codebook.numpy()]
