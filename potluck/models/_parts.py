"""What several families of models share."""

from torch import nn

from potluck.errors import PotluckError


def image_shape(input_shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """Check that inputs are images with sides of at least `smallest`; gives (C, H, W)."""
    if len(input_shape) != 3:
        raise PotluckError(
            f"needs images (channels, height, width), but the input shape is "
            f'{tuple(input_shape)}; for tables use "linear" or "mlp".'
        )
    channels, height, width = input_shape
    if min(height, width) < smallest:
        raise PotluckError(
            f"needs images of at least {smallest}×{smallest}, but these are {height}×{width}; "
            'enlarge them, or use "mlp".'
        )
    return channels, height, width


def dropout_layers(rate: float) -> list[nn.Module]:
    """Give one dropout layer; none for rate 0, so that such a model needs no random stream."""
    if not 0 <= rate < 1:
        raise PotluckError(f"dropout must be at least 0 and below 1, not {rate}.")
    return [nn.Dropout(rate)] if rate else []
