"""A model as a function of one parameter vector, so that federated mathematics is plain algebra.

Optimisers, proximal terms, control variates and averages act on θ ∈ R^P; only the forward pass
needs to know which entries are which layer.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear

from potluck.errors import PotluckError
from potluck.models._classifier import batch_norm_layers
from potluck.models.dropout import with_seeded_dropout

HEAD = ("head.weight", "head.bias")


@dataclass(frozen=True)
class Layout:
    """Where each named parameter lies in the vector θ.

    Args:
      names:  parameter names in order.
      shapes: their shapes.
      norms:  names of the batch-norm layers.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    norms: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Layout":
        """The layout of some named tensors, in their order."""
        return cls(tuple(tensors), tuple(tensor.shape for tensor in tensors.values()))

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    def __len__(self) -> int:
        return sum(self.sizes)

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """(P,) → named parameters, as views of θ."""
        parts = theta.split(self.sizes)
        return {
            name: part.view(shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Named parameters → (P,)."""
        return torch.cat([tensors[name].detach().flatten() for name in self.names])

    def mask(self, belongs: Callable[[str], bool]) -> Tensor:
        """(P,) bool: the entries of the parameters whose names belong."""
        return torch.cat(
            [
                torch.full((size,), belongs(name))
                for name, size in zip(self.names, self.sizes, strict=True)
            ]
        )

    def entries(self, classes: Tensor) -> Tensor:
        """Positions in θ of the encoder and of the head rows of some classes, in their order.

        Args:
          classes: (C,) int64 class indices.

        Returns:
          (P_C,) int64 positions; θ[positions] is the vector of the model with those classes.
        """
        positions = self.unflatten(torch.arange(len(self)))
        return torch.cat(
            [
                (positions[name][classes] if name in HEAD else positions[name]).flatten()
                for name in self.names
            ]
        )

    def narrowed(self, classes: int) -> "Layout":
        """The layout of the same model with another number of classes."""
        shapes = tuple(
            torch.Size((classes, *shape[1:])) if name in HEAD else shape
            for name, shape in zip(self.names, self.shapes, strict=True)
        )
        return Layout(self.names, shapes, self.norms)


class Network:
    """Forward passes of a `Classifier` as functions of (θ, buffers, inputs).

    The model sees images as floats in [0, 1], whether they come as such or as uint8.

    Args:
      classifier: the model; it is copied, and its own parameters are only the starting point.
    """

    def __init__(self, classifier: nn.Module) -> None:
        self.layout = Layout(
            tuple(name for name, _ in classifier.named_parameters()),
            tuple(parameter.shape for _, parameter in classifier.named_parameters()),
            frozenset(batch_norm_layers(classifier)),
        )
        # Modules that share a parameter must get the same tensor for it, which costs a search
        # through all of them in each call.
        self._tied = len(list(classifier.named_parameters(remove_duplicate=False))) > len(
            self.layout.names
        )
        self._training = copy.deepcopy(classifier).train()
        self._inference = copy.deepcopy(classifier).eval()
        self._dropout = with_seeded_dropout(self._training)
        self._narrowed: dict[int, Network] = {}
        self._channels_last = False
        self._draws: bool | None = None

    def initial(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The model's own parameters (P,) and buffers."""
        module = self._inference
        theta = self.layout.flatten(dict(module.named_parameters()))
        return theta, {name: value.clone() for name, value in module.named_buffers()}

    def narrowed(self, classes: int) -> "Network":
        """The same network with another number of classes (a private site's own).

        Its head is blank: of the rows that this network started from, it has none.
        """
        if classes not in self._narrowed:
            other = copy.copy(self)
            other.layout = self.layout.narrowed(classes)
            other._training = _with_blank_head(self._training, classes)
            other._inference = _with_blank_head(self._inference, classes)
            other._forget_copies()
            self._narrowed[classes] = other
        return self._narrowed[classes]

    def twin(self) -> "Network":
        """A copy for another thread: a forward pass changes a module for as long as it takes."""
        other = copy.copy(self)
        other._training = copy.deepcopy(self._training)
        other._inference = copy.deepcopy(self._inference)
        other._forget_copies()
        return other

    @cached_property
    def channels_last(self) -> "Network":
        """The same network with images in channels-last order, which are convolved faster."""
        other = copy.copy(self)
        other._narrowed = {}
        other._channels_last = True
        return other

    def _forget_copies(self) -> None:
        """Those that were made of the modules of another network, which this one began as."""
        self._narrowed = {}
        for made_of_these in ("measuring_module", "channels_last"):
            self.__dict__.pop(made_of_these, None)

    @property
    def drops(self) -> bool:
        """Whether training drops entries by a seed."""
        return bool(self._dropout)

    def draws(self, shape: torch.Size) -> bool:
        """Whether training takes random numbers from PyTorch's own stream, which all share.

        Layers of dropout do not, but others may; a pass tells.

        Args:
          shape: of a sample.
        """
        if self._draws is None:
            theta, buffers = self.initial()
            theta, buffers = theta.cpu(), {name: value.cpu() for name, value in buffers.items()}
            two, seed = theta.new_zeros(2, *shape), torch.zeros((), dtype=torch.int32)
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                before = torch.get_rng_state()
                self.train(theta, buffers, two, seed)
                self._draws = not torch.equal(before, torch.get_rng_state())
        return self._draws

    def train(
        self,
        theta: Tensor,
        buffers: Mapping[str, Tensor],
        inputs: Tensor,
        seed: Tensor | None = None,
    ) -> Tensor:
        """(B, K) logits in training mode; batch-norm statistics in `buffers` move in place.

        Args:
          theta:   (P,) parameters.
          buffers: the model's buffers.
          inputs:  (B, ...) samples.
          seed:    () int32, for dropout.
        """
        try:
            return self._call(self._training, theta, {**buffers, **self._seeds(seed)}, inputs)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise PotluckError(
                "a batch has a single sample, which batch norm cannot normalise; set "
                'local.last_batch = "drop", or a local.batch_size that leaves no sample over.'
            ) from None

    def infer(self, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """(B, K) logits in evaluation mode."""
        return self._call(self._inference, theta, buffers, inputs)

    def measure(self, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """(B, K) logits in evaluation mode, but with batch norm by the batch's own statistics."""
        return self._call(self.measuring_module, theta, buffers, inputs)

    def features(
        self,
        theta: Tensor,
        buffers: Mapping[str, Tensor],
        inputs: Tensor,
        seed: Tensor | None = None,
    ) -> Tensor:
        """(B, F) what the encoder gives to the head in training mode; see `train`."""
        return self._encode(self._training, theta, {**buffers, **self._seeds(seed)}, inputs)

    def inferred_features(
        self, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor
    ) -> Tensor:
        """(B, F) what the encoder gives to the head in evaluation mode."""
        return self._encode(self._inference, theta, buffers, inputs)

    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """(B, F) features → (B, K) logits."""
        parts = self.layout.unflatten(theta)
        return linear(features, parts["head.weight"], parts.get("head.bias"))

    @cached_property
    def measuring_module(self) -> nn.Module:
        """The module behind `measure`, for hooks that must see its layers."""
        module = copy.deepcopy(self._inference)
        for layer in batch_norm_layers(module).values():
            layer.train()
        return module

    def module(self, theta: Tensor, buffers: Mapping[str, Tensor]) -> nn.Module:
        """An ordinary module in evaluation mode that holds these parameters and buffers."""
        module = copy.deepcopy(self._inference)
        # By name rather than load_state_dict, which wants tied parameters twice and refuses
        # buffers that are not saved.
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in {**self.layout.unflatten(theta), **buffers}.items():
                own[name].copy_(value)
        return module

    def _seeds(self, seed: Tensor | None) -> dict[str, Tensor]:
        """What each layer of dropout hashes, under the name of its buffer."""
        if not self._dropout:
            return {}
        if seed is None:
            raise ValueError("the model has dropout: a training pass needs a seed")
        return {f"{name}.seed": seed + number for number, name in enumerate(self._dropout)}

    def _call(
        self, module: nn.Module, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor
    ) -> Tensor:
        parts = {**self._parameters(theta), **buffers}
        return functional_call(module, parts, (self._seen(inputs),), tie_weights=self._tied)

    def _parameters(self, theta: Tensor) -> dict[str, Tensor]:
        return {name: self._ordered(part) for name, part in self.layout.unflatten(theta).items()}

    def _seen(self, inputs: Tensor) -> Tensor:
        # Augmented images are floats in [0, 1]; a model must see the others alike.
        unit = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
        return self._ordered(unit)

    def _ordered(self, tensor: Tensor) -> Tensor:
        if tensor.ndim != 4:
            return tensor
        if not self._channels_last:
            return tensor.contiguous()
        if tensor.shape[1] == 1:
            # One channel is in either order; only its strides say which one layers are to use.
            return tensor[:, 0].contiguous().unsqueeze(-1).movedim(-1, 1)
        # Not contiguous(memory_format=…), which cannot be batched over sites.
        return tensor.movedim(1, -1).contiguous().movedim(-1, 1)

    def _encode(
        self, module: nn.Module, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor
    ) -> Tensor:
        parts = {**self._parameters(theta), **buffers}
        own = {
            name.removeprefix("encoder."): value
            for name, value in parts.items()
            if name.startswith("encoder.")
        }
        encoder = module.get_submodule("encoder")
        return functional_call(encoder, own, (self._seen(inputs),), tie_weights=self._tied)


def infer_batched(
    network: Network,
    theta: Tensor,
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    batch: int | None = None,
) -> Tensor:
    """(N, K) logits in evaluation mode without gradients.

    Args:
      network: the model.
      theta:   (P,) parameters.
      buffers: the model's buffers.
      inputs:  (N, ...) samples.
      batch:   how many at a time; None for many on a GPU, and as many as fit into a processor's
               caches there.
    """
    return _batched(network.channels_last.infer, theta, buffers, inputs, batch)


def features_batched(
    network: Network, theta: Tensor, buffers: Mapping[str, Tensor], inputs: Tensor
) -> Tensor:
    """(N, F) features in evaluation mode without gradients; see `infer_batched`."""
    return _batched(network.channels_last.inferred_features, theta, buffers, inputs, None)


def _batched(
    look: Callable[[Tensor, Mapping[str, Tensor], Tensor], Tensor],
    theta: Tensor,
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    batch: int | None,
) -> Tensor:
    size = batch or (1024 if inputs.is_cuda else 256)
    with torch.no_grad():
        return torch.cat([look(theta, buffers, chunk) for chunk in inputs.split(size)])


def _with_blank_head(module: nn.Module, classes: int) -> nn.Module:
    """The same module, sharing its encoder, with a head of zeros for some number of classes."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    head = module.get_submodule("head")
    assert isinstance(head, nn.Linear)
    # Made on no device first: a Linear that is made on a real one draws random numbers.
    blank = nn.Linear(
        head.in_features,
        classes,
        bias=head.bias is not None,
        device="meta",
        dtype=head.weight.dtype,
    ).to_empty(device=head.weight.device)
    with torch.no_grad():
        for parameter in blank.parameters():
            parameter.zero_()
    other.add_module("head", blank.train(module.training))
    return other
