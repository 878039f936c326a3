"""Audit: what each party of a federation receives, and whether a private site's promise is kept.

The audit rehearses the first rounds of training with the real engine on a few samples of each
site, and lists the messages as they are, not as somebody describes them. It then asks twice "what
if", and compares the messages:

- What if there were further classes, and all classes came in another order? A private site must
  receive the very same: the same bytes before anybody has trained, and messages of the same names
  and sizes in later rounds. So it gets no rows, names, ids or number of other classes.
- What if each site had one sample less? No site may send anything whose size changes: that would
  be one value per sample, such as labels, beliefs or inputs.

It is about what is sent. What can be guessed from it is another matter: everybody's samples leave
their traces in the encoder that all sites share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, get_origin, get_type_hints

import torch
from torch import Tensor

from potluck.engines.engine import Finished, Orders
from potluck.engines.recipe import Recipe
from potluck.engines.rounds import one_round, start
from potluck.engines.sequential import Sequential
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace, LabelView
from potluck.messages import Broadcast, Tensors, Update
from potluck.models.network import HEAD, Network
from potluck.streams import stream

ROUNDS = 2
"""Some methods send things only once they have heard from the sites."""

SAMPLES = 24
"""Samples of each site in the rehearsal."""

DECOYS = 3
"""Further classes that nobody has, in the first "what if"."""


@dataclass(frozen=True)
class Item:
    """One thing in a message.

    Args:
      name:    where it lies in the message, e.g. "theta" or "shared.gradient".
      shape:   of the tensor; () for a single number.
      meaning: what it is, for people.
    """

    name: str
    shape: tuple[int, ...]
    meaning: str

    def __str__(self) -> str:
        size = " × ".join(map(str, self.shape)) or "a number"
        return f"{self.name} ({size}): {self.meaning}"


@dataclass(frozen=True)
class Party:
    """One site in a round.

    Args:
      name:     the site.
      private:  whether its class set is a secret from the other sites.
      receives: what the server sends it.
      sends:    what it sends to the server; empty when it sat the rehearsal out.
    """

    name: str
    private: bool
    receives: tuple[Item, ...]
    sends: tuple[Item, ...]


@dataclass(frozen=True)
class Audit:
    """What each party receives.

    Args:
      sites:    each site's messages in the last round of the rehearsal.
      problems: sentences about broken promises; empty when all are kept.
    """

    sites: tuple[Party, ...]
    problems: tuple[str, ...]

    def check(self) -> None:
        """Raise an error when a promise is broken."""
        if self.problems:
            raise PotluckError("\n".join(self.problems))

    def lines(self) -> Iterator[str]:
        """The audit for people, line by line."""
        for site in self.sites:
            kind = ", whose classes are private" if site.private else ""
            yield f'site "{site.name}"{kind}'
            yield from (f"  receives {item}" for item in site.receives)
            if not site.sends:
                yield "  sends nothing in the rehearsed rounds, which it sat out; later it may"
            yield from (f"  sends    {item}" for item in site.sends)
        private = [site.name for site in self.sites if site.private]
        if private:
            yield f"the server knows the classes of {', '.join(private)}; no other site does"
        yield from self.problems or ("all promises are kept",)


def audit(federation: Federation, recipe: Recipe, network: Network) -> Audit:
    """Rehearse a federation's first rounds, and list and check what is sent.

    Args:
      federation: the sites with their data and views.
      recipe:     what all parties agreed on.
      network:    the model.
    """
    few = _shortened(federation, SAMPLES)
    theta, _ = network.initial()
    heard = _rehearse(network, recipe, few, theta)
    fewer = _rehearse(network, recipe, _shortened(few, -1), theta)
    problems: list[str] = []
    for site in federation.sites:
        problems += _per_sample(site, heard[site.name], fewer[site.name])
    if private := [site for site in federation.sites if site.view.private]:
        disguise = _Disguise.of(federation.space)
        wide = network.narrowed(len(disguise.space))
        rows = disguise.parameters(network, wide, theta)
        disguised = _rehearse(wide, recipe, disguise.federation(few), rows)
        for site in private:
            problems += _told(site, recipe, heard[site.name], disguised[site.name])
    parties = [
        Party(
            site.name,
            site.view.private,
            tuple(_received(site, heard[site.name].received[-1])),
            tuple(_sent(heard[site.name].sent[-1])),
        )
        for site in federation.sites
    ]
    return Audit(tuple(parties), tuple(dict.fromkeys(problems)))


@dataclass(frozen=True, eq=False)
class _Heard:
    """What passed between the server and a site, round by round."""

    received: list[Broadcast]
    sent: list[Update | None]


@dataclass(frozen=True, eq=False)
class _Listening:
    """The sequential engine, noting what each site receives and sends."""

    heard: dict[str, _Heard]
    remarks: tuple[str, ...] = ()

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort in order."""

        def noted(site: Site) -> Broadcast:
            message = orders.broadcast(site)
            self.heard[site.name].received.append(message)
            return message

        for finished in Sequential().run(replace(orders, broadcast=noted)):
            for done in finished:
                self.heard[done.site.name].sent.append(done.update)
            yield finished


def _rehearse(
    network: Network, recipe: Recipe, federation: Federation, theta: Tensor
) -> dict[str, _Heard]:
    """Play rounds of one step at every site, from given parameters."""
    brief = replace(recipe, cohort=None, local=replace(recipe.local, steps=1))
    device = federation.sites[0].inputs.device
    state = start(network, brief, federation, device)
    theta = brief.method.adjust(state.method, theta.to(device), network.layout)
    state = replace(state, theta=theta, federated=brief.federated.start(theta))
    # The server trains like a site; what it tells itself is heard, but crosses nothing.
    listening = _Listening({site.name: _Heard([], []) for site in federation.everyone})
    for _ in range(min(ROUNDS, recipe.rounds)):
        state, _ = one_round(network, brief, federation, listening, state)
    return listening.heard


def _shortened(federation: Federation, samples: int) -> Federation:
    """The same federation with the first samples of each site only (−1: without the last)."""

    def short(site: Site) -> Site:
        keep = max(1, len(site.inputs[:samples]))
        return site.subset(torch.arange(keep, device=site.inputs.device))

    sites, server = tuple(map(short, federation.sites)), federation.server
    return Federation(federation.space, sites, None if server is None else short(server))


@dataclass(frozen=True, eq=False)
class _Disguise:
    """The target classes in another order, among decoys.

    Args:
      space: the classes and the decoys.
      place: (K,) where each class went.
    """

    space: LabelSpace
    place: Tensor

    @classmethod
    def of(cls, space: LabelSpace) -> "_Disguise":
        """A disguise of some classes."""
        count = len(space) + DECOYS
        place = torch.randperm(count, generator=stream(0, "disguise"))[: len(space)]
        # The zero-width joiner is nothing that people write: no class has such a name.
        names = [f"decoy \u200d{i}" for i in range(count)]
        for name, i in zip(space, place.tolist(), strict=True):
            names[i] = name
        return cls(LabelSpace(tuple(names)), place)

    def federation(self, federation: Federation) -> Federation:
        """The same sites, whose views know of the decoys that nobody has them."""
        server = federation.server
        return Federation(
            self.space,
            tuple(self._site(site) for site in federation.sites),
            None if server is None else self._site(server),
        )

    def parameters(self, network: Network, wide: Network, theta: Tensor) -> Tensor:
        """The parameters with the rows in their places; those of decoys are noise."""
        parts = network.layout.unflatten(theta)
        for name in HEAD:
            if name in parts:
                shape = (len(self.space), *parts[name].shape[1:])
                noise = torch.randn(shape, generator=stream(0, "decoys")).to(theta)
                parts[name] = noise.index_copy(0, self.place.to(theta.device), parts[name])
        return wide.layout.flatten(parts)

    def _site(self, site: Site) -> Site:
        truth = None if site.truth is None else self.place.to(site.truth.device)[site.truth]
        return replace(site, view=self._view(site.view), truth=truth)

    def _view(self, view: LabelView) -> LabelView:
        def spread(columns: Tensor, decoys: float = 0.0) -> Tensor:
            wide = columns.new_full((*columns.shape[:-1], len(self.space)), decoys)
            return wide.index_copy(-1, self.place, columns)

        prior = spread(view.prior, 1 / len(self.space))  # methods may take its logarithm
        return replace(
            view,
            space=self.space,
            codebook=spread(view.codebook),
            normaliser=spread(view.normaliser),
            prior=prior / prior.sum(),
        )


def _told(site: Site, recipe: Recipe, heard: _Heard, disguised: _Heard) -> Iterator[str]:
    """What a private site is told about classes that it does not hold."""
    where = f'site "{site.name}" keeps its classes private'
    for number, (plain, other) in enumerate(zip(heard.received, disguised.received, strict=True)):
        one, two = _contents(plain), _contents(other)
        if one.keys() != two.keys():
            yield f"{where}, but what it receives depends on the other classes: " + ", ".join(
                sorted(one.keys() ^ two.keys())
            )
            continue
        for name, value in one.items():
            if value.shape != two[name].shape:
                yield (
                    f"{where}, but it receives {name} of shape {tuple(value.shape)}, which would "
                    f"be {tuple(two[name].shape)} if there were {DECOYS} more classes."
                )
            elif number == 0 and not torch.equal(value, two[name]):
                yield (
                    f"{where}, but the values of {name} that it receives depend on the number or "
                    "the order of all classes."
                )
    others = set(site.view.space) - set(site.view.symbols)
    if named := sorted(others & set(_texts(recipe))):
        yield f'{where}, but the recipe, which all sites get, names the class "{named[0]}".'


def _per_sample(site: Site, heard: _Heard, fewer: _Heard) -> Iterator[str]:
    """What a site sends that has a value for each of its samples."""
    if len(site) < 2:
        return
    for one, two in zip(heard.sent, fewer.sent, strict=True):
        if one is None or two is None:
            continue
        less = _contents(two)
        for name, value in _contents(one).items():
            if name not in less or value.shape != less[name].shape:
                yield (
                    f'site "{site.name}" sends {name} of shape {tuple(value.shape)}, whose size '
                    "depends on how many samples it has: something about single samples."
                )


def _contents(message: Broadcast | Update) -> Tensors:
    """All tensors of a message, by name."""
    found: Tensors = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, Tensor):
            found[field.name] = value
        elif isinstance(value, dict):
            found |= {f"{field.name}.{name}": torch.as_tensor(v) for name, v in value.items()}
        elif isinstance(value, int | float):
            found[field.name] = torch.as_tensor(value)
    return found


def _texts(value: Any) -> Iterator[str]:
    """All texts in a nested value, but for choices among words of ours."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        hints = get_type_hints(type(value))
        for field in fields(value):
            if get_origin(hints[field.name]) is not Literal:
                yield from _texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def _received(site: Site, message: Broadcast) -> Iterator[Item]:
    yield Item("round", (), "the round's number")
    yield Item("lr", (), "the learning rate")
    count = len(site.view.classes)
    what = (
        f"the encoder, and the head rows of its {count} classes in its own order"
        if site.view.private
        else f"the model, with the head rows of all {len(site.view.space)} classes"
    )
    yield Item("theta", tuple(message.theta.shape), what)
    yield from _items("buffers", message.buffers, "a statistic of inputs or layers, not of classes")
    like = "of the federated optimiser, entry for entry like theta"
    yield from _items("aligned", message.aligned, like)
    yield from _items("shared", message.shared, "of the method")


def _sent(message: Update | None) -> Iterator[Item]:
    if message is None:
        return
    yield Item("samples", (), "how many samples it trained on")
    yield Item("delta", tuple(message.delta.shape), "the change of the parameters that it holds")
    yield from _items("buffers", message.buffers, "a statistic of inputs or layers, not of classes")
    like = "of the federated optimiser, entry for entry like theta"
    yield from _items("aligned", message.aligned, like)
    yield from _items("extras", message.extras, "of the method or the federated optimiser")
    yield from (Item(f"metrics.{name}", (), "for the history") for name in message.metrics)


def _items(field: str, tensors: Tensors, meaning: str) -> Iterator[Item]:
    for name, value in tensors.items():
        yield Item(f"{field}.{name}", tuple(value.shape), meaning)
