"""`fixed-head`: every class has a direction of its own from the start, and it never moves.

Ours, for sites with few classes, private ones above all. A site with two classes learns two head
rows against each other only, and what it learns about them need not fit what other sites learn
about theirs. Here the head is fixed: row y is a direction drawn from the name of class y,

    w_y = scale · u / ‖u‖,   u ~ N(0, I) from a stream addressed by the name;   no bias,

and the sites train the encoder alone, by the likelihood of their labels. Directions of different
names are nearly orthogonal in many dimensions, so all sites send samples of a class to one place,
away from the places of classes that they have never heard of. (FedGELA, Fan et al. 2023, fixes a
simplex; but its rows depend on the number of classes, which a private site must not know.)

What a private site receives of the head depends on the names of its own classes and on nothing
else: it could have drawn the rows itself. Unlike `ridge-head` it sends the server nothing besides
its update; but it helps less, and only where sites have very few classes and the encoder gives many
more features than there are classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.heads import scores_at_rest
from potluck.methods.method import AtServer, Step
from potluck.models.network import Layout, Network
from potluck.streams import stream


@dataclass(frozen=True)
class FixedHead(Augmented):
    """The view likelihood under a fixed head.

    Args:
      augment: how training images are varied.
      scale:   length of the head's rows.
    """

    scale: float = 2.0

    def check(self, federation: Federation) -> None:
        """Rows need a length."""
        super().check(federation)
        if not self.scale > 0:
            raise PotluckError(f"method.scale is {self.scale}; it must be above 0.")

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """The rows of all classes."""
        shape = dict(zip(network.layout.names, network.layout.shapes, strict=True))["head.weight"]
        rows = [direction(name, shape[1]) for name in federation.space]
        device = federation.sites[0].inputs.device
        return {"rows": self.scale * torch.stack(rows).to(device)}

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """The head as it is meant to be, whatever decay or rounding did to it."""
        parts = layout.unflatten(theta) | {"head.weight": server["rows"].to(theta.dtype)}
        if "head.bias" in parts:
            parts["head.bias"] = torch.zeros_like(parts["head.bias"])
        return layout.flatten(parts)

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean negative log-likelihood of the batch's labels; the head has no gradient."""
        site, batch = step.site, step.batch
        logits = scores_at_rest(step.model, self.inputs(step))
        log_a = site.log_a[site.symbols[batch.index]]
        return view_nll(logits, log_a, site.log_b).mean(), step.state

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)


def direction(name: str, features: int) -> Tensor:
    """(F,) the unit vector of a class, from its name alone."""
    drawn = torch.randn(features, generator=stream(0, "direction", name))
    return drawn / drawn.norm()
