"""Dropout whose random numbers are data, like all others.

PyTorch's layers draw from one stream of the process: what they drop depends on who drew before,
so sites cannot train at once, and a step that is compiled or captured draws others. Here an entry
is dropped or not by a hash of its position and a seed, which a step brings along with its batch:
every engine drops the same, and so does a second look at the same step.
"""

from math import prod

import torch
from torch import Tensor, nn

_SPATIAL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)

# Two rounds of multiply and shift; the factors are those of a search for hash functions of 32 bits
# with little bias (Wellons, hash-prospector).
_FACTORS = (0x21F0AAAD, 0x735A2D97)


class SeededDropout(nn.Module):
    """Drops entries, or whole channels, by a seed.

    Args:
      rate:     the share that is dropped.
      channels: whether the channels of (B, C, ...) inputs are dropped as a whole.
    """

    seed: Tensor

    def __init__(self, rate: float, channels: bool) -> None:
        super().__init__()
        self.rate, self.channels = rate, channels
        # A buffer, so that a functional call can set it; not a part of the model.
        self.register_buffer("seed", torch.zeros((), dtype=torch.int32), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, ...) → (B, ...)."""
        if not self.training:
            return inputs
        shape = inputs.shape
        if self.channels:
            shape = torch.Size((*shape[:2], *[1] * (len(shape) - 2)))
        least = min(round((self.rate - 0.5) * 2**32), 2**31 - 1)
        kept = _hashed(prod(shape), self.seed).view(shape) >= least
        return torch.where(kept, inputs / max(1 - self.rate, 1e-6), 0)


def _hashed(count: int, seed: Tensor) -> Tensor:
    """(count,) int32, uniform from −2³¹ to 2³¹ − 1: a hash of each position and a seed.

    Other seeds take other steps through the numbers that are hashed, so that no two see a part of
    the same sequence. Products wrap around; masks make shifts those of unsigned numbers.
    """
    position = torch.arange(count, dtype=torch.int32, device=seed.device)
    value = position * (2 * seed + 1) + seed
    value = (value ^ ((value >> 16) & 0xFFFF)) * _FACTORS[0]
    value = (value ^ ((value >> 15) & 0x1FFFF)) * _FACTORS[1]
    return value ^ ((value >> 15) & 0x1FFFF)


def with_seeded_dropout(module: nn.Module) -> list[str]:
    """Put `SeededDropout` in the place of PyTorch's own layers, but for those that drop nothing.

    Args:
      module: changed in place. Layers of other kinds that draw for themselves stay.

    Returns:
      the names of all layers that then need a seed.
    """
    kinds = (nn.Dropout, *_SPATIAL)
    for name, layer in list(module.named_modules()):
        # Not isinstance alone: a class derived from these may do something else.
        if type(layer) in kinds and isinstance(layer, kinds) and layer.p:
            seeded = SeededDropout(layer.p, isinstance(layer, _SPATIAL))
            module.set_submodule(name, seeded.train(layer.training))
    layers = module.named_modules()
    return [name for name, layer in layers if isinstance(layer, SeededDropout)]
