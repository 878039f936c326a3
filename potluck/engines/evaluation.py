"""How good a model is on labelled samples."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.messages import Tensors
from potluck.models.network import Network, infer_batched

BINS = 15
"""How many bins of equal width the calibration of confidences is counted in."""


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


@dataclass(frozen=True, eq=False)
class Examination:
    """A closer look at predictions: what is taken for what, and how sure the model is.

    Args:
      confusion:   (K, K) int64, how many samples of the row's class were predicted as the
                   column's.
      calibration: (BINS, 3) float64; for the predictions whose probability falls into a bin: how
                   many there are, the sum of these probabilities, how many are right.
    """

    confusion: Tensor
    calibration: Tensor


def examine(probabilities: Tensor, classes: Tensor) -> Examination:
    """Look at predictions more closely.

    Args:
      probabilities: (N, K) class posteriors.
      classes:       (N,) the true classes.
    """
    count = probabilities.shape[1]
    confidence, predicted = probabilities.double().max(1)
    cells = torch.bincount(classes * count + predicted, minlength=count * count)
    bins = (confidence * BINS).long().clamp_max(BINS - 1)  # a probability of 1: the last bin
    values = torch.stack(
        [torch.ones_like(confidence), confidence, (predicted == classes).double()], 1
    )
    calibration = values.new_zeros(BINS, 3).index_add(0, bins, values)
    return Examination(cells.view(count, count), calibration)
