"""Models by name."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from potluck.errors import PotluckError, one_of
from potluck.models._classifier import Classifier
from potluck.models._cnn import cnn
from potluck.models._lenet import lenet
from potluck.models._mlp import linear, mlp
from potluck.models._mobilenet import mobilenet_v2
from potluck.models._normalise import Normalise, Statistic
from potluck.models._resnet import resnet18, resnet34, resnet50

# A builder takes the shape of one input and its options by keyword, and gives the encoder's body
# and the number of features (B, F) that it makes. Its signature is what a user may set.
MODELS: dict[str, Callable[..., tuple[nn.Module, int]]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
}


def build(
    name: str,
    input_shape: tuple[int, ...],
    classes: int,
    *,
    generator: torch.Generator | None = None,
    mean: Statistic = None,
    std: Statistic = None,
    **options: Any,
) -> Classifier:
    """Make a model with freshly drawn parameters, on the CPU.

    Args:
      name:        a key of `MODELS`.
      input_shape: (C, H, W) of an image or (D,) of a table row.
      classes:     number of target classes K.
      generator:   source of the parameters; the global random state is neither read nor changed.
                   None stands for a new `torch.Generator()`, which always starts at the same seed.
      mean:        what `Normalise` takes from each channel or column; None is 0.
      std:         what `Normalise` divides by; None is 1.
      **options:   the keyword options of the builder `MODELS[name]`.

    Returns:
      A classifier whose encoder is `normalise` then `body`.

    Raises:
      PotluckError: the name or an option is unknown, or a value or the input shape does not suit.
    """
    if name not in MODELS:
        raise PotluckError(one_of("model", name, MODELS))
    _check_options(name, options)
    if classes < 1:
        raise PotluckError(f'model "{name}": there must be at least one class, not {classes}.')
    generator = torch.Generator() if generator is None else generator
    seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
    # Modules draw their parameters from the global CPU stream: lend it out, seeded, and restore it.
    # (torch.manual_seed would also reseed every accelerator.)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        try:
            normalise = Normalise(input_shape, mean, std)
            body, features = MODELS[name](input_shape, **options)
        except PotluckError as error:
            raise PotluckError(f'model "{name}": {error}') from error
        head = nn.Linear(features, classes)
    encoder = nn.Sequential(OrderedDict(normalise=normalise, body=body))
    return Classifier(encoder, head)


def _check_options(name: str, given: Iterable[str]) -> None:
    parameters = inspect.signature(MODELS[name]).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in given:
        if not known:
            raise PotluckError(f'model "{name}" has no options; remove "{option}".')
        if option not in known:
            raise PotluckError(f'model "{name}": {one_of("option", option, known)}')
