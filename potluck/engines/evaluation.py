"""How good a model is on labelled samples."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.messages import Tensors
from potluck.models.network import Network, infer_batched


@dataclass(frozen=True)
class Evaluation:
    """Results on a test set.

    Args:
      accuracy:  share of samples whose class was predicted.
      loss:      mean cross-entropy.
      per_class: accuracy among the samples of each class; NaN for a class without samples.
    """

    accuracy: float
    loss: float
    per_class: tuple[float, ...]


def evaluate(
    network: Network, theta: Tensor, buffers: Tensors, inputs: Tensor, classes: Tensor
) -> Evaluation:
    """Evaluate a model.

    Args:
      network: the model.
      theta:   (P,) parameters.
      buffers: its buffers.
      inputs:  (N, ...) samples.
      classes: (N,) their true classes.
    """
    logits = infer_batched(network, theta, buffers, inputs)
    hit = (logits.argmax(1) == classes).double()
    count = torch.bincount(classes, minlength=logits.shape[1])
    hits = torch.bincount(classes, weights=hit, minlength=logits.shape[1])
    return Evaluation(
        accuracy=float(hit.mean()),
        loss=float(cross_entropy(logits, classes)),
        per_class=tuple((hits / count).tolist()),
    )
