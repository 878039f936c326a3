"""Raw inputs to standardised floats."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from potluck.errors import PotluckError

Statistic = float | Sequence[float] | Tensor | None


class Normalise(nn.Module):
    """The first layer of an encoder: makes inputs floats and standardises them.

    Data rest as uint8 and are scaled to [0, 1] here; floats (augmented images, table columns)
    are taken as they are. Then (x − mean) / std. `mean` and `std` are buffers, so a saved model
    carries them: (C, 1, 1) for images, (D,) for tables.

    Args:
      input_shape: (C, H, W) of an image or (D,) of a table row.
      mean:        one number, or one per channel (C) or column (D), on the scale after the
                   division by 255; None is 0.
      std:         likewise, positive; None is 1.

    Raises:
      PotluckError: the shape is neither, or the statistics do not fit it.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, input_shape: tuple[int, ...], mean: Statistic = None, std: Statistic = None
    ) -> None:
        super().__init__()
        if len(input_shape) not in (1, 3) or min(input_shape) < 1:
            raise PotluckError(
                f"input shape {tuple(input_shape)} is neither an image (channels, height, width) "
                "nor a table row (columns,)."
            )
        self.register_buffer(
            "mean", _per_channel("mean", 0.0 if mean is None else mean, input_shape)
        )
        self.register_buffer("std", _per_channel("std", 1.0 if std is None else std, input_shape))
        if not (self.std > 0).all():
            raise PotluckError(
                "std must be positive everywhere; use 1 for a channel or column that never varies."
            )

    def forward(self, x: Tensor) -> Tensor:
        """Standardise (B, C, H, W) or (B, D), of any dtype, to the same shape in float."""
        values = x.to(self.mean.dtype)
        if x.dtype == torch.uint8:
            values = values / 255
        return (values - self.mean) / self.std


def _per_channel(
    what: str, value: float | Sequence[float] | Tensor, shape: tuple[int, ...]
) -> Tensor:
    """Spread a statistic over channels (C, 1, 1) or columns (D,)."""
    given = torch.as_tensor(value, dtype=torch.get_default_dtype()).flatten()
    if given.numel() not in (1, shape[0]):
        parts = "channels" if len(shape) == 3 else "columns"
        raise PotluckError(
            f"{what} has {given.numel()} values, but inputs of shape {tuple(shape)} have "
            f"{shape[0]} {parts}; give one number, or one for each."
        )
    if not given.isfinite().all():
        raise PotluckError(f"{what} must be finite; found {given.tolist()}.")
    return given.expand(shape[0]).clone().view(-1, *(1 for _ in shape[1:]))
