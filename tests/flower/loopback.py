"""Flower's Grid over real ClientApps in this process; every message is serialised on its way, as over the wire."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

Tamper = Callable[[Message], Message | None]
"""What a network, or a hostile node, makes of a reply; None: it never arrives."""


Falsify = Callable[[Message], None]
"""What a lying server changes in a message before it goes out."""


def untouched(reply: Message) -> Message | None:
    """The reply as it is."""
    return reply


def truthful(message: Message) -> None:
    """The message as it is."""


@dataclass
class Node:
    """A node: an app, a node config, a key, and what becomes of the messages to it and of its replies.

    `received` lists the messages it got.
    """

    app: ClientApp
    config: Mapping[str, Any] = field(default_factory=dict)
    public_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    tamper: Tamper = untouched
    falsify: Falsify = truthful
    connected: bool = True
    received: list[Message] = field(default_factory=list)
    context: Context | None = None


def over_the_wire(content: RecordDict) -> RecordDict:
    """A record as it arrives."""
    arrived: RecordDict = recorddict_from_proto(recorddict_to_proto(content))
    return arrived


class LoopbackGrid(Grid):  # type: ignore[misc]
    """A federation of these nodes, by number."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self.nodes = dict(nodes)
        self._replies: dict[str, Message | None] = {}

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [number for number, node in self.nodes.items() if node.connected]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=n, public_key=self.nodes[n].public_key) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = []
        for message in messages:
            name = secrets.token_hex(8)
            message.metadata.__dict__["_message_id"] = name
            node = self.nodes[message.metadata.dst_node_id]
            self._replies[name] = self._deliver(node, message) if node.connected else None
            sent.append(name)
        return sent

    def _deliver(self, node: Node, message: Message) -> Message | None:
        metadata = message.metadata
        arrived = Message(over_the_wire(message.content), metadata.dst_node_id, metadata.message_type)
        arrived.metadata.__dict__["_message_id"] = metadata.message_id
        node.falsify(arrived)
        node.received.append(arrived)
        if node.context is None:
            node.context = Context(
                run_id=1,
                node_id=metadata.dst_node_id,
                node_config=dict(node.config),
                state=RecordDict(),
                run_config={},
            )
        try:
            reply = node.app(arrived, node.context)
            reply = Message(over_the_wire(reply.content), reply_to=arrived)
        except Exception as error:
            reply = Message(Error(code=2, reason=str(error)), reply_to=arrived)
        return node.tamper(reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [(name, self._replies.get(name)) for name in list(message_ids)]
        for name, reply in found:
            if reply is not None:
                self._replies[name] = None
        return [reply for _, reply in found if reply is not None]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
