"""Fully connected models, for tables and for flattened images."""

from itertools import pairwise
from math import prod

from torch import nn

from potluck.errors import PotluckError
from potluck.models._parts import dropout_layers


def linear(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Softmax regression: the features are the inputs, flattened."""
    return nn.Flatten(), prod(input_shape)


def mlp(
    input_shape: tuple[int, ...], *, hidden: tuple[int, ...] = (128,), dropout: float = 0.0
) -> tuple[nn.Module, int]:
    """Multilayer perceptron: linear layers with ReLU.

    Args:
      input_shape: (C, H, W), flattened, or (D,).
      hidden:      width of each hidden layer; the last is the number of features.
      dropout:     rate of dropout after each hidden layer.

    Returns:
      The body and its number of features.
    """
    if not isinstance(hidden, list | tuple) or any(width < 1 for width in hidden):
        raise PotluckError(f"hidden must be a list of positive layer widths, not {hidden!r}.")
    widths = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), *dropout_layers(dropout)]
    return nn.Sequential(*layers), widths[-1]
