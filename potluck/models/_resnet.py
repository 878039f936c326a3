"""Residual networks (He et al., 2016), with the stems that small images need.

Layers are named as in torchvision, so that its weights fit under `encoder.body.`.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor, nn

from potluck.errors import PotluckError, one_of
from potluck.models._parts import image_shape

Stem = Literal["7x7", "3x3"]
Norm = Literal["batch", "group"]
_MakeNorm = Callable[[int], nn.Module]

# Kernel and stride of the first convolution.
_STEMS: dict[str, tuple[int, int]] = {"7x7": (7, 2), "3x3": (3, 1)}
_NORMS: dict[str, _MakeNorm] = {"batch": nn.BatchNorm2d, "group": partial(nn.GroupNorm, 32)}


def resnet18(
    input_shape: tuple[int, ...], *, stem: Stem = "7x7", norm: Norm = "batch"
) -> tuple[nn.Module, int]:
    """ResNet-18 without the pooling after the stem.

    Args:
      input_shape: (C, H, W).
      stem:        "7x7" with stride 2, as the papers have it, or "3x3" with stride 1.
      norm:        "batch" normalisation, or "group" with 32 groups.

    Returns:
      The body and its 512 features.
    """
    return _resnet(input_shape, _Basic, (2, 2, 2, 2), stem, norm)


def resnet34(
    input_shape: tuple[int, ...], *, stem: Stem = "7x7", norm: Norm = "batch"
) -> tuple[nn.Module, int]:
    """ResNet-34 without the pooling after the stem; options as for `resnet18`; 512 features."""
    return _resnet(input_shape, _Basic, (3, 4, 6, 3), stem, norm)


def resnet50(
    input_shape: tuple[int, ...], *, stem: Stem = "7x7", norm: Norm = "batch"
) -> tuple[nn.Module, int]:
    """ResNet-50 without the pooling after the stem; options as for `resnet18`; 2048 features."""
    return _resnet(input_shape, _Bottleneck, (3, 4, 6, 3), stem, norm)


class _Basic(nn.Module):
    """Two 3×3 convolutions around which the input is added; ReLU after the sum."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: _MakeNorm) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = norm(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = norm(width)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(inputs, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class _Bottleneck(nn.Module):
    """A 3×3 convolution between two 1×1, around which the input is added; ReLU after the sum."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: _MakeNorm) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = norm(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = norm(width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = norm(outputs)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _resnet(
    input_shape: tuple[int, ...],
    block: type[_Basic] | type[_Bottleneck],
    depths: tuple[int, int, int, int],
    stem: str,
    norm: str,
) -> tuple[nn.Module, int]:
    if stem not in _STEMS:
        raise PotluckError(one_of("stem", stem, _STEMS))
    if norm not in _NORMS:
        raise PotluckError(one_of("norm", norm, _NORMS))
    channels, _, _ = image_shape(input_shape)
    kernel, stride = _STEMS[stem]
    make_norm = _NORMS[norm]
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=_conv(channels, 64, kernel, stride), bn1=make_norm(64), relu=nn.ReLU()
    )
    features = 64
    for stage, depth in enumerate(depths):
        blocks: list[nn.Module] = []
        for position in range(depth):
            stride = 2 if stage > 0 and position == 0 else 1
            blocks.append(block(features, 64 * 2**stage, stride, make_norm))
            features = 64 * 2**stage * block.expansion
        layers[f"layer{stage + 1}"] = nn.Sequential(*blocks)
    layers["avgpool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    return nn.Sequential(layers), features


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the normalisation that follows has one.
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _shortcut(inputs: int, outputs: int, stride: int, norm: _MakeNorm) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), norm(outputs))
