"""Whether the coordinator takes an update that came over the network.

In one process an update that does not fit is a bug, and ends the run. Over a network it is one
site's problem: its update is left out of the round, and the history says why.
"""

import torch

from potluck.engines.recipe import Recipe
from potluck.engines.rounds import Opened, ServerState, arrival
from potluck.engines.site_round import check_update
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.messages import Tensors, Update
from potluck.methods import SiteData
from potluck.models.network import Network


def check_arrived(
    network: Network,
    recipe: Recipe,
    federation: Federation,
    state: ServerState,
    opened: Opened,
    site: Site,
    update: Update,
) -> None:
    """Raise `PotluckError` unless an update has the shape, names and values that it should have.

    Args:
      network:    the global model.
      recipe:     what all parties agreed on.
      federation: who takes part.
      state:      the state that the round was opened with.
      opened:     the round.
      site:       who sent it.
      update:     what it sent.
    """
    held = opened.entries[site.name]
    size = len(network.layout) if held is None else len(held)
    if not 0 < update.samples <= len(site):
        raise PotluckError(
            f"it says that it trained on {update.samples} samples, but it declared {len(site)}."
        )
    vectors = {"the update": update.delta, **update.aligned}
    for name, vector in vectors.items():
        if vector.dtype != state.theta.dtype:
            raise PotluckError(f"{name} is of type {vector.dtype}, not {state.theta.dtype}.")
    check_update(update, size, state.round)
    _check_weights(update, network, site)
    check_alike("the buffers", update.buffers, state.buffers)
    if update.extras:  # whether they fit, the method knows
        server = federation.server
        own = None if server is None else SiteData.of(server, state.theta.dtype)
        try:
            arrived = arrival(network, recipe, site, state, update, held, own)
            recipe.method.receive(state.method, arrived)
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise PotluckError(
                f"what it sends besides its update does not fit the method ({error})."
            ) from None


def agreeing(updates: dict[str, Update]) -> dict[str, str]:
    """Who sends something of another shape than most, and what is wrong with it.

    Args:
      updates: this round's, by site.
    """
    shapes: dict[str, list[torch.Size]] = {}
    for update in updates.values():
        for name, value in update.extras.items():
            shapes.setdefault(name, []).append(value.shape)
    usual = {name: max(found, key=found.count) for name, found in shapes.items()}
    return {
        site: f'"{name}" has shape {tuple(value.shape)}, that of most sites {tuple(usual[name])}.'
        for site, update in updates.items()
        for name, value in update.extras.items()
        if value.shape != usual[name]
    }


def _check_weights(update: Update, network: Network, site: Site) -> None:
    if update.weights is None:
        return
    expected = (1 + int(site.view.held.sum()),)
    fits = update.weights.shape == expected and update.weights.is_floating_point()
    if not fits or not (update.weights.isfinite() & (update.weights >= 0)).all():
        raise PotluckError("its weights are not one finite number for the encoder and each class.")


def check_alike(what: str, sent: Tensors, own: Tensors) -> None:
    """Raise `PotluckError` unless tensors are finite and look like others: names, shapes, types.

    Args:
      what: how to call them in messages.
      sent: what came.
      own:  what they should look like.
    """
    if sent.keys() != own.keys():
        odd = sorted(sent.keys() ^ own.keys())[0]
        raise PotluckError(f'{what} are not those of the model; "{odd}" is the first to differ.')
    for name, value in own.items():
        if sent[name].shape != value.shape or sent[name].dtype != value.dtype:
            raise PotluckError(
                f'{what}: "{name}" has shape {tuple(sent[name].shape)} and type '
                f"{sent[name].dtype}, expected {tuple(value.shape)} and {value.dtype}."
            )
        if not sent[name].isfinite().all():
            raise PotluckError(f'{what}: "{name}" has values that are not finite numbers.')
