"""`subset`: only some of the classes occur at this site, and it may keep secret which."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch

from potluck.errors import PotluckError, one_of
from potluck.labels.space import LabelSpace
from potluck.labels.view import LabelView, full_normaliser, uniform_prior

Softmax = Literal["own", "all"]


def subset(space: LabelSpace, classes: Sequence[str], softmax: Softmax = "own") -> LabelView:
    """Exact labels among some of the classes: a = e_y, b = 1 on the site's classes, else 0.

    Args:
      space:   the K target classes.
      classes: the names that occur at the site, in the site's own order.
      softmax: what a label is compared with in training: the site's own classes, or all target
               classes (b = 1 everywhere). The latter is ordinary cross-entropy: it teaches that
               samples from here are of no other class, and moves the head rows of all classes.
    """
    if softmax not in get_args(Softmax):
        raise PotluckError(one_of("softmax of a subset view", softmax, get_args(Softmax)))
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
        normaliser=codebook.sum(0) if softmax == "own" else full_normaliser(space),
        prior=uniform_prior(space),
    )


def private_subset(space: LabelSpace, classes: Sequence[str]) -> LabelView:
    """A `subset` whose class set is a secret from the other sites.

    The site receives only the head rows of its own classes and trains on `view.own()`,
    which knows nothing else; the server maps the rows back.
    """
    return replace(subset(space, classes), private=True)


def declared_subset(
    space: LabelSpace, classes: Sequence[str], private: bool, softmax: Softmax
) -> LabelView:
    """The view that a study or site file declares: `subset`, or `private_subset`."""
    if not private:
        return subset(space, classes, softmax)
    if softmax != "own":
        raise PotluckError(
            f'a private site knows its own classes only, so that softmax = "{softmax}" is not '
            'possible; leave it out, or set it to "own".'
        )
    return private_subset(space, classes)
