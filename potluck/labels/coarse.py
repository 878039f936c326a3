"""`coarse`: labels in another label space, coarser than or merely different from the target's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.labels.checks import as_matrix, stochastic_columns
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior


def coarse(
    space: LabelSpace,
    correspondence: Mapping[str, Sequence[str]] | Any,
    names: Sequence[str] | None = None,
) -> LabelView:
    """Labels z of another space with P(z = j | y = k) = M[j, k]: a = M[z], b = 1 (FedMT).

    Args:
      space:          the K target classes.
      correspondence: {other label: target classes it covers}, or the matrix M (J, K) whose
                      columns sum to 1. In a mapping, a class that several labels cover is
                      taken to get each of them equally often.
      names:          the J label names, when M is given as a matrix; numbered when left out.
    """
    if isinstance(correspondence, Mapping):
        if names is not None:
            raise PotluckError(
                "label names are given twice: in the mapping and as names; leave out names."
            )
        matrix = _from_mapping(space, correspondence)
        symbols = LabelSpace(tuple(correspondence))
    else:
        what = "the correspondence matrix M"
        rows = None if names is None else len(names)
        declared = as_matrix(what, correspondence, rows, len(space))
        matrix = stochastic_columns(what, declared, space.names)
        symbols = LabelSpace.numbered(len(matrix)) if names is None else LabelSpace(tuple(names))
    if (unused := matrix.sum(1) == 0).any():
        label = symbols.names[int(unused.nonzero()[0])]
        raise PotluckError(
            f'the label "{label}" covers no target class; remove it or say what it covers.'
        )
    return LabelView(
        kind="coarse",
        space=space,
        symbols=symbols,
        codebook=matrix,
        normaliser=full_normaliser(space),
        prior=uniform_prior(space),
    )


def _from_mapping(space: LabelSpace, mapping: Mapping[str, Sequence[str]]) -> Tensor:
    if not mapping:
        raise PotluckError(
            "the mapping of labels to target classes is empty; list for each label the target "
            "classes that it covers."
        )
    covers = torch.zeros(len(mapping), len(space), dtype=torch.float64)
    for j, (label, classes) in enumerate(mapping.items()):
        if isinstance(classes, str) or not isinstance(classes, Iterable):
            raise PotluckError(
                f'label "{label}" maps to {classes!r}, which is no list; give the list of target '
                f'classes that it covers: ["{classes}"].'
            )
        for name in classes:
            if name not in space:
                raise PotluckError(
                    f'label "{label}" covers an {one_of("target class", name, space)}'
                )
            covers[j, space.index(name)] = 1
    if (missing := covers.sum(0) == 0).any():
        names = ", ".join(f'"{space.names[k]}"' for k in missing.nonzero().flatten().tolist())
        raise PotluckError(
            f"no label covers the target class {names}; add each of them to the label that such "
            "a case gets at this site, or would get."
        )
    return covers / covers.sum(0)
