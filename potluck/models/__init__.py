"""Models: an encoder that makes features, and a linear head that makes class scores."""

from potluck.models._build import MODELS, build
from potluck.models._classifier import Classifier, as_classifier, batch_norm_layers
from potluck.models._normalise import Normalise
from potluck.models._rows import draw_rows

__all__ = [
    "MODELS",
    "Classifier",
    "Normalise",
    "as_classifier",
    "batch_norm_layers",
    "build",
    "draw_rows",
]
