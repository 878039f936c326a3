"""Tensors that sites with the same label space have in common, averaged among them alone.

A site reports them under a name that depends on its symbols; the server averages what has the
same name, remembers which site uses which name, and sends a site only what is its own.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from potluck.messages import Tensors
from potluck.methods.method import Arrival, LocalModel, SiteData
from potluck.streams import derive

_SPACE, _SITE = "space", "site"


def reported(site: SiteData, tensors: Tensors) -> Tensors:
    """What a site reports: its tensors, named after its label space."""
    tag = derive(0, *site.names)
    return {f"{_SPACE}/{tag}/{name}": tensor.detach() for name, tensor in tensors.items()}


def noted(server: Tensors, arrival: Arrival) -> Tensors:
    """The server's state once it knows which label space a site reported in."""
    tags = {int(name.split("/")[1]) for name in arrival.update.extras if name.startswith(_SPACE)}
    return server | {f"{_SITE}/{arrival.update.site}": torch.tensor(tag) for tag in tags}


def averaged(server: Tensors, extras: Tensors) -> Tensors:
    """The server's state with the new means of what sites reported."""
    return server | {name: mean for name, mean in extras.items() if name.startswith(_SPACE)}


def shared_with(server: Tensors, site: str) -> Tensors:
    """What goes to a site: the means of its own label space; nothing before its first report."""
    tag = server.get(f"{_SITE}/{site}")
    if tag is None:
        return {}
    prefix = f"{_SPACE}/{int(tag)}/"
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in server.items()
        if name.startswith(prefix)
    }


def offsets(model: LocalModel, start: Mapping[str, Tensor]) -> Tensors:
    """What to add to the personal tensors so that the round starts from given values.

    A site's personal tensors continue from its own last round. Adding a constant that is fixed
    when the round begins starts them elsewhere, e.g. from the mean over the sites.

    Args:
      model: the model at the start of the round.
      start: name → the value to start from; others start where they are.
    """
    return {
        name: start[name] - value if name in start else torch.zeros_like(value)
        for name, value in model.personal.items()
    }
