"""The convolutional network of the FedUL paper for MNIST."""

from torch import nn

from potluck.models._parts import image_shape


def lenet(input_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Six layers with batch normalisation (Lu et al., 2022, Table D.2).

    Two poolings quarter each side, so the first linear layer has 128·⌊H/4⌋·⌊W/4⌋ inputs: the
    paper's 6272 at 28×28, 8192 at 32×32, and 512 at 8×8. All else is the same at every size
    from 4×4 up; its width grows with the area, so large images want a ResNet.

    Args:
      input_shape: (C, H, W); the paper has C = 3.

    Returns:
      The body and its 512 features.
    """
    channels, height, width = image_shape(input_shape, smallest=4)
    body = nn.Sequential(
        *_convolution(channels, 64),
        nn.MaxPool2d(2),
        *_convolution(64, 64),
        nn.MaxPool2d(2),
        *_convolution(64, 128),
        nn.Flatten(),
        *_dense(128 * (height // 4) * (width // 4), 2048),
        *_dense(2048, 512),
    )
    return body, 512


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU()]


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
