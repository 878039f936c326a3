"""One site's round, from broadcast to update. Every engine gives the same result as this."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.engines.recipe import Recipe
from potluck.errors import PotluckError
from potluck.federated import Progress
from potluck.federation import Site
from potluck.labels import LabelView
from potluck.local import clipped
from potluck.messages import Broadcast, SiteState, Tensors, Update
from potluck.methods import Batch, Gradient, LocalModel, Loss, Objective, Plan, SiteData
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
            personal=method.personal(data, network),
            federated=federated.site_start(broadcast.theta, network.layout, site.view.private),
        )
    work = _Work(network, recipe, data, broadcast, Layout.of(state.personal))
    buffers = _copied(state.buffers or broadcast.buffers)
    vector = work.join(federated.begin(broadcast.theta, state.federated), state.personal)
    plan = method.plan(
        work.model(vector, buffers),
        data,
        broadcast.shared,
        state.method,
        stream(recipe.seed, *here, "plan"),
    )
    if len(plan.pool) == 0:
        return None, state
    batches = method.batches(local, data, plan, stream(recipe.seed, *here, "batches"))
    draws = method.draw(data, plan, batches, stream(recipe.seed, *here, "draws"))

    kept, losses, total = state.method, [], torch.zeros_like(vector)
    steps = state.optimiser or local.optimiser.start(vector)
    with _seeded(derive(recipe.seed, *here, "dropout"), vector.device):
        for index, numbers in zip(batches, draws, strict=True):
            objective = work.objective(plan, Batch(index, numbers), kept)
            gradient = method.gradient(autograd, objective, vector, buffers, broadcast.shared)
            direction = work.corrected(gradient.value, vector, state.federated)
            vector, steps = local.optimiser.step(
                vector, clipped(direction, local.clip), steps, broadcast.lr
            )
            kept = gradient.state
            losses.append(gradient.loss)
            total += gradient.value

    trained = work.model(vector, buffers)
    mean_gradient = total[: len(network.layout)] / len(batches)
    progress = Progress(
        broadcast.theta, trained.theta, mean_gradient, len(batches), broadcast.lr, local
    )
    report = federated.finish(progress, broadcast.aligned, state.federated)
    held = held_entries(network.layout, site.view.own())
    update = Update(
        site=site.name,
        samples=len(plan.pool),
        delta=_cut(report.delta, held),
        buffers=buffers,
        aligned={name: _cut(values, held) for name, values in report.aligned.items()},
        extras={**report.extras, **method.report(trained, data, plan, kept)},
        metrics={
            "loss": float(torch.stack(losses).mean()),
            "samples": float(len(plan.pool)),
            "steps": float(len(batches)),
            "drift": float((trained.theta - broadcast.theta).norm()),
            **plan.metrics,
        },
    )
    return update, SiteState(
        method=kept,
        personal=trained.personal,
        federated=report.state,
        optimiser=steps if local.optimiser_state == "keep" else {},
        buffers=buffers if recipe.batch_norm == "local" else {},
    )


@dataclass(frozen=True, eq=False)
class _Work:
    """What stays the same during a site's round. The steps move one vector: θ, then personal."""

    network: Network
    recipe: Recipe
    data: SiteData
    broadcast: Broadcast
    personal: Layout

    def join(self, theta: Tensor, personal: Tensors) -> Tensor:
        return torch.cat([theta, self.personal.flatten(personal)]) if personal else theta

    def model(self, vector: Tensor, buffers: Tensors) -> LocalModel:
        size = len(self.network.layout)
        received = (self.broadcast.theta, self.broadcast.buffers)
        personal = self.personal.unflatten(vector[size:])
        return LocalModel(
            self.network, vector[:size], buffers, received, personal, self.broadcast.round
        )

    def objective(self, plan: Plan, batch: Batch, kept: Tensors) -> Objective:
        def bind(loss: Loss, vector: Tensor, buffers: Tensors) -> tuple[Tensor, Tensors]:
            model, shared = self.model(vector, buffers), self.broadcast.shared
            return loss(model, self.data, plan, batch, shared, kept)

        return Objective(self.recipe.method.loss, bind)

    def corrected(self, gradient: Tensor, vector: Tensor, federated: Tensors) -> Tensor:
        """The direction of a step: the loss's gradient, L1, and the optimiser's correction of θ."""
        if self.recipe.local.l1:
            gradient = gradient + self.recipe.local.l1 * vector.sign()
        size = len(self.network.layout)
        received, aligned = self.broadcast.theta, self.broadcast.aligned
        theta = self.recipe.federated.correct(
            gradient[:size], vector[:size], received, aligned, federated
        )
        return torch.cat([theta, gradient[size:]]) if len(gradient) > size else theta


def held_entries(layout: Layout, view: LabelView) -> Tensor | None:
    """Which entries of θ a site holds: the encoder and the head rows of its classes.

    Args:
      layout: where the parameters of the model lie.
      view:   the site's view, over the classes of that model.

    Returns:
      (P_s,) positions, or None for all. A private site has its rows in its own order, so that
      even all of them are positions.
    """
    if view.held.all() and not view.private:
        return None
    return layout.entries(view.classes)


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


def autograd(objective: Objective, vector: Tensor, buffers: Tensors) -> Gradient:
    """Plain reverse-mode gradients; batch-norm statistics in `buffers` move in place."""
    variable = vector.detach().requires_grad_()
    loss, state = objective(variable, buffers)
    (value,) = torch.autograd.grad(loss, variable)
    detached = {name: tensor.detach() for name, tensor in state.items()}
    return Gradient(value, loss.detach(), detached)


def _cut(vector: Tensor, entries: Tensor | None) -> Tensor:
    return vector if entries is None else vector[entries.to(vector.device)]


def _copied(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Layers that draw for themselves (dropout) use this stream; nothing else is disturbed."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # Not torch.manual_seed: it would also reseed accelerators that were not forked.
        torch.default_generator.manual_seed(seed)
        for cuda in devices:
            with torch.cuda.device(cuda):
                torch.cuda.manual_seed(seed)
        yield
