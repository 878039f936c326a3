"""The round loop: broadcast, local training, averaging, the server's own step, evaluation."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from potluck.engines.contribution import Part, contributions, keeper, part
from potluck.engines.engine import Engine, Finished, Orders
from potluck.engines.evaluation import evaluate
from potluck.engines.recipe import Recipe
from potluck.engines.site_round import (
    check_finite,
    check_sizes,
    check_update,
    held_entries,
)
from potluck.engines.static_norm import norm_sums, static_buffers
from potluck.engines.validation import validate
from potluck.errors import PotluckError
from potluck.federated import FedAvg, Mean, RunningMean, Weighed
from potluck.federated.weights import entry_weights
from potluck.federation import Federation, Site
from potluck.history import Record
from potluck.messages import Broadcast, SiteState, Tensors, Update, size_in_bytes
from potluck.methods import Arrival, AtServer, SiteData
from potluck.models.network import Layout, Network
from potluck.streams import stream


@dataclass(frozen=True, eq=False)
class ServerState:
    """All that a run needs to go on: writing it is a checkpoint, reading it a resume.

    Args:
      round:     rounds completed.
      theta:     (P,) the global parameters, from which sites go on.
      buffers:   the global buffers.
      federated: the federated optimiser's state.
      method:    the method's state at the server.
      sites:     what each site kept. In a simulation the server stores it for them; over a
                 network it stays on the site's own disk.
      served:    "theta" and the buffers of the model that is evaluated and kept, where it is
                 another one.
      heard:     over a network, the last round (from 1) whose update counted, by site: which of
                 the states on its disk a site goes on from.
    """

    round: int
    theta: Tensor
    buffers: Tensors
    federated: Tensors = field(default_factory=dict)
    method: Tensors = field(default_factory=dict)
    sites: dict[str, SiteState] = field(default_factory=dict)
    served: Tensors = field(default_factory=dict)
    heard: Tensors = field(default_factory=dict)

    @property
    def model(self) -> tuple[Tensor, Tensors]:
        """The parameters and buffers of the model that is evaluated and kept."""
        buffers = dict(self.served)
        theta = buffers.pop("theta", None)
        return (self.theta, self.buffers) if theta is None else (theta, buffers)


def start(
    network: Network, recipe: Recipe, federation: Federation, device: torch.device
) -> ServerState:
    """The state before the first round."""
    theta, buffers = network.initial()
    method = recipe.method.server_start(network, federation)
    theta = recipe.method.adjust(method, theta.to(device), network.layout)
    return ServerState(
        round=0,
        theta=theta,
        buffers={name: value.to(device) for name, value in buffers.items()},
        federated=recipe.federated.start(theta),
        method=method,
    )


def run(
    network: Network,
    recipe: Recipe,
    federation: Federation,
    engine: Engine,
    state: ServerState,
    on_round: Callable[[ServerState, Record], None],
    evaluate_every: int = 1,
) -> ServerState:
    """Run the remaining rounds.

    Args:
      network:        the global model.
      recipe:         what all parties agreed on.
      federation:     who takes part, with data on the training device.
      engine:         who runs the local part.
      state:          where to start from.
      on_round:       called after each round with the new state and its history record.
      evaluate_every: evaluate on test and validation samples after every so many rounds, and
                      after the last.
    """
    if state.round == 0 and recipe.batch_norm == "static":
        state = _static(network, federation, state)  # plans of the first round look at them
    while state.round < recipe.rounds:
        began = time.perf_counter()
        state, record = one_round(network, recipe, federation, engine, state)
        if evaluation_due(recipe, state, evaluate_every):
            model = (network, *state.model)
            if federation.test is not None:
                record["test"] = asdict(evaluate(*model, *federation.test))
            if federation.validation:
                record["validation"] = validate(*model, federation)
        if remarks := engine.remarks:
            record["engine"] = list(remarks)
        record["seconds"] = time.perf_counter() - began
        on_round(state, record)
    return state


def evaluation_due(recipe: Recipe, state: ServerState, every: int) -> bool:
    """Whether to evaluate now: after every so many rounds, and after the last."""
    return state.round % every == 0 or state.round == recipe.rounds


def one_round(
    network: Network,
    recipe: Recipe,
    federation: Federation,
    engine: Engine,
    state: ServerState,
) -> tuple[ServerState, Record]:
    """One round without evaluation; see `run` for the arguments."""
    opened = open_round(network, recipe, federation, state)
    orders = Orders(network, recipe, opened.cohort, state.sites, opened.broadcast)
    finished = engine.run(orders)
    state, record = close_round(network, recipe, federation, state, opened, finished, engine)
    if recipe.batch_norm == "static":
        state = _static(network, federation, state)
    return state, record


@dataclass(frozen=True, eq=False)
class Opened:
    """A round that the server has begun.

    Args:
      lr:        the learning rate of the round.
      cohort:    the sites that take part, in the federation's order.
      entries:   for each of them, the positions in θ of what it holds; None for all.
      broadcast: makes what the server sends to a site.
      traffic:   bytes sent to and received from each site so far.
    """

    lr: float
    cohort: list[Site]
    entries: dict[str, Tensor | None]
    broadcast: Callable[[Site], Broadcast]
    traffic: dict[str, dict[str, int]]


def open_round(
    network: Network, recipe: Recipe, federation: Federation, state: ServerState
) -> Opened:
    """The server's part of a round before the sites train."""
    lr = recipe.local.lr * recipe.local.schedule.factor(state.round, recipe.rounds)
    cohort = choose(recipe, federation.sites, state.round)
    entries = {
        site.name: _on(state.theta, held_entries(network.layout, site.view)) for site in cohort
    }
    traffic = {site.name: {"down": 0, "up": 0} for site in cohort}

    def broadcast(site: Site) -> Broadcast:
        visible = entries[site.name] if site.view.private else None
        shared = recipe.method.share(state.method, site.name)
        message = make_broadcast(recipe, state, lr, visible, shared)
        traffic[site.name]["down"] = size_in_bytes(message)
        return message

    return Opened(lr, cohort, entries, broadcast, traffic)


def close_round(
    network: Network,
    recipe: Recipe,
    federation: Federation,
    state: ServerState,
    opened: Opened,
    finished: Iterable[Sequence[Finished]],
    engine: Engine,
) -> tuple[ServerState, Record]:
    """The server's part of a round after the sites have trained.

    Args:
      network:    the global model.
      recipe:     what all parties agreed on.
      federation: who takes part.
      state:      the state that the round was opened with.
      opened:     the round.
      finished:   what the sites did, those together that trained together; over a network, those
                  that answered.
      engine:     trains the server on its own data, if the method wants that.
    """
    server = (
        None if federation.server is None else SiteData.of(federation.server, state.theta.dtype)
    )
    mean, method, sites = RunningMean(len(network.layout)), state.method, dict(state.sites)
    metrics: dict[str, dict[str, float]] = {}
    parts: list[Part] = []
    keep = keeper(len(network.layout), len(opened.cohort))
    sat_out: list[str] = []
    whom = {site.name: site for site in opened.cohort}
    for together in finished:
        sites |= {done.site.name: done.state for done in together if done.state is not None}
        sat_out += [done.site.name for done in together if done.update is None]
        updates = [done.update for done in together if done.update is not None]
        arriving = [_weighed(network, recipe, opened, state, update) for update in updates]
        norms: dict[str, float] = {}
        for alike in _alike(arriving):
            kept = part(alike, len(network.layout), keep)
            check_finite([weighed.update for weighed in alike], kept.norms, state.round)
            parts.append(kept)
            norms |= zip(kept.sites, kept.norms.tolist(), strict=True)
        for weighed in arriving:
            mean.add(weighed)
            update, held = weighed.update, weighed.entries
            opened.traffic[update.site]["up"] = size_in_bytes(update)
            arrived = arrival(network, recipe, whom[update.site], state, update, held, server)
            method = recipe.method.receive(method, arrived)
            # How far the site's model moved; most often this length is known by now.
            plain = arrived.change is update.delta and weighed.entry_weights is None
            drift = norms[update.site] if plain else float(vector_norm(arrived.change))
            metrics[update.site] = {**update.metrics, "drift": drift}
    state = replace(state, method=method, sites=sites)

    shares: dict[str, dict[str, float]] = {}
    if metrics:
        share, average = len(metrics) / len(federation.sites), mean.mean()
        shares = contributions(parts, average.delta, average.holders, keep)
        state = _averaged(network.layout, recipe, state, average, share)
    if federation.server is not None and (own := recipe.method.at_server()) is not None:
        state, metrics[federation.server.name] = _server_trained(
            network, recipe, own, federation.server, state, engine
        )
    record: Record = {
        "round": state.round + 1,
        "lr": opened.lr,
        "cohort": [site.name for site in opened.cohort],
        "sat_out": sat_out,
        "sites": metrics,
        "updates": shares,
        "bytes": opened.traffic,
    }
    return replace(state, round=state.round + 1), record


def choose(recipe: Recipe, sites: Sequence[Site], round_number: int) -> list[Site]:
    """The sites of a round, drawn without replacement, in the federation's order."""
    if recipe.cohort is None:
        return list(sites)
    generator = stream(recipe.seed, round_number, "cohort")
    drawn = torch.randperm(len(sites), generator=generator)[: recipe.cohort]
    return [sites[i] for i in sorted(drawn.tolist())]


def make_broadcast(
    recipe: Recipe, state: ServerState, lr: float, entries: Tensor | None, shared: Tensors
) -> Broadcast:
    """What the server sends to a site.

    Args:
      recipe:  what all parties agreed on.
      state:   the server's state.
      lr:      the learning rate of this round.
      entries: for a private site, the positions in θ that it may see; None for all.
      shared:  what the method adds.
    """
    aligned = recipe.federated.share(state.federated)
    if entries is not None:
        size = len(state.theta)
        aligned = {name: _own(name, vector, entries, size) for name, vector in aligned.items()}
        shared = {name: _own(name, vector, entries, size) for name, vector in shared.items()}
    return Broadcast(
        round=state.round,
        lr=lr,
        theta=state.theta if entries is None else state.theta[entries],
        buffers=state.buffers,
        aligned=aligned,
        shared=shared,
    )


def arrival(
    network: Network,
    recipe: Recipe,
    site: Site,
    state: ServerState,
    update: Update,
    entries: Tensor | None,
    server: SiteData | None,
) -> Arrival:
    """An update as a method sees it arrive at the server.

    Args:
      network: the global model.
      recipe:  what all parties agreed on.
      site:    who sent it.
      state:   the server's state as it was broadcast.
      update:  what the site sent.
      entries: positions in θ of what the site holds; None for all.
      server:  the server's own data, if any.
    """
    if entries is None:
        theta, classes = state.theta, torch.arange(len(site.view.space))
    else:
        theta, classes = state.theta[entries], site.view.classes
    return Arrival(
        update=update,
        network=network.narrowed(len(classes)),
        received=theta,
        change=recipe.federated.change(update),
        classes=classes.to(theta.device),
        server=server,
    )


def _own(name: str, vector: Tensor, entries: Tensor, size: int) -> Tensor:
    """What a private site gets of a vector like θ. Anything else might tell of other classes."""
    if vector.shape != (size,):
        raise PotluckError(
            f'the server would send "{name}" of shape {tuple(vector.shape)} to a private site, '
            "which may receive the model and vectors like it, cut to its own classes, and nothing "
            "else. Use another method, or views that are not private."
        )
    return vector[entries]


def _weighed(
    network: Network, recipe: Recipe, opened: Opened, state: ServerState, update: Update
) -> Weighed:
    """An update of the right size, and how much it counts."""
    held = opened.entries[update.site]
    check_sizes(update, len(network.layout) if held is None else len(held), state.round)
    return Weighed(update, _weight(recipe, update), held, _entry_weights(network, recipe, update))


def _alike(weighed: Sequence[Weighed]) -> list[list[Weighed]]:
    """Updates that count for all of θ alike, together; each of the others by itself."""
    alone = [[one] for one in weighed if not one.everywhere]
    together = [one for one in weighed if one.everywhere]
    return [together, *alone] if together else alone


def _weight(recipe: Recipe, update: Update) -> float:
    if recipe.federated.weights == "uniform":
        return 1.0
    return float(update.samples if update.weights is None else update.weights[0])


def _entry_weights(network: Network, recipe: Recipe, update: Update) -> Tensor | None:
    """(P_s,) the weight of each entry of an update, where its site says how they differ."""
    if recipe.federated.weights == "uniform" or update.weights is None:
        return None
    layout = network.layout.narrowed(len(update.weights) - 1)
    return entry_weights(update.weights, layout).to(update.delta)


def _averaged(
    layout: Layout, recipe: Recipe, state: ServerState, mean: Mean, share: float
) -> ServerState:
    theta, federated = recipe.federated.apply(state.theta, state.federated, mean, share)
    # Whatever the optimiser does, an entry that nobody held keeps its value.
    if mean.holders.ndim:
        theta = torch.where(mean.covered, theta, state.theta)
    method = recipe.method.conclude(state.method, mean.extras)
    theta = recipe.method.adjust(method, theta, layout)
    other = recipe.method.serve(method, state.theta, layout)
    return replace(
        state,
        theta=theta,
        federated=federated,
        buffers=mean.buffers,
        method=method,
        served={} if other is None else {"theta": other, **state.buffers},
    )


def _server_trained(
    network: Network,
    recipe: Recipe,
    own: AtServer,
    server: Site,
    state: ServerState,
    engine: Engine,
) -> tuple[ServerState, dict[str, float]]:
    """The server trains on its own data, from the averaged model, like a cohort of one site."""
    local = own.local or recipe.local
    lr = local.lr * local.schedule.factor(state.round, recipe.rounds)
    alone = replace(recipe, method=own.method, federated=FedAvg(), local=local)

    def broadcast(_: Site) -> Broadcast:
        return make_broadcast(alone, state, lr, None, state.method)

    ((done,),) = engine.run(Orders(network, alone, [server], state.sites, broadcast))
    assert done.state is not None
    state = replace(state, sites={**state.sites, server.name: done.state})
    update = done.update
    if update is None:
        return state, {}
    held = _on(state.theta, held_entries(network.layout, server.view))
    size = len(network.layout) if held is None else len(held)
    drift = check_update(update, size, state.round)
    theta = (
        state.theta + update.delta if held is None else state.theta.index_add(0, held, update.delta)
    )
    metrics = {**update.metrics, "drift": float(drift)}
    return replace(state, theta=theta, buffers=update.buffers), metrics


def _static(network: Network, federation: Federation, state: ServerState) -> ServerState:
    """Batch-norm statistics over everybody's samples, for the model as it now is."""

    def sums(site: Site) -> Tensors:
        own, theta = network, state.theta
        if site.view.private:  # its own rows suffice: heads are not normalised
            own = network.narrowed(len(site.view.classes))
            theta = theta[network.layout.entries(site.view.classes).to(theta.device)]
        return norm_sums(own, theta, state.buffers, site.inputs)

    return replace(state, buffers=static_buffers(state.buffers, map(sums, federation.everyone)))


def _on(like: Tensor, entries: Tensor | None) -> Tensor | None:
    return None if entries is None else entries.to(like.device)
