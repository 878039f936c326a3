"""Flower's grid, asking for replies more often, and not giving up on sites that come back.

`send_and_receive` of Flower 1.41 looks for replies every three seconds. This one sends and receives
through the same public methods, and looks several times a second.

Asked about a site that is not connected, Flower answers for it that it is gone, and forgets the
message. But a site whose machine was restarted is gone for some seconds only, and then takes the
message that waits for it. So nobody is asked about it until it is back, or was away for too long.
"""

import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

INTERVAL = 0.2
"""Seconds between two looks."""


class PromptGrid(Grid):
    """A grid that notices replies soon.

    Args:
      grid:    the one that Flower made.
      absence: seconds that a site has to come back before its message is given up.
    """

    def __init__(self, grid: Grid, absence: float) -> None:
        self._grid, self._absence = grid, absence

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for their replies, at most for some seconds."""
        sent = list(messages)
        if not sent:  # Flower's own refuses an empty list
            return []
        stored = set(self.push_messages(sent))
        facts = [message.metadata for message in sent if message.metadata.message_id in stored]
        waiting = {fact.message_id: fact.dst_node_id for fact in facts}
        now = time.monotonic()
        end = float("inf") if timeout is None else now + timeout
        replies: list[Message] = []
        away: dict[int, float] = {}  # node → since when it is not connected
        while waiting and now < end:
            here = set(self.get_node_ids())
            away = {node: away.get(node, now) for node in waiting.values() if node not in here}
            asked = [
                message
                for message, node in waiting.items()
                if node not in away or now - away[node] > self._absence
            ]
            for reply in self.pull_messages(asked) if asked else ():
                waiting.pop(reply.metadata.reply_to_message_id, None)
                replies.append(reply)
            if waiting:
                time.sleep(INTERVAL)
            now = time.monotonic()
        return replies

    def set_run(self, run: Run) -> None:
        """Which run this is."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Which run this is."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message; Flower deprecates this."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are connected, with the names that their keys were registered with."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to some messages that have arrived by now."""
        return self._grid.pull_messages(message_ids)
