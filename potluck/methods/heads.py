"""Heads of a site's own, over its symbols, on the encoder that all sites share."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from potluck.messages import Tensors
from potluck.methods.method import LocalModel, SiteData
from potluck.models.network import HEAD, Network
from potluck.streams import stream


def first_head(site: SiteData, network: Network) -> Tensors:
    """The first values of a head over a site's Z symbols, alike wherever the symbols are.

    They are drawn as `torch.nn.Linear` draws them.

    Args:
      site:    the site.
      network: the model.
    """
    shapes = dict(zip(network.layout.names, network.layout.shapes, strict=True))
    bound = shapes["head.weight"][1] ** -0.5
    generator = stream(0, "head", *site.names)
    head = {}
    for name in (name for name in HEAD if name in shapes):
        unit = torch.rand(len(site.log_a), *shapes[name][1:], generator=generator)
        head[name] = (bound * (2 * unit - 1)).to(site.log_a)
    return head


def with_head(model: LocalModel, head: Tensors, inputs: Tensor) -> Tensor:
    """(B, ...) → (B, Z) logits in training mode with another head on the model's encoder."""
    features = model.features(inputs)
    return linear(features, head["head.weight"], head.get("head.bias"))


def scores_at_rest(model: LocalModel, inputs: Tensor) -> Tensor:
    """(B, ...) → (B, K) logits in training mode, with gradients for the encoder alone."""
    features = model.features(inputs)
    return model.network.scores(model.theta.detach(), features)
