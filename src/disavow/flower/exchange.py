"""Messages to nodes and their replies: who does not answer in time is left out, and late replies are never read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

_SHORTEST_PAUSE, _LONGEST_PAUSE, _PART = 0.02, 1.0, 0.02
"""Seconds between two looks: this part of the time waited so far, so that a round is late by no more than that."""

_TOGETHER = 64
"""Replies that are asked for at a time."""


def exchange(grid: Grid, messages: Sequence[Message], *, timeout: float) -> Mapping[int, Message]:
    """Send messages, one a node, and wait for the replies; by node.

    A reply may be an error, or too late: then the SuperLink drops it, because the message lives no longer than the
    wait. Flower's own `send_and_receive` looks every three seconds; this looks often at first, and then less.
    """
    replies: dict[int, Message] = {}
    if not messages:
        return replies
    begun = time.monotonic()
    sent = set(grid.push_messages(messages))  # which gives each message its id; those that were refused are not in
    nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages if m.metadata.message_id in sent}
    while nodes:
        waiting = list(nodes)
        for start in range(0, len(waiting), _TOGETHER):
            for reply in grid.pull_messages(waiting[start : start + _TOGETHER]):
                node = nodes.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
        waited = time.monotonic() - begun
        if not nodes or waited >= timeout:
            break
        time.sleep(min(timeout - waited, max(_SHORTEST_PAUSE, min(_LONGEST_PAUSE, _PART * waited))))
    return replies
