"""Local optimisers: pure functions of (θ, gradient, state), equal to torch.optim's steps.

They act on the whole parameter vector at once, so an engine can batch them over sites.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from potluck.errors import PotluckError

Tensors = dict[str, Tensor]


class LocalOptimiser(Protocol):
    """How a site turns gradients into parameters."""

    def check(self) -> None:
        """Raise a clear error for settings that cannot train."""
        ...

    def start(self, theta: Tensor) -> Tensors:
        """The state before the first step, for θ (P,)."""
        ...

    def step(
        self, theta: Tensor, gradient: Tensor, state: Tensors, lr: float | Tensor
    ) -> tuple[Tensor, Tensors]:
        """One step: (P,) θ and gradient, state → new θ and state."""
        ...


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent.

    Args:
      momentum:     share of the last step's direction that is kept.
      nesterov:     look ahead along the momentum.
      weight_decay: L2 penalty, added to the gradient.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def check(self) -> None:
        """Momentum below 1, and some of it for Nesterov's look ahead."""
        if not 0 <= self.momentum < 1:
            raise PotluckError(
                f"local.optimiser.momentum is {self.momentum}; it must be at least 0 and below 1."
            )
        if self.nesterov and not self.momentum:
            raise PotluckError(
                "local.optimiser.nesterov looks ahead along the momentum, but that is 0; "
                "set local.optimiser.momentum."
            )

    def start(self, theta: Tensor) -> Tensors:
        """Zero momentum; nothing when none is used."""
        return {"velocity": torch.zeros_like(theta)} if self.momentum else {}

    def step(
        self, theta: Tensor, gradient: Tensor, state: Tensors, lr: float | Tensor
    ) -> tuple[Tensor, Tensors]:
        """The rule v ← μv + g; θ ← θ − lr·v (Nesterov: θ − lr·(g + μv))."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta
        if not self.momentum:
            return theta - lr * gradient, state
        velocity = self.momentum * state["velocity"] + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return theta - lr * direction, {"velocity": velocity}

    def accumulated(self, steps: int) -> float:
        """Total weight that `steps` gradients get in the update: ‖a‖₁ of FedNova.

        A gradient with r steps after it enters with Σ_{j=0}^{r} μʲ (Nesterov: up to r + 1).
        """
        ahead = 1 if self.nesterov else 0
        if not self.momentum:
            return float(steps)
        return sum(
            (1 - self.momentum ** (later + ahead + 1)) / (1 - self.momentum)
            for later in range(steps)
        )


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015), with L2 weight decay added to the gradient.

    Args:
      beta1: decay of the first moment.
      beta2: decay of the second moment.
      epsilon: keeps the division finite.
      weight_decay: L2 penalty, added to the gradient.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def check(self) -> None:
        """Decays below 1: the moments are divided by what is left of them."""
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise PotluckError(
                    f"local.optimiser.{name} is {getattr(self, name)}; it must be at least 0 "
                    "and below 1."
                )

    def start(self, theta: Tensor) -> Tensors:
        """Zero moments, no steps taken."""
        return {
            "first": torch.zeros_like(theta),
            "second": torch.zeros_like(theta),
            "steps": torch.zeros((), dtype=theta.dtype, device=theta.device),
        }

    def step(
        self, theta: Tensor, gradient: Tensor, state: Tensors, lr: float | Tensor
    ) -> tuple[Tensor, Tensors]:
        """One bias-corrected Adam step."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta
        steps = state["steps"] + 1
        first = self.beta1 * state["first"] + (1 - self.beta1) * gradient
        second = self.beta2 * state["second"] + (1 - self.beta2) * gradient**2
        scale = (second / (1 - self.beta2**steps)).sqrt() + self.epsilon
        theta = theta - lr / (1 - self.beta1**steps) * first / scale
        return theta, {"first": first, "second": second, "steps": steps}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = 0.01

    def step(
        self, theta: Tensor, gradient: Tensor, state: Tensors, lr: float | Tensor
    ) -> tuple[Tensor, Tensors]:
        """Shrink θ by lr·decay, then one Adam step without L2."""
        plain = Adam(self.beta1, self.beta2, self.epsilon)
        return plain.step(theta * (1 - lr * self.weight_decay), gradient, state, lr)


LOCAL_OPTIMISERS: dict[str, type[SGD] | type[Adam] | type[AdamW]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
}
