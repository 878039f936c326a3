"""Validation: how well sites' own samples that were kept out of training are predicted."""

from torch import Tensor

from potluck.federation import Federation, Site
from potluck.messages import Tensors
from potluck.models.network import Network, infer_batched


def validate(network: Network, theta: Tensor, buffers: Tensors, federation: Federation) -> float:
    """The share of the sites' validation samples whose label is predicted, over all sites.

    Each site predicts in its own terms: the symbols of its view, and with the head rows of its
    own classes where it is private.

    Args:
      network:    the global model.
      theta:      (P,) parameters.
      buffers:    its buffers.
      federation: whose validation samples are predicted.
    """
    hits = total = 0
    for site in federation.validation:
        own, parameters = network, theta
        if site.view.private:
            own = network.narrowed(len(site.view.classes))
            parameters = theta[network.layout.entries(site.view.classes).to(theta.device)]
        hits += predicted(own, parameters, buffers, site)
        total += len(site)
    return hits / total


def predicted(network: Network, theta: Tensor, buffers: Tensors, site: Site) -> int:
    """How many of a site's samples have the label that the model predicts in the site's terms.

    Args:
      network: the model, with the classes that the site knows.
      theta:   (P_s,) parameters.
      buffers: its buffers.
      site:    the samples.
    """
    logits = infer_batched(network, theta, buffers, site.inputs)
    guess = site.view.own().project(logits.softmax(1).cpu()).argmax(1)
    return int((guess == site.symbols.cpu()).sum())
