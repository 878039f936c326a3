"""One site's round in three parts: make ready, take steps, finish.

`train_site` puts them together, one site at a time: it is the reference. Engines that batch
sites use the same parts and take the steps of many sites at once with the same `step`.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.utils import get_total_norm

from potluck.engines.recipe import Recipe
from potluck.errors import PotluckError
from potluck.federated import Progress
from potluck.federation import Site
from potluck.labels import LabelView
from potluck.local import clipped
from potluck.messages import Broadcast, SiteState, Tensors, Update
from potluck.methods import (
    Batch,
    Differentiate,
    Gradient,
    Here,
    LocalModel,
    Loss,
    Objective,
    Plan,
    SiteData,
    Step,
)
from potluck.models.network import Layout, Network
from potluck.streams import derive, seeded, stream

_DROPOUT = "dropout"
"""Under which name a step's seed for dropout is among its draws."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """What stays the same during a site's steps.

    Args:
      network:   the model, with the classes that this site knows.
      recipe:    what all parties agreed on.
      data:      the site's samples and view.
      plan:      what the site decided for this round.
      broadcast: what the server sent.
      federated: the federated optimiser's state at the site.
      personal:  where the site's own tensors lie after θ in the vector that the steps move.
    """

    network: Network
    recipe: Recipe
    data: SiteData
    plan: Plan
    broadcast: Broadcast
    federated: Tensors
    personal: Layout


@dataclass(frozen=True, eq=False)
class Moving:
    """What a site's steps change.

    Args:
      vector:    θ, then the site's personal tensors.
      buffers:   batch-norm statistics.
      optimiser: the local optimiser's state.
      method:    the method's state at the site.
      gradients: {"sum": of the steps' gradients so far, shaped like `vector`}; nothing where
                 the federated optimiser does not ask for it.
    """

    vector: Tensor
    buffers: Tensors
    optimiser: Tensors
    method: Tensors
    gradients: Tensors


@dataclass(frozen=True, eq=False)
class Moved:
    """What a site's steps have changed.

    Args:
      change:   (P_s,) how far they took θ from what the server sent.
      personal: (Q,) the site's personal tensors.
      others:   like those of `Moving`.
    """

    change: Tensor
    personal: Tensor
    buffers: Tensors
    optimiser: Tensors
    method: Tensors
    gradients: Tensors

    @classmethod
    def of(cls, moving: Moving, received: Tensor) -> "Moved":
        """After the last step of a site that received some θ (P_s,)."""
        end, personal = moving.vector.split([len(received), len(moving.vector) - len(received)])
        rest = {name: value for name, value in vars(moving).items() if name != "vector"}
        return cls(end - received, personal, **rest)


@dataclass(frozen=True, eq=False)
class Ready:
    """A site at the start of its steps: what is fixed, what moves, and each step's batch."""

    site: Site
    fixed: Fixed
    moving: Moving
    batches: list[Batch]


def train_site(
    network: Network,
    recipe: Recipe,
    site: Site,
    state: SiteState | None,
    broadcast: Broadcast,
) -> tuple[Update | None, SiteState]:
    """Plan, take local steps, report.

    Args:
      network:   the model, with the classes that this site knows.
      recipe:    what all parties agreed on.
      site:      the site's data and view.
      state:     what the site kept from its last round; None the first time.
      broadcast: what the server sent.

    Returns:
      the update, or None when the site sits the round out; and what the site keeps.
    """
    ready, state = make_ready(network, recipe, site, state, broadcast)
    return (None, state) if ready is None else train_ready(ready)


def train_ready(ready: Ready) -> tuple[Update, SiteState]:
    """Take a site's steps one after another, and report."""
    moving, losses = ready.moving, []
    fixed = ready.fixed
    with layers_seeded([ready]):
        for batch in ready.batches:
            moving, loss = step(fixed, moving, batch, autograd)
            losses.append(loss)
    moved = Moved.of(moving, fixed.broadcast.theta)
    (finished,) = finish([ready], [moved], torch.stack(losses).sum().unsqueeze(0))
    return finished


def layers_seeded(together: Sequence[Ready]) -> AbstractContextManager[None]:
    """A stream for layers that draw for themselves, where the model of these sites has any."""
    fixed, moving = together[0].fixed, together[0].moving
    if not fixed.network.draws(fixed.data.inputs.shape[1:]):
        return nullcontext()
    names = "\n".join(ready.site.name for ready in together)
    seed = derive(fixed.recipe.seed, fixed.broadcast.round, names, "layers")
    return seeded(seed, moving.vector.device)


def make_ready(
    network: Network,
    recipe: Recipe,
    site: Site,
    state: SiteState | None,
    broadcast: Broadcast,
) -> tuple[Ready | None, SiteState]:
    """Plan the round and draw its batches and random numbers; see `train_site`.

    Returns:
      what the steps need, or None when the site sits the round out; and the site's state.
    """
    method, federated, local = recipe.method, recipe.federated, recipe.local
    address = (broadcast.round, site.name)
    data = SiteData.of(site, broadcast.theta.dtype)
    if state is None:
        state = SiteState(
            method=method.start(data),
            personal=method.personal(data, network),
            federated=federated.site_start(broadcast.theta, network.layout, site.view.private),
        )
    personal = Layout.of(state.personal)
    theta = federated.begin(broadcast.theta, state.federated)
    vector = torch.cat([theta, personal.flatten(state.personal)]) if state.personal else theta
    start = {name: value.clone() for name, value in (state.buffers or broadcast.buffers).items()}
    received = (broadcast.theta, broadcast.buffers)
    model = LocalModel(network, theta, start, received, state.personal, broadcast.round)
    here = Here(model, data, broadcast.shared, state.method)
    plan = method.plan(here, stream(recipe.seed, *address, "plan"))
    if len(plan.pool) == 0:
        return None, state
    indices = method.batches(local, data, plan, stream(recipe.seed, *address, "batches"))
    draws = method.draw(data, plan, indices, stream(recipe.seed, *address, "draws"))
    if network.drops:
        seeds = _seeds(len(indices), stream(recipe.seed, *address, "dropout")).to(vector.device)
        draws = [{**drawn, _DROPOUT: seed} for drawn, seed in zip(draws, seeds, strict=True)]
    fixed = Fixed(network, recipe, data, plan, broadcast, state.federated, personal)
    optimiser = state.optimiser or local.optimiser.start(vector)
    gradients = {"sum": torch.zeros_like(vector)} if federated.needs_gradients else {}
    return Ready(
        site=site,
        fixed=fixed,
        moving=Moving(vector, start, optimiser, state.method, gradients),
        batches=[Batch(index, drawn) for index, drawn in zip(indices, draws, strict=True)],
    ), state


def step(
    fixed: Fixed, moving: Moving, batch: Batch, differentiate: Differentiate
) -> tuple[Moving, Tensor]:
    """One local step: a pure function, but for batch-norm statistics that move in place.

    Args:
      fixed:         what stays the same during the round.
      moving:        what the step changes.
      batch:         its samples and random numbers.
      differentiate: the engine's way to take gradients.

    Returns:
      what moved, and the step's loss.
    """
    recipe, broadcast = fixed.recipe, fixed.broadcast
    local, size = recipe.local, len(fixed.network.layout)

    def bind(loss: Loss, vector: Tensor, buffers: Tensors) -> tuple[Tensor, Tensors]:
        model = local_model(fixed, vector, buffers, batch.draws.get(_DROPOUT))
        return loss(Step(model, fixed.data, broadcast.shared, moving.method, fixed.plan, batch))

    objective = Objective(recipe.method.loss, bind)
    gradient = recipe.method.gradient(
        differentiate, objective, moving.vector, moving.buffers, broadcast.shared
    )
    direction = gradient.value
    if local.l1:
        direction = direction + local.l1 * moving.vector.sign()
    corrected = recipe.federated.correct(
        direction[:size], moving.vector[:size], broadcast.theta, broadcast.aligned, fixed.federated
    )
    if fixed.personal.names:
        corrected = torch.cat([corrected, direction[size:]])
    vector, optimiser = local.optimiser.step(
        moving.vector, clipped(corrected, local.clip), moving.optimiser, broadcast.lr
    )
    gradients = {name: total + gradient.value for name, total in moving.gradients.items()}
    return Moving(vector, moving.buffers, optimiser, gradient.state, gradients), gradient.loss


def finish(
    group: Sequence[Ready], moved: Sequence[Moved], losses: Tensor
) -> list[tuple[Update, SiteState]]:
    """What sites send and what they keep after their steps.

    Args:
      group:  sites as they were before them.
      moved:  what they changed.
      losses: (S,) the sums of their losses.
    """
    return list(map(_finish, group, moved, losses.tolist()))


def _finish(ready: Ready, moved: Moved, loss: float) -> tuple[Update, SiteState]:
    """What a site sends and what it keeps; see `finish`."""
    fixed, recipe, broadcast = ready.fixed, ready.fixed.recipe, ready.fixed.broadcast
    steps = len(ready.batches)
    gradients = {name: total[: len(moved.change)] for name, total in moved.gradients.items()}
    progress = Progress(broadcast.theta, moved.change, gradients, steps, recipe.local)
    report = recipe.federated.finish(progress, broadcast.aligned, fixed.federated)
    reported = {}
    if recipe.method.reports:  # for others, putting the trained model together is a pass too much
        vector = torch.cat([broadcast.theta + moved.change, moved.personal])
        trained = local_model(fixed, vector, moved.buffers)
        here = Here(trained, fixed.data, broadcast.shared, moved.method)
        reported = recipe.method.report(here, fixed.plan)
    held = held_entries(fixed.network.layout, ready.site.view.own())
    update = Update(
        site=ready.site.name,
        samples=len(fixed.plan.pool),
        delta=_cut(report.delta, held),
        buffers=moved.buffers,
        aligned={name: _cut(values, held) for name, values in report.aligned.items()},
        extras={**report.extras, **reported},
        metrics={
            "loss": loss / steps,
            "samples": float(len(fixed.plan.pool)),
            "steps": float(steps),
            **fixed.plan.metrics,
        },
        weights=fixed.plan.weights,
    )
    return update, SiteState(
        method=moved.method,
        # Copies: as slices they would keep those of sites stacked with this one alive.
        personal={
            name: value.clone() for name, value in fixed.personal.unflatten(moved.personal).items()
        },
        federated=report.state,
        optimiser=moved.optimiser if recipe.local.optimiser_state == "keep" else {},
        buffers=moved.buffers if recipe.batch_norm == "local" else {},
    )


def local_model(
    fixed: Fixed, vector: Tensor, buffers: Tensors, seed: Tensor | None = None
) -> LocalModel:
    """The model at some point of a site's steps; in a step, with its seed for dropout."""
    size = len(fixed.network.layout)
    received = (fixed.broadcast.theta, fixed.broadcast.buffers)
    theta, personal = vector, {}
    if fixed.personal.names:  # a slice, even of everything, costs its gradient two passes
        theta, personal = vector[:size], fixed.personal.unflatten(vector[size:])
    number = fixed.broadcast.round
    return LocalModel(fixed.network, theta, buffers, received, personal, number, seed)


def autograd(objective: Objective, vector: Tensor, buffers: Tensors) -> Gradient:
    """Plain reverse-mode gradients; batch-norm statistics in `buffers` move in place."""
    variable = vector.detach().requires_grad_()
    loss, state = objective(variable, buffers)
    (value,) = torch.autograd.grad(loss, variable)
    detached = {name: tensor.detach() for name, tensor in state.items()}
    return Gradient(value, loss.detach(), detached)


def held_entries(layout: Layout, view: LabelView) -> Tensor | None:
    """Which entries of θ a site holds: the encoder and the head rows of its classes.

    Args:
      layout: where the parameters of the model lie.
      view:   the site's view, over the classes of that model.

    Returns:
      (P_s,) positions, or None for all. A private site has its rows in its own order, so that
      even all of them are positions.
    """
    if view.holds_all and not view.private:
        return None
    return layout.entries(view.classes)


def check_update(update: Update, size: int, round_number: int) -> Tensor:
    """Refuse an update of the wrong size or with values that are not finite.

    Args:
      update:       what a site sent.
      size:         how many entries of θ the site holds.
      round_number: for the message.

    Returns:
      0-d, the length of the update of θ.
    """
    check_sizes(update, size, round_number)
    norm = vector_norm(update.delta)
    check_finite([update], norm, round_number)
    return norm


def check_sizes(update: Update, size: int, round_number: int) -> None:
    """Refuse an update of the wrong size; see `check_update`."""
    for name, vector in {"the update": update.delta, **update.aligned}.items():
        if vector.shape != (size,):
            raise PotluckError(
                f'round {round_number + 1}, site "{update.site}": {name} has shape '
                f"{tuple(vector.shape)}, expected ({size},)."
            )


def check_finite(updates: Sequence[Update], norms: Tensor, round_number: int) -> None:
    """Refuse updates with values that are not finite; see `check_update`.

    Args:
      updates:      what sites sent.
      norms:        (S,) or 0-d, not finite where an update of θ is not.
      round_number: for the message.
    """
    others = [tensor for update in updates for tensor in _floats(update).values()]
    # One number first: a look at each tensor would wait for the GPU each time. Squares of large
    # numbers may overflow, but no number that is not finite is lost in their sum.
    if math.isfinite(get_total_norm([norms, *others])):
        return
    for update in updates:
        for name, tensor in {"the update": update.delta, **_floats(update)}.items():
            if not tensor.isfinite().all():
                raise PotluckError(
                    f'round {round_number + 1}, site "{update.site}": {name} has values that are '
                    "not finite numbers: training diverged. Lower local.lr or set local.clip; "
                    "the last checkpoint is unharmed."
                )


def _floats(update: Update) -> Tensors:
    """All that an update brings besides the change of θ, but for counters."""
    tensors = {**update.aligned, **update.extras, **update.buffers}
    return {name: value for name, value in tensors.items() if value.is_floating_point()}


def _seeds(steps: int, generator: torch.Generator) -> Tensor:
    """(steps,) int32, for dropout."""
    return torch.randint(2**31 - 1, (steps,), generator=generator, dtype=torch.int32)


def _cut(vector: Tensor, entries: Tensor | None) -> Tensor:
    return vector if entries is None else vector[entries.to(vector.device)]
