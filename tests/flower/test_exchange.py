"""Messages and replies."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

from disavow.flower.exchange import exchange
from tests.flower.builders import make_grid

pytestmark = pytest.mark.flower


def ask(node: int) -> Message:
    return Message(RecordDict({"disavow": ConfigRecord({"ask": "client-id"})}), node, "query.disavow")


def test_replies_are_known_by_their_node_and_who_does_not_answer_is_left_out() -> None:
    grid = make_grid(5)
    grid.nodes[2].tamper = lambda reply: None
    grid.nodes[4].connected = False
    replies = exchange(grid, [ask(node) for node in grid.nodes], timeout=0.2)
    assert {node: reply.content["disavow"]["client-id"] for node, reply in replies.items()} == {
        1: "c1",
        3: "c3",
        5: "c5",
    }


def test_nobody_is_waited_for_when_all_have_answered() -> None:
    begun = time.monotonic()
    assert len(exchange(make_grid(3), [ask(node) for node in (1, 2, 3)], timeout=60.0)) == 3
    assert time.monotonic() - begun < 30


def test_without_messages_there_is_nothing_to_wait_for() -> None:
    assert exchange(make_grid(1), [], timeout=60.0) == {}


def test_more_messages_than_are_asked_for_at_a_time() -> None:
    grid = make_grid(150)
    assert len(exchange(grid, [ask(node) for node in grid.nodes], timeout=5.0)) == 150
