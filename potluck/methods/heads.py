"""Heads of a site's own, over its symbols, on the encoder that all sites share."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from potluck.messages import Tensors
from potluck.methods.method import LocalModel, SiteData
from potluck.models.network import HEAD, Network


def first_head(site: SiteData, network: Network) -> Tensors:
    """The first values of a head over a site's Z symbols: rows of the model's own random head.

    Args:
      site:    the site; beyond the model's K rows, they repeat.
      network: the model.
    """
    parts = network.layout.unflatten(network.initial()[0].to(site.inputs.device))
    rows = torch.arange(len(site.log_a)) % len(parts["head.weight"])
    return {name: parts[name][rows] for name in HEAD if name in parts}


def with_head(model: LocalModel, head: Tensors, inputs: Tensor) -> Tensor:
    """(B, ...) → (B, Z) logits in training mode with another head on the model's encoder."""
    features = model.network.features(model.theta, model.buffers, inputs)
    return linear(features, head["head.weight"], head.get("head.bias"))


def scores_at_rest(model: LocalModel, inputs: Tensor) -> Tensor:
    """(B, ...) → (B, K) logits in training mode, with gradients for the encoder alone."""
    features = model.network.features(model.theta, model.buffers, inputs)
    return model.network.scores(model.theta.detach(), features)
