"""The one form every model has: encoder, then linear head."""

from copy import deepcopy

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.errors import PotluckError, one_of


class Classifier(nn.Module):
    """A model whose last step is linear: scores = head(encoder(x)).

    Methods that treat the two parts differently (a shared encoder, per-class head rows) can rely
    on parameter names: they start with `encoder.` or are `head.weight` and, if there is one,
    `head.bias`.

    Args:
      encoder: maps inputs (B, ...) to features (B, F).
      head:    maps features (B, F) to class scores (B, K).
    """

    def __init__(self, encoder: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @property
    def features(self) -> int:
        """Number of features F that the encoder gives to the head."""
        return self.head.in_features

    @property
    def classes(self) -> int:
        """Number of classes K that the head scores."""
        return self.head.out_features

    def forward(self, x: Tensor) -> Tensor:
        """Score the classes: inputs (B, ...) to logits (B, K)."""
        return self.head(self.encoder(x))


def as_classifier(module: nn.Module, head: str | None = None) -> Classifier:
    """Split any module into encoder and head, by taking out its last linear layer.

    The layer's place is filled with `nn.Identity`. The split computes what `module` computes
    when that layer is applied once and last, which holds for the usual image and table models
    and is the caller's to know. `module` itself is left untouched: the result is a deep copy.

    Args:
      module: maps (B, ...) to (B, K). A `Classifier` comes back as it is.
      head:   dotted name of the layer, e.g. "fc" or "classifier.1"; None takes the last
              `nn.Linear` in module order.

    Returns:
      The classifier.

    Raises:
      PotluckError: `module` has no linear layer, or `head` does not name one.
    """
    if isinstance(module, Classifier) and head in (None, "head"):
        return module
    encoder = deepcopy(module)
    layers = dict(encoder.named_modules())
    names = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    kind = type(module).__name__
    if not names:
        raise PotluckError(
            f"{kind} has no nn.Linear layer to serve as the classification head; "
            "let the module end in one (features to class scores)."
        )
    name = names[-1] if head is None else head
    if name not in layers:
        raise PotluckError(f"{kind}: {one_of('linear layer', name, names)}")
    linear = layers[name]
    if not isinstance(linear, nn.Linear):
        raise PotluckError(
            f'{kind}: layer "{name}" is a {type(linear).__name__}, but the head must be an '
            f"nn.Linear. Known: {', '.join(names)}."
        )
    if not name:  # the module is itself the linear layer
        return Classifier(nn.Identity(), linear)
    encoder.set_submodule(name, nn.Identity())
    return Classifier(encoder, linear)


def batch_norm_layers(module: nn.Module) -> dict[str, _BatchNorm]:
    """Find the batch normalisation layers of a module, by dotted name and in module order."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}
