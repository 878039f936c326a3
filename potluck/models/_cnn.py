"""The convolutional network of the private label sets paper."""

from torch import nn

from potluck.models._parts import dropout_layers, image_shape


def cnn(input_shape: tuple[int, ...], *, dropout: float = 0.5) -> tuple[nn.Module, int]:
    """Two pairs of 3×3 convolutions, each pooled, then one linear layer; no normalisation.

    The paper's Table 1 gives the layers but not their widths; here they are 32, 32, 64, 64 and
    512, and convolutions keep the image's size.

    Args:
      input_shape: (C, H, W), at least 4×4.
      dropout:     rate of dropout before the head.

    Returns:
      The body and its 512 features.
    """
    channels, height, width = image_shape(input_shape, smallest=4)
    body = nn.Sequential(
        *_convolution(channels, 32),
        *_convolution(32, 32),
        nn.MaxPool2d(2),
        *_convolution(32, 64),
        *_convolution(64, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        *dropout_layers(dropout),
    )
    return body, 512


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
