"""A head by least squares, from sums over each site's samples.

Over all samples of all sites, with features φ (and a 1 for the bias) and targets q,

    W = argmin Σ_i ‖W φ_i − q_i‖² + λ s̄ ‖W‖²    has rows    w_y = (G + λ s̄ I)⁻¹ S_y,
    G = Σ_i φ_i φ_iᵀ,   S_y = Σ_i q_iy φ_i,   s̄ = the mean of G's diagonal.

With W_s the head that fits site s, S_s = W_s G_s: the mean of the sites' heads, each weighted by
what the site knows, its Fisher information G_s about a row. G is a sum over all sites, so that
the samples of a site without class y count as samples of other classes for row y.

G and S are of the encoder that sites received, and W is for that one only: training moves features
by a good part of their length in each round.

Which λ? With the targets of n samples as w_y · φ + noise of variance σ², and rows w_y drawn with
variance σ² / (λ s̄), the log-probability of the targets is, at the σ² that suits them best,

    −½ Σ_y [ n log R(λ) + log det(I + G / (λ s̄)) ] + const,   R(λ) = Σ_iy q_iy² − Σ_y S_y · w_y,

the evidence (MacKay 1992). Few samples make for a large λ, many for a small one.
"""

import torch
from torch import Tensor

from potluck.messages import Tensors
from potluck.methods.method import Arrival
from potluck.models.network import Layout, Network


def sums(features: Tensor, targets: Tensor) -> Tensors:
    """What a site sends, before division by its number of samples.

    Args:
      features: (n, F) of its samples.
      targets:  (n, C) over its classes.

    Returns:
      G (F + 1, F + 1) and S (C, F + 1). S is named by C, as the engine takes the mean of equal
      names and sites differ in their number of classes; that mean is not used.
    """
    with_one = torch.cat([features, features.new_ones(len(features), 1)], 1)
    name = f"sums of {targets.shape[1]} labels"
    return {"gram": with_one.T @ with_one, name: targets.T @ with_one}


def nothing_yet(network: Network, device: torch.device) -> Tensors:
    """The server's state: sums over no sites."""
    shapes = dict(zip(network.layout.names, network.layout.shapes, strict=True))
    classes, features = shapes["head.weight"]
    dtype = network.initial()[0].dtype
    return {
        "arriving.gram": torch.zeros(features + 1, features + 1, device=device, dtype=dtype),
        "arriving.sums": torch.zeros(classes, features + 1, device=device, dtype=dtype),
    }


def added(server: Tensors, arrival: Arrival) -> Tensors:
    """The server's state with what one site sent; its rows go where its classes are."""
    extras, samples = arrival.update.extras, arrival.update.samples
    rows = samples * extras[f"sums of {len(arrival.classes)} labels"]
    return server | {
        "arriving.gram": server["arriving.gram"] + samples * extras["gram"],
        "arriving.sums": server["arriving.sums"].index_add(0, arrival.classes, rows),
    }


def closed(server: Tensors) -> Tensors:
    """The sums of this round, for `solved`; the next round's start at 0."""
    new = {name: server[f"arriving.{name}"] for name in ("gram", "sums")}
    empty = {f"arriving.{name}": torch.zeros_like(value) for name, value in new.items()}
    return server | empty | new


def solved(server: Tensors, theta: Tensor, layout: Layout, ridge: float, scale: float) -> Tensor:
    """θ with the rows of least squares, for the classes that some site of the round holds.

    Args:
      server: the server's state after `closed`.
      theta:  (P,) the parameters.
      layout: where each of them lies.
      ridge:  λ.
      scale:  factor from least-squares outputs, about 0 or 1, to logits.
    """
    parts = layout.unflatten(theta)
    features = parts["head.weight"].shape[1]
    size = features + ("head.bias" in parts)
    rows = scale * least_squares(server["gram"][:size, :size], server["sums"][:, :size], ridge)
    held = server["sums"][:, -1] > 0  # the feature that is 1 counts samples
    new = {"head.weight": rows[:, :features]}
    if "head.bias" in parts:
        new["head.bias"] = rows[:, features]
    for name, values in new.items():
        keep = held.view(-1, *(1 for _ in values.shape[1:]))
        parts[name] = torch.where(keep, values.to(theta.dtype), parts[name])
    return layout.flatten(parts)


def evidence_ridge(gram: Tensor, rows: Tensor) -> float:
    """The λ of the greatest evidence, of some from 0.0001 to 10.

    Args:
      gram: (F + 1, F + 1) G, with the feature that is 1 last.
      rows: (K, F + 1) S, of targets that are nearly 0 or 1.
    """
    held = rows[:, -1] > 0
    values, directions = torch.linalg.eigh(gram.double())
    values = values.clamp_min(0)
    count, scale = float(gram[-1, -1]), float(values.mean())
    along = ((rows[held].double() @ directions) ** 2).sum(0)
    squares = float(rows[:, -1].sum())  # Σ q² = Σ q
    ridges = torch.logspace(-4, 1, 26, dtype=values.dtype, device=values.device)
    damped = values + scale * ridges.unsqueeze(1)
    residual = (squares - (along / damped).sum(1)).clamp_min(1e-9 * squares)
    determinant = (damped / (scale * ridges.unsqueeze(1))).log().sum(1)
    return float(ridges[(count * residual.log() + determinant).argmin()])


def least_squares(gram: Tensor, rows: Tensor, ridge: float) -> Tensor:
    """Rows w_y = (G + λ s̄ I)⁻¹ S_y with s̄ the mean of G's diagonal.

    Args:
      gram:  (F, F) G.
      rows:  (K, F) S.
      ridge: λ.

    Returns:
      (K, F) the rows, in float64.
    """
    g = gram.double()
    damped = g + ridge * g.diagonal().mean() * torch.eye(len(g), dtype=g.dtype, device=g.device)
    return torch.cholesky_solve(rows.double().T, torch.linalg.cholesky(damped)).T
