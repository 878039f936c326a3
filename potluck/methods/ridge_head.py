"""`ridge-head`: the head that central least squares would find, from sums that sites send.

Ours, for sites with few classes, private ones above all. Rows that a site learns against its own
classes only say little about the others. Least squares needs no other classes: over all samples of
all sites, with features φ (and a 1 for the bias) and one-hot labels,

    W = argmin Σ_i ‖W φ_i − e_{y_i}‖² + λ s̄ ‖W‖²    has rows    w_y = (G + λ s̄ I)⁻¹ S_y,
    G = Σ_i φ_i φ_iᵀ,   S_y = Σ_{i: y_i = y} φ_i,   s̄ = the mean of G's diagonal,

where G is a sum over all sites and S_y over the holders of y. So each round a site

    sends G and its rows S_y for the model that it received, each divided by its samples,
    trains the encoder against the rows that it received, by the likelihood of its labels,

and the server solves for W, multiplied by `scale` to serve as logits. W fits the encoder of the
start of the round; training against it keeps the encoder from running away from it. A class that no
site of the round holds keeps its row.

Closed-form heads are known from federated learning with pre-trained encoders (Fed3R, Fanì et
al. 2024). Here they are solved anew each round, while the encoder learns, and handed out row by
row: what a private site receives is as in Private label sets (2025), the encoder and its own rows.
The server receives more than there: G, and the feature sums of each of a site's classes.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods import head_sums
from potluck.methods.augmented import Augmented
from potluck.methods.heads import scores_at_rest
from potluck.methods.method import Arrival, Here, Plan, Step
from potluck.methods.named_classes import check_named
from potluck.models.network import Layout, Network, features_batched


@dataclass(frozen=True)
class RidgeHead(Augmented):
    """An encoder trained by the likelihood under a head of least squares.

    Args:
      augment: how training images are varied.
      ridge:   λ, relative to the mean square of the features.
      scale:   factor from least-squares outputs, about 0 or 1, to logits.
    """

    ridge: float = 1e-3
    scale: float = 3.0

    def check(self, federation: Federation) -> None:
        """Sites must know the class of each sample."""
        super().check(federation)
        for name in ("ridge", "scale"):
            if not getattr(self, name) > 0:
                raise PotluckError(f"method.{name} is {getattr(self, name)}; it must be above 0.")
        check_named("ridge-head", federation)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples; G / n and S / n for the received model."""
        model, site = here.model, here.site
        plan = super().plan(here, generator)
        classes = site.log_a.softmax(1)[:, site.classes]  # one-hot: each label names a class
        features = features_batched(model.network, *model.received, site.inputs)
        sums = head_sums.sums(features, classes[site.symbols])
        return replace(plan, tensors={name: value / len(site) for name, value in sums.items()})

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean negative log-likelihood of the batch's labels; the head has no gradient."""
        site, batch = step.site, step.batch
        logits = scores_at_rest(step.model, self.inputs(step))
        log_a = site.log_a[site.symbols[batch.index]]
        return view_nll(logits, log_a, site.log_b).mean(), step.state

    def report(self, here: Here, plan: Plan) -> Tensors:
        """G / n, and the rows S_y / n of the site's classes in its own order."""
        return plan.tensors

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """Sums over no sites."""
        return head_sums.nothing_yet(network, federation.sites[0].inputs.device)

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Add what the site sent."""
        return head_sums.added(server, arrival)

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The sums of this round, from which `adjust` solves."""
        return head_sums.closed(server)

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """The rows of least squares, for the classes that some site of the round holds."""
        if "gram" not in server:
            return theta
        return head_sums.solved(server, theta, layout, self.ridge, self.scale)
