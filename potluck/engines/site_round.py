"""One site's round, from broadcast to update. Every engine gives the same result as this."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from potluck.engines.recipe import Recipe
from potluck.errors import PotluckError
from potluck.federated import Progress
from potluck.federation import Site
from potluck.labels import LabelView
from potluck.local import clipped
from potluck.messages import Broadcast, SiteState, Tensors, Update
from potluck.methods import Batch, Differentiate, Gradient, LocalModel, Objective, Plan, SiteData
from potluck.models.network import Layout, Network
from potluck.streams import derive, stream


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
    method, federated, local = recipe.method, recipe.federated, recipe.local
    here = (broadcast.round, site.name)
    data = SiteData.of(site)
    if state is None:
        state = SiteState(
            method=method.start(data),
            federated=federated.site_start(broadcast.theta, network.layout, site.view.private),
        )
    received = (broadcast.theta, broadcast.buffers)
    buffers = _copied(state.buffers or broadcast.buffers)
    theta = federated.begin(broadcast.theta, state.federated)
    model = LocalModel(network, theta, buffers, received)

    plan = method.plan(
        model, data, broadcast.shared, state.method, stream(recipe.seed, *here, "plan")
    )
    if len(plan.pool) == 0:
        return None, state
    batches = local.batches(plan.pool, stream(recipe.seed, *here, "batches"))
    draws = method.draw(data, plan, batches, stream(recipe.seed, *here, "draws"))

    kept, losses = state.method, []
    steps_taken = state.optimiser or local.optimiser.start(theta)
    differentiate = _autograd(buffers)
    with _seeded(derive(recipe.seed, *here, "dropout"), theta.device):
        for index, numbers in zip(batches, draws, strict=True):
            batch = Batch(index, numbers)
            objective = _objective(recipe, network, received, data, plan, batch, broadcast, kept)
            gradient = method.gradient(differentiate, objective, theta)
            direction = gradient.value
            if local.l1:
                direction = direction + local.l1 * theta.sign()
            direction = federated.correct(
                direction, theta, broadcast.theta, broadcast.aligned, state.federated
            )
            theta, steps_taken = local.optimiser.step(
                theta, clipped(direction, local.clip), steps_taken, broadcast.lr
            )
            kept = gradient.state
            losses.append(gradient.loss)

    progress = Progress(broadcast.theta, theta, len(batches), broadcast.lr, local)
    report = federated.finish(progress, broadcast.aligned, state.federated)
    trained = replace(model, theta=theta)
    extras = {**report.extras, **method.report(trained, data, plan, kept)}
    held = held_entries(network.layout, site.view.own())
    update = Update(
        site=site.name,
        samples=len(plan.pool),
        delta=_cut(report.delta, held),
        buffers=buffers,
        aligned={name: _cut(vector, held) for name, vector in report.aligned.items()},
        extras=extras,
        metrics={
            "loss": float(torch.stack(losses).mean()),
            "samples": float(len(plan.pool)),
            "steps": float(len(batches)),
            "drift": float((theta - broadcast.theta).norm()),
            **plan.metrics,
        },
    )
    return update, SiteState(
        method=kept,
        federated=report.state,
        optimiser=steps_taken if local.optimiser_state == "keep" else {},
        buffers=buffers if recipe.batch_norm == "local" else {},
    )


def held_entries(layout: Layout, view: LabelView) -> Tensor | None:
    """Which entries of θ a site holds: the encoder and the head rows of its classes.

    Args:
      layout: where the parameters of the model lie.
      view:   the site's view, over the classes of that model.

    Returns:
      (P_s,) positions, or None for all.
    """
    return None if view.held.all() else layout.entries(view.classes)


def check_update(update: Update, size: int, round_number: int) -> None:
    """Refuse an update of the wrong size or with values that are not finite.

    Args:
      update:       what a site sent.
      size:         how many entries of θ the site holds.
      round_number: for the message.
    """
    where = f'round {round_number + 1}, site "{update.site}"'
    for name, vector in {"the update": update.delta, **update.aligned}.items():
        if vector.shape != (size,):
            raise PotluckError(
                f"{where}: {name} has shape {tuple(vector.shape)}, expected ({size},)."
            )
    tensors = {"the update": update.delta, **update.aligned, **update.extras, **update.buffers}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise PotluckError(
                f"{where}: {name} has values that are not finite numbers: training diverged. "
                "Lower local.lr or set local.clip; the last checkpoint is unharmed."
            )


def _objective(
    recipe: Recipe,
    network: Network,
    received: tuple[Tensor, Tensors],
    data: SiteData,
    plan: Plan,
    batch: Batch,
    broadcast: Broadcast,
    kept: Tensors,
) -> Objective:
    def objective(theta: Tensor, buffers: Tensors) -> tuple[Tensor, Tensors]:
        model = LocalModel(network, theta, buffers, received)
        return recipe.method.loss(model, data, plan, batch, broadcast.shared, kept)

    return objective


def _autograd(buffers: Tensors) -> Differentiate:
    """Plain reverse-mode gradients; batch-norm statistics in `buffers` move in place."""

    def differentiate(objective: Objective, theta: Tensor) -> Gradient:
        variable = theta.detach().requires_grad_()
        loss, state = objective(variable, buffers)
        (value,) = torch.autograd.grad(loss, variable)
        detached = {name: tensor.detach() for name, tensor in state.items()}
        return Gradient(value, loss.detach(), detached)

    return differentiate


def _cut(vector: Tensor, entries: Tensor | None) -> Tensor:
    return vector if entries is None else vector[entries.to(vector.device)]


def _copied(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Layers that draw for themselves (dropout) use this stream; nothing else is disturbed."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
