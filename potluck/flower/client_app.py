"""A site's program: Flower starts it anew for each message, and it gives one answer.

What leaves the site is what the functions here pack, and nothing else. An exception may quote
data, so only its kind is told to the coordinator; the site's own log has the rest.
"""

from collections.abc import Callable
from dataclasses import replace
from logging import ERROR
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log

from potluck.engines.site_round import train_site
from potluck.engines.static_norm import norm_sums
from potluck.engines.validation import predicted
from potluck.errors import PotluckError
from potluck.flower.events import EVENTS, Events
from potluck.flower.memory import Holding, Memory
from potluck.flower.processes import end_with_parent
from potluck.flower.terms import Terms
from potluck.flower.wire import pack, pack_update, payload, unpack, unpack_broadcast
from potluck.messages import Broadcast, SiteState, Tensors
from potluck.study.moments import input_sums

Answer = Callable[[Message, "Here"], RecordDict]


class Here:
    """The site that this program runs at.

    Args:
      context: what Flower says about it: `folder`, and perhaps `device` and `forget`, as
               `potluck join` set them. On Flower's simulation runtime, the folder is one of
               those in the run's `sites`, by the number of the simulated node.
    """

    def __init__(self, context: Context) -> None:
        config: dict[str, Any] = {**context.run_config, **context.node_config}
        folder = config.get("folder")
        if folder is not None:
            end_with_parent()
        else:
            folder = Path(str(config["sites"])) / f"{config['partition-id']:06d}"
        self.memory = Memory(Path(str(folder)))
        self.device = torch.device(str(config.get("device", "cpu")))
        self.forget = bool(config.get("forget", False))

    def holding(self) -> Holding:
        """The site's data, on its device."""
        stored = self.memory.data()
        aside = None if stored.validation is None else stored.validation.to(self.device)
        return Holding(stored.site.to(self.device), stored.columns, aside)

    def note(self, **event: Any) -> None:
        """Tell the person who watches `potluck join`."""
        Events(self.memory.folder / EVENTS).note(**event)


def declare(message: Message, here: Here) -> RecordDict:
    """Say what this site has; and sums of its inputs, where the study standardises them."""
    facts, _ = unpack(message.content)
    declared = here.memory.declared()
    sums = input_sums(here.holding().site.inputs) if facts["standardise"] else {}
    here.note(did="declared", brings=declared.brings())
    return pack({"declared": declared.facts()}, {"sums": sums})


def train(message: Message, here: Here) -> RecordDict:
    """One round: plan, take local steps, remember, report."""
    broadcast, facts = unpack_broadcast(message.content)
    broadcast, terms = _placed(broadcast, here.device), Terms.read(facts)
    if here.memory.declared().digest() != terms.admitted:
        raise PotluckError(
            "its data or its view has changed since it was admitted to the run; put it back, or "
            "start a new run"
        )
    site = here.holding().site
    state = _state(here, terms)
    recipe = terms.make_recipe()
    update, kept = train_site(terms.make_network(site), recipe, site, state, broadcast)
    number = broadcast.round + 1
    # Before the update leaves: what counts at the coordinator, the site must remember.
    here.memory.keep_state(terms.run, number, kept, terms.floor)
    answer = pack({"sat_out": True}) if update is None else pack_update(update)
    here.note(
        did="sat out" if update is None else "trained",
        round=number,
        rounds=recipe.rounds,
        metrics={} if update is None else update.metrics,
        down=payload(message.content),
        up=payload(answer),
    )
    return answer


def measure(message: Message, here: Here) -> RecordDict:
    """Sums of layer inputs, for static batch norm."""
    broadcast, facts = unpack_broadcast(message.content)
    broadcast, site = _placed(broadcast, here.device), here.holding().site
    network = Terms.read(facts).make_network(site)
    return pack({}, {"sums": norm_sums(network, broadcast.theta, broadcast.buffers, site.inputs)})


def validate(message: Message, here: Here) -> RecordDict:
    """How many of the samples that were kept out of training are predicted right."""
    broadcast, facts = unpack_broadcast(message.content)
    broadcast, aside = _placed(broadcast, here.device), here.holding().validation
    if aside is None:
        return pack({"hits": 0, "total": 0})
    network = Terms.read(facts).make_network(aside)
    hits = predicted(network, broadcast.theta, broadcast.buffers, aside)
    return pack({"hits": hits, "total": len(aside)})


def _state(here: Here, terms: Terms) -> SiteState | None:
    if here.forget and terms.since not in here.memory.remembered(terms.run):
        return None
    return here.memory.state(terms.run, terms.since, here.device)


def _placed(broadcast: Broadcast, device: torch.device) -> Broadcast:
    def there(tensors: Tensors) -> Tensors:
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    return replace(
        broadcast,
        theta=broadcast.theta.to(device),
        buffers=there(broadcast.buffers),
        aligned=there(broadcast.aligned),
        shared=there(broadcast.shared),
    )


def _answering(answer: Answer) -> Callable[[Message, Context], Message]:
    """A handler for Flower; a problem is told in words, and nothing that quotes data leaves."""

    def handler(message: Message, context: Context) -> Message:
        here = Here(context)
        try:
            content = answer(message, here)
        except PotluckError as error:
            here.note(did="failed", why=str(error))
            content = pack({"problem": str(error)})
        except Exception as error:  # the boundary of the site: see the module's docstring
            log(ERROR, "this site could not answer", exc_info=error)
            here.note(did="failed", why=f"{type(error).__name__}: {error}")
            kind = type(error).__name__
            content = pack({"problem": f"an error ({kind}); the site's log says more"})
        return Message(content, reply_to=message)

    return handler


client_app = ClientApp()
client_app.query()(_answering(declare))
client_app.train()(_answering(train))
client_app.query("norm")(_answering(measure))
client_app.evaluate()(_answering(validate))
