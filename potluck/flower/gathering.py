"""The handshake: who is there, what each site brings, and whether it fits together.

Every node that connects is asked to declare itself. Training starts when enough sites have, and
their declarations agree with the study. A site whose declaration does not is told why, and is
asked again now and then: somebody may have mended it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from potluck.errors import PotluckError
from potluck.flower.declaration import Declaration, known_site
from potluck.flower.grid import INTERVAL
from potluck.flower.wire import pack, unpack
from potluck.labels import LabelSpace
from potluck.messages import Tensors

Note = Callable[..., None]
"""Tells whoever watches: note(what=…, site=…, …)."""

AGAIN = 15.0
"""Seconds after which a site with a problem is asked again."""

PATIENCE = 120.0
"""Seconds that a site has to declare itself before it is asked again."""


@dataclass(frozen=True, eq=False)
class Present:
    """A site that declared itself.

    Args:
      node:     Flower's number of it.
      declared: what it said.
      sums:     sums of its inputs, where the study standardises them.
    """

    node: int
    declared: Declaration
    sums: Tensors


@dataclass(eq=False)
class Gathering:
    """Waits for sites.

    Args:
      grid:        where they connect.
      space:       the target classes.
      expected:    who may take part, by name.
      keyed:       whether nodes have names that belong to their keys; on Flower's simulation
                   runtime they have neither, and are taken at their word.
      standardise: whether sums of inputs are needed.
      note:        tells whoever watches.
      admitted:    what sites declared when the run was started, where it is resumed.
    """

    grid: Grid
    space: LabelSpace
    expected: Sequence[str]
    keyed: bool
    standardise: bool
    note: Note
    admitted: Mapping[str, Declaration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.present: dict[str, Present] = {}
        self._asked: dict[int, tuple[str, float]] = {}  # node → message, when to ask again
        self._names: dict[int, str] = {}

    def wait(self, enough: int) -> dict[str, Present]:
        """Wait until so many sites are there, and give them by name."""
        told: set[str] = set()
        while len(self.present) < enough:
            self.look()
            missing = set(self.expected) - self.present.keys()
            if missing != told:
                told = missing
                self.note(what="waiting", sites=sorted(missing))
            time.sleep(INTERVAL)
        return self.present

    def look(self) -> None:
        """Ask those who are new, and hear those who answered."""
        self._ask()
        waiting = {message: node for node, (message, _) in self._asked.items() if message}
        if not waiting:
            return
        for reply in self.grid.pull_messages(list(waiting)):
            node = waiting.get(reply.metadata.reply_to_message_id)
            if node is None:
                continue
            self._asked[node] = ("", time.monotonic() + AGAIN)
            if reply.has_error():
                self._problem(node, f"failed: {reply.error.reason}")
                continue
            try:
                presence = self._heard(node, reply)
            except PotluckError as error:
                self._problem(node, str(error))
                continue
            name = presence.declared.name
            self.present[name] = presence
            self.note(what="site", site=name, brings=presence.declared.brings())

    def _ask(self) -> None:
        now = time.monotonic()
        here = {presence.node for presence in self.present.values()}
        messages = []
        for node in self.grid.get_nodes():
            self._names[node.node_id] = node.name
            if node.node_id in here or now < self._asked.get(node.node_id, ("", 0.0))[1]:
                continue
            if node.node_id not in self._asked:
                self.note(what="connected", site=node.name)
            content = pack({"standardise": self.standardise})
            messages.append(
                Message(content=content, dst_node_id=node.node_id, message_type="query")
            )
        if messages:
            sent = self.grid.push_messages(messages)
            for message, message_id in zip(messages, sent, strict=True):
                self._asked[message.metadata.dst_node_id] = (message_id or "", now + PATIENCE)

    def _heard(self, node: int, reply: Message) -> Present:
        facts, (sums,) = unpack(reply.content, ["sums"])
        if (problem := facts.get("problem")) is not None:
            raise PotluckError(str(problem))
        declared = Declaration.read(_table(facts.get("declared")))
        registered = self._names[node]
        if self.keyed and declared.name != registered:
            raise PotluckError(
                f'its file has the name "{declared.name}", but its key belongs to "{registered}"; '
                "each site needs its own key, and the name in its file."
            )
        if declared.name not in self.expected:
            raise PotluckError("the study does not list it (network.sites)")
        known_site(declared, self.space)
        before = self.admitted.get(declared.name)
        if before is not None and before != declared:
            raise PotluckError(
                "its data or its view is not what it was when the run was started; put it back, "
                "or start a new run"
            )
        if self.admitted and before is None:
            raise PotluckError(
                "it was not there when the run was started; it must wait for the next"
            )
        return Present(node, declared, sums)

    def _problem(self, node: int, why: str) -> None:
        self.note(what="problem", site=self._names.get(node, ""), why=why)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PotluckError("the site did not declare itself")
    return value
