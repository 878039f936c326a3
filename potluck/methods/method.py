"""The interface of a method: what happens at a site in a round, and what the server adds.

A method is a frozen dataclass of hyper-parameters with pure functions. In a round,

    server   share      → what goes out to a site with the parameters
    site     plan       → forward passes over its own samples; an empty plan sits the round out
             batches    → the samples of each step
             draw       → all random numbers of the round at once: randomness is data
             loss       → one step's loss; pure, so engines may batch, compile or capture it
             report     → what goes back with the new parameters
    server   receive    → once for each update, in a fixed order
             conclude   → once, with the mean of what the sites reported
             adjust     → the averaged parameters as the method wants them; also at the start
             at_server  → how the server then trains on its own data, if it has any

`plan` and `report` get `Here`, the site with its model, its state and what the server shared;
`loss` gets `Step`, the same with the plan and a batch.

All but `loss` have defaults. State between rounds is explicit: `start` makes a site's, `loss`
returns it changed; `server_start` makes the server's, `receive` and `conclude` return it
changed. Parameters that a site trains but never sends are `personal`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from potluck.federation import Federation, Site
from potluck.labels.information import tells
from potluck.local import LocalTraining
from potluck.messages import Tensors, Update
from potluck.models.network import Layout, Network, infer_batched


@dataclass(frozen=True, eq=False)
class SiteData:
    """A site's samples and view as a method sees them: tensors on the training device.

    Args:
      inputs:  (N, ...) samples.
      symbols: (N,) observed symbols.
      log_a:   (Z, K) log codebook.
      log_b:   (K,) log normaliser.
      prior:   (K,) class prior of the target population.
      truth:   (N,) true classes or None; for metrics only.
      names:   what the site calls its Z symbols.
    """

    inputs: Tensor
    symbols: Tensor
    log_a: Tensor
    log_b: Tensor
    prior: Tensor
    truth: Tensor | None = None
    names: tuple[str, ...] = ()

    @property
    def classes(self) -> Tensor:
        """(C,) int64: the classes that can occur here, in the order of the head rows it sends."""
        held = (self.log_b > -torch.inf).nonzero().flatten()
        if len(held) == len(self.log_b):
            return held
        first_symbol = (self.log_a[:, held] > -torch.inf).int().argmax(0)
        return held[first_symbol.argsort(stable=True)]

    @property
    def log_proportions(self) -> Tensor:
        """(Z, K) log p(y | z): the class proportions among the samples of each symbol."""
        return torch.log_softmax(self.log_a + self.prior.log(), 1)

    @cached_property
    def telling(self) -> Tensor:
        """(n,) int64: the samples whose label says something about the class."""
        return tells(self.log_a, self.log_b)[self.symbols].nonzero().flatten()

    @classmethod
    def of(cls, site: Site, dtype: torch.dtype = torch.float32) -> "SiteData":
        """The tensors of a site, with its view as the site itself knows it; made once.

        Args:
          site:  the site.
          dtype: of likelihoods and priors: the model's.
        """
        made = _MADE.setdefault(site, {})
        if dtype not in made:
            view, device = site.view.own(), site.inputs.device
            made[dtype] = cls(
                inputs=site.inputs,
                symbols=site.symbols,
                log_a=view.log_codebook.to(device, dtype),
                log_b=view.log_normaliser.to(device, dtype),
                prior=view.prior.to(device, dtype),
                truth=_own_truth(site),
                names=view.symbols.names,
            )
        return made[dtype]

    def __len__(self) -> int:
        return len(self.inputs)


_MADE: WeakKeyDictionary[Site, dict[torch.dtype, SiteData]] = WeakKeyDictionary()
"""What `SiteData.of` made, for as long as the sites are there: every round asks for it again."""


def _own_truth(site: Site) -> Tensor | None:
    """True classes as the site numbers them; a private site numbers its own classes only."""
    if site.truth is None or not site.view.private:
        return site.truth
    classes = site.view.classes.to(site.truth.device)
    number = torch.zeros(len(site.view.space), dtype=torch.int64, device=site.truth.device)
    number[classes] = torch.arange(len(classes), device=site.truth.device)
    return number[site.truth]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a site decides at the start of a round.

    Args:
      pool:    (n,) samples it will train on; empty to sit the round out.
      tensors: what the steps need besides, constant during the round (pseudo-labels, …).
      metrics: numbers for the history.
      weights: (1 + C,) how much the site shall count in the average: its encoder, then its head
               row of each class that can occur here; None for its number of samples throughout.
               The server learns them. It heeds them where sites count by their samples.
    """

    pool: Tensor
    tensors: Tensors = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's samples and random numbers.

    Args:
      index: (B,) positions of the samples at the site.
      draws: this step's share of what `Method.draw` made; and a seed where the model has dropout.
    """

    index: Tensor
    draws: Tensors


@dataclass(frozen=True, eq=False)
class LocalModel:
    """The model during a site's round.

    Args:
      network:  its forward passes.
      theta:    (P,) the current parameters.
      buffers:  the current buffers; training forwards move batch-norm statistics in place.
      received: the parameters and buffers as the server sent them.
      personal: the site's own trained tensors (`Method.personal`).
      round:    the round's number, from 0; for `plan`.
      seed:     () int32, for dropout in a step; each pass of its loss drops others.
    """

    network: Network
    theta: Tensor
    buffers: Tensors
    received: tuple[Tensor, Tensors]
    personal: Tensors = field(default_factory=dict)
    round: int = 0
    seed: Tensor | None = None
    _passes: Iterator[int] = field(default_factory=count, init=False, repr=False)

    def __call__(self, inputs: Tensor) -> Tensor:
        """(B, ...) → (B, K) logits in training mode."""
        return self.network.train(self.theta, self.buffers, inputs, self._next_seed())

    def features(self, inputs: Tensor) -> Tensor:
        """(B, ...) → (B, F) what the encoder gives to the head in training mode."""
        return self.network.features(self.theta, self.buffers, inputs, self._next_seed())

    def reference(self, inputs: Tensor) -> Tensor:
        """(B, ...) → (B, K) logits of the received model in evaluation mode, no gradient."""
        return infer_batched(self.network, *self.received, inputs)

    def _next_seed(self) -> Tensor | None:
        return None if self.seed is None else self.seed + _PASS * next(self._passes)


_PASS = 1 << 16
"""How far apart the seeds of a step's passes are: layers use the ones between."""


@dataclass(frozen=True, eq=False)
class Here:
    """A site in a round.

    Args:
      model:  the model at the site.
      site:   the site's samples and view.
      shared: what the server sent besides the parameters.
      state:  what the method keeps at the site.
    """

    model: LocalModel
    site: SiteData
    shared: Tensors
    state: Tensors


@dataclass(frozen=True, eq=False)
class Step(Here):
    """A site in one of its steps.

    Args:
      plan:  what the site decided for this round.
      batch: the step's samples and random numbers.
    """

    plan: Plan
    batch: Batch


@dataclass(frozen=True, eq=False)
class Arrival:
    """An update as the server sees it arrive.

    Args:
      update:   what the site sent.
      network:  the model with the classes that the site holds.
      received: (P_s,) the parameters that the site started from.
      change:   (P_s,) how it changed them.
      classes:  (C,) which target classes they score.
      server:   the server's own data, if any.
    """

    update: Update
    network: Network
    received: Tensor
    change: Tensor
    classes: Tensor
    server: SiteData | None

    @property
    def theta(self) -> Tensor:
        """(P_s,) the site's parameters after its round."""
        return self.received + self.change


@dataclass(frozen=True)
class AtServer:
    """How the server trains on its own data after averaging.

    Args:
      method: its loss; `shared` is the server's whole method state.
      local:  its optimiser and epochs; None for the sites'.
    """

    method: "Method"
    local: LocalTraining | None = None


Loss = Callable[[Step], tuple[Tensor, Tensors]]
"""What `Method.loss` is: a step → (loss, new state)."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a step minimises: (θ and personal entries as one vector, buffers) → (loss, new state).

    Args:
      loss: the method's loss.
      bind: evaluates a loss at (vector, buffers), with this step's samples, numbers and state.
    """

    loss: Loss
    bind: Callable[[Loss, Tensor, Tensors], tuple[Tensor, Tensors]]

    def __call__(self, vector: Tensor, buffers: Tensors) -> tuple[Tensor, Tensors]:
        """The loss and the method's new site state."""
        return self.bind(self.loss, vector, buffers)

    def term(self, loss: Loss) -> "Objective":
        """One term of the loss on the same samples, for methods that treat terms differently."""
        return replace(self, loss=loss)


@dataclass(frozen=True, eq=False)
class Gradient:
    """A step's gradient, its loss, and the method's new site state."""

    value: Tensor
    loss: Tensor
    state: Tensors


Differentiate = Callable[[Objective, Tensor, Tensors], Gradient]
"""The engine's way to take the gradient of an objective at (vector, buffers)."""


class Method(ABC):
    """Defaults for all but the loss; see the module's docstring for the order of calls."""

    def check(self, federation: Federation) -> None:
        """Raise a clear error where the federation lacks what the method needs."""

    def start(self, site: SiteData) -> Tensors:
        """The state of a site that takes part for the first time."""
        return {}

    def personal(self, site: SiteData, network: Network) -> Tensors:
        """Tensors that the site trains along with θ but keeps to itself; their first values."""
        return {}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """What to train on this round: all samples, unless a method knows better."""
        return Plan(pool=torch.arange(len(here.site), device=here.site.inputs.device))

    def batches(
        self, local: LocalTraining, site: SiteData, plan: Plan, generator: torch.Generator
    ) -> list[Tensor]:
        """The samples of each step: shuffled epochs over the pool, unless a method says else."""
        return local.batches(plan.pool, generator)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of each step of the round."""
        return [{} for _ in batches]

    @abstractmethod
    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """The loss of one step (a scalar) and the site's new state."""

    def gradient(
        self,
        differentiate: Differentiate,
        objective: Objective,
        vector: Tensor,
        buffers: Tensors,
        shared: Tensors,
    ) -> Gradient:
        """The step's gradient; a method that aligns or perturbs gradients overrides this."""
        return differentiate(objective, vector, buffers)

    def report(self, here: Here, plan: Plan) -> Tensors:
        """What the site sends besides its update; `here` is the site after its steps."""
        return {}

    @property
    def reports(self) -> bool:
        """Whether `report` is anything but this default."""
        return type(self).report is not Method.report

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """The server's state before the first round."""
        return {}

    def share(self, server: Tensors, site: str) -> Tensors:
        """What the server sends to a site besides the parameters."""
        return {}

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """The server's state after one more update."""
        return server

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The server's state after the round.

        Args:
          server: its state so far.
          extras: the mean of each tensor that sites reported, over those that did, with
                  their weights.
        """
        return server

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """The global parameters as the method wants them, e.g. with a head that it fixes itself.

        Called before the first round, and after each round's average.

        Args:
          server: the server's state, after `server_start` or `conclude`.
          theta:  (P,) the parameters.
          layout: where each of them lies.
        """
        return theta

    def serve(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor | None:
        """The model to evaluate and keep after a round, if it is not the average.

        Args:
          server: the server's state, after `conclude`.
          theta:  (P,) the parameters that sites received in the round.
          layout: where each of them lies.

        Returns:
          (P,) parameters, to be used with the buffers that sites received.
        """
        return None

    def at_server(self) -> AtServer | None:
        """How the server trains on its own data after averaging; None for not at all."""
        return None
