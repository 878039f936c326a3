"""MobileNet-V2 (Sandler et al., 2018).

Layers are named as in torchvision, so that its weights fit under `encoder.body.`.
"""

from collections import OrderedDict

from torch import Tensor, nn

from potluck.errors import PotluckError
from potluck.models._parts import dropout_layers, image_shape

# The paper's Table 2: expansion, channels, blocks, stride of the first block.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    input_shape: tuple[int, ...],
    *,
    width: float = 1.0,
    stem_stride: int = 1,
    dropout: float = 0.2,
) -> tuple[nn.Module, int]:
    """MobileNet-V2, by default with a stem that keeps the size of the image.

    The other layers shrink each side 16 times, so 32×32 ends as 2×2, as in the ResNets.

    Args:
      input_shape: (C, H, W).
      width:       factor on all channel numbers.
      stem_stride: 1 for small images; 2, as in the paper, for 64×64 and larger.
      dropout:     rate of dropout before the head.

    Returns:
      The body and its number of features, 1280 for widths up to 1.
    """
    if stem_stride not in (1, 2):
        raise PotluckError(f"stem_stride must be 1 or 2, not {stem_stride}.")
    if not width > 0:
        raise PotluckError(f"width must be positive, not {width}.")
    image_channels, _, _ = image_shape(input_shape)
    channels = _scaled(32, width)
    layers: list[nn.Module] = [_conv_norm_relu(image_channels, channels, 3, stem_stride)]
    for expansion, base, blocks, first_stride in _STAGES:
        outputs = _scaled(base, width)
        for position in range(blocks):
            stride = first_stride if position == 0 else 1
            layers.append(_InvertedResidual(channels, outputs, expansion, stride))
            channels = outputs
    features = _scaled(1280, max(1.0, width))
    layers.append(_conv_norm_relu(channels, features, 1))
    body = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*layers),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            dropout=nn.Sequential(*dropout_layers(dropout)),
        )
    )
    return body, features


class _InvertedResidual(nn.Module):
    """Widen by 1×1, filter each channel by 3×3, narrow by 1×1 without ReLU; add the input."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.adds = inputs == outputs and stride == 1
        self.conv = nn.Sequential(
            *([_conv_norm_relu(inputs, inner, 1)] if expansion > 1 else []),
            _conv_norm_relu(inner, inner, 3, stride, groups=inner),
            _conv(inner, outputs, 1),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds else y


def _scaled(channels: int, width: float) -> int:
    """Scale a channel number to the nearest multiple of 8, but never lose more than a tenth."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def _conv_norm_relu(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        _conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs), nn.ReLU6()
    )


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    # No bias: the normalisation that follows has one.
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return layer
