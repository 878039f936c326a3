"""The models of the benchmarks: one definition each, for Potluck and all its peers.

Plain `nn.Module`s that take floats (B, C, H, W) and end in a linear layer.
"""

from collections.abc import Callable
from math import prod

from torch import nn

Shape = tuple[int, int, int]


def mlp(shape: Shape) -> nn.Module:
    """Two hidden layers of 200: 199,210 parameters for 1×28×28."""
    return nn.Sequential(
        nn.Flatten(), *_dense(prod(shape), 200), *_dense(200, 200), nn.Linear(200, 10)
    )


def lenet5(shape: Shape) -> nn.Module:
    """LeNet-5 (LeCun et al. 1998) with ReLU and max-pooling: 61,706 parameters for 1×28×28."""
    channels, side, _ = shape
    padding = (32 - side) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), *_dense(400, 120), *_dense(120, 84), nn.Linear(84, 10)),
    )


def cnn_s(shape: Shape) -> nn.Module:
    """A small convolutional network: 111,156 parameters for 1×28×28."""
    return _two_convolutions(shape, 16, 32, 62)


def cnn_l(shape: Shape) -> nn.Module:
    """The convolutional network of FedAvg (McMahan et al. 2017): 1,663,370 for 1×28×28."""
    return _two_convolutions(shape, 32, 64, 512)


def pfl_cnn(shape: Shape) -> nn.Module:
    """The model of pfl-research's CIFAR-10 benchmark: 1,626,442 parameters for 3×32×32."""
    channels, height, width = shape
    features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(*_dense(features, 128), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


MODELS: dict[str, Callable[[Shape], nn.Module]] = {
    "mlp": mlp,
    "lenet5": lenet5,
    "cnn_s": cnn_s,
    "cnn_l": cnn_l,
    "pfl_cnn": pfl_cnn,
}


def _dense(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(inputs, outputs), nn.ReLU()


def _two_convolutions(shape: Shape, first: int, second: int, hidden: int) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        *(nn.Conv2d(channels, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), *_dense(second * (height // 4) * (width // 4), hidden)),
        nn.Linear(hidden, 10),
    )
