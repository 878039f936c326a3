"""`subset`: only some of the classes occur at this site, and it may keep secret which."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from potluck.errors import PotluckError
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, uniform_prior


def subset(space: LabelSpace, classes: Sequence[str]) -> LabelView:
    """Exact labels among some of the classes: a = e_y, b = 1 on the site's classes, else 0.

    Args:
      space:   the K target classes.
      classes: the names that occur at the site, in the site's own order.
    """
    if isinstance(classes, str):
        raise PotluckError(
            f'the class set of the site is the text "{classes}"; give a list: ["{classes}"].'
        )
    if not list(classes):
        raise PotluckError("the class set of the site is empty; name the classes that occur there.")
    own = LabelSpace(tuple(classes))
    index = torch.tensor([space.index(name) for name in own])
    codebook = torch.zeros(len(own), len(space), dtype=torch.float64)
    codebook[torch.arange(len(own)), index] = 1
    return LabelView(
        kind="subset",
        space=space,
        symbols=own,
        codebook=codebook,
        normaliser=codebook.sum(0),
        prior=uniform_prior(space),
    )


def private_subset(space: LabelSpace, classes: Sequence[str]) -> LabelView:
    """A `subset` whose class set is a secret from the other sites.

    The site receives only the head rows of its own classes and trains on `view.own()`,
    which knows nothing else; the server maps the rows back.
    """
    return replace(subset(space, classes), private=True)
