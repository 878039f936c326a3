"""Flower's grid within one process: the ClientApp answers when it is asked.

Every message travels as the bytes that Flower would send: it is taken apart into objects and put
together again, and the bytes are kept for whoever wants to look at them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from potluck.flower.client_app import client_app

RUN_ID = 7


@dataclass
class Node:
    """A site of the grid: its folder, and what passed between it and the server."""

    name: str
    folder: Path
    forget: bool = False
    received: list[bytes] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)


Tamper = Callable[[str, Message, Message], Message | None]
"""(site, message, reply) → the reply that arrives; None for none."""


class InProcessGrid(Grid):
    """A grid whose nodes answer at once."""

    def __init__(self, folders: dict[str, Path], tamper: Tamper | None = None) -> None:
        self.nodes = {i: Node(name, folder) for i, (name, folder) in enumerate(folders.items(), 2)}
        self.tamper = tamper or (lambda site, message, reply: reply)
        self.away: set[str] = set()
        self._replies: dict[str, Message] = {}
        TaskIdentity.node_id, TaskIdentity.run_id, TaskIdentity.task_id = 1, RUN_ID, 1

    def set_run(self, run):
        pass

    # Flower's `Grid` asks for these two; a strategy that makes its own messages calls neither.
    run = None
    create_message = None

    def get_node_ids(self) -> Iterable[int]:
        return [i for i, node in self.nodes.items() if node.name not in self.away]

    def get_nodes(self):
        return [NodeInfo(node_id=i, name=self.nodes[i].name) for i in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            ids.append(message.object_id)
            node = self.nodes[message.metadata.dst_node_id]
            arrived = _carried(message, node.received)
            config = {"folder": str(node.folder), "forget": node.forget}
            context = Context(
                run_id=RUN_ID,
                node_id=message.metadata.dst_node_id,
                node_config=config,
                state=RecordDict(),
                run_config={},
            )
            try:
                reply = client_app(arrived, context)
            except Exception as error:  # what Flower's own runtime does
                reply = Message(Error(code=1, reason=str(error)), reply_to=arrived)
            reply = self.tamper(node.name, arrived, reply)
            if reply is not None:
                self._replies[message.object_id] = (
                    reply if reply.has_error() else _carried(reply, node.sent)
                )
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(list(messages)))


def _carried(message: Message, wire: list[bytes]) -> Message:
    """The message as it arrives at the other end."""
    objects = {key: value.deflate() for key, value in get_all_nested_objects(message).items()}
    wire.extend(objects.values())
    arrived = inflate_object_from_contents(message.object_id, objects)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived
