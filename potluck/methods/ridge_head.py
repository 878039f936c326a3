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

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.heads import scores_at_rest
from potluck.methods.method import Arrival, Batch, LocalModel, Plan, SiteData
from potluck.methods.named_classes import check_named
from potluck.models.network import Layout, Network

_CHUNK = 1024


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

    def plan(
        self,
        model: LocalModel,
        site: SiteData,
        shared: Tensors,
        state: Tensors,
        generator: torch.Generator,
    ) -> Plan:
        """All samples; G / n and S / n for the received model."""
        plan = super().plan(model, site, shared, state, generator)
        for index in plan.pool.split(_CHUNK):
            features = _with_one(model, site.inputs[index])
            sums = features.new_zeros(len(site.log_a), features.shape[1])
            sums = sums.index_add(0, site.symbols[index], features)
            for name, part in (("gram", features.T @ features), ("sums", sums)):
                share = part / len(site)
                plan.tensors[name] = plan.tensors[name] + share if name in plan.tensors else share
        return plan

    def loss(
        self,
        model: LocalModel,
        site: SiteData,
        plan: Plan,
        batch: Batch,
        shared: Tensors,
        state: Tensors,
    ) -> tuple[Tensor, Tensors]:
        """Mean negative log-likelihood of the batch's labels; the head has no gradient."""
        logits = scores_at_rest(model, self.inputs(site, batch))
        log_a = site.log_a[site.symbols[batch.index]]
        return view_nll(logits, log_a, site.log_b).mean(), state

    def report(self, model: LocalModel, site: SiteData, plan: Plan, state: Tensors) -> Tensors:
        """G / n, and the rows S_y / n of the site's labels in its own order.

        Rows are named by their number, as the engine takes the mean of equal names, and sites
        differ in their number of labels. The mean of rows means nothing and is not used.
        """
        return {"gram": plan.tensors["gram"], _rows(len(site.log_a)): plan.tensors["sums"]}

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """Sums over no sites; and the class of each label of each site."""
        shapes = dict(zip(network.layout.names, network.layout.shapes, strict=True))
        classes, features = shapes["head.weight"]
        device, dtype = federation.sites[0].inputs.device, network.initial()[0].dtype
        labels = {
            f"classes.{site.name}": site.view.codebook.argmax(1).to(device)
            for site in federation.sites
        }
        return labels | {
            "arriving.gram": torch.zeros(features + 1, features + 1, device=device, dtype=dtype),
            "arriving.sums": torch.zeros(classes, features + 1, device=device, dtype=dtype),
        }

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Add what the site sent; its rows go where its classes are."""
        extras, samples = arrival.update.extras, arrival.update.samples
        classes = server[f"classes.{arrival.update.site}"]
        rows = samples * extras[_rows(len(classes))]
        arriving = {
            "arriving.gram": server["arriving.gram"] + samples * extras["gram"],
            "arriving.sums": server["arriving.sums"].index_add(0, classes, rows),
        }
        return server | arriving

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The sums of this round, from which `adjust` solves; the next round's start at 0."""
        gram, sums = server["arriving.gram"], server["arriving.sums"]
        return server | {
            "arriving.gram": torch.zeros_like(gram),
            "arriving.sums": torch.zeros_like(sums),
            "gram": gram,
            "sums": sums,
        }

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """The rows of least squares, for the classes that some site of the round holds."""
        if "gram" not in server:
            return theta
        parts = layout.unflatten(theta)
        size = parts["head.weight"].shape[1] + ("head.bias" in parts)
        rows = self.scale * least_squares(
            server["gram"][:size, :size], server["sums"][:, :size], self.ridge
        )
        held = server["sums"][:, -1] > 0  # the feature that is 1 counts samples
        features = parts["head.weight"].shape[1]
        new = {"head.weight": rows[:, :features]}
        if "head.bias" in parts:
            new["head.bias"] = rows[:, features]
        for name, values in new.items():
            keep = held.view(-1, *(1 for _ in values.shape[1:]))
            parts[name] = torch.where(keep, values.to(theta.dtype), parts[name])
        return layout.flatten(parts)


def least_squares(gram: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """Rows w_y = (G + λ s̄ I)⁻¹ S_y with s̄ the mean of G's diagonal.

    Args:
      gram:  (F, F) G = Σ φ φᵀ over all samples.
      sums:  (K, F) S_y = Σ φ over the samples of each class.
      ridge: λ.

    Returns:
      (K, F) the rows, in float64.
    """
    g = gram.double()
    damped = g + ridge * g.diagonal().mean() * torch.eye(len(g), dtype=g.dtype, device=g.device)
    return torch.cholesky_solve(sums.double().T, torch.linalg.cholesky(damped)).T


def _with_one(model: LocalModel, inputs: Tensor) -> Tensor:
    """(B, F + 1) features of the received model, and a 1."""
    with torch.no_grad():
        features = model.network.inferred_features(*model.received, inputs)
    return torch.cat([features, features.new_ones(len(features), 1)], 1)


def _rows(count: int) -> str:
    return f"sums of {count} labels"
