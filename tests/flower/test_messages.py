"""Messages and replies; and the proof reaches the leaver's node, even if it is not there at once."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict

from disavow.flower import messages
from disavow.flower.messages import exchange
from disavow.proof.keys import generate
from tests.flower.builders import initial_arrays, make_grid, placing, strategy
from tests.flower.loopback import Node, Tamper
from tests.flower.test_identity import unaware

pytestmark = pytest.mark.flower


@pytest.fixture(autouse=True)
def _briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signed run whose log can be read, and which does not wait a minute for who will not answer."""
    generate(tmp_path / "keys", name="fl.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(messages, "_SECONDS", 0.05)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


def failing(times: int, *, silent: bool) -> Tamper:
    """A node of which the first answers to a proof get lost, or are errors of the process that should answer."""
    left = times

    def tamper(reply: Message) -> Message | None:
        nonlocal left
        if not reply.has_content() or "verified" not in reply.content.get("disavow", {}) or left == 0:
            return reply
        left -= 1
        if silent:
            return None
        broken = Message(Error(code=8, reason="the process has died"), reply_to=reply)
        broken.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        return broken

    return tamper


def proofs_sent(run: Path, rounds: int, tamper: Tamper) -> int:
    """How often the node of a client that leaves after round 1 gets its proof in so many rounds."""
    grid = make_grid(8)
    grid.nodes[5].tamper = tamper
    strategy(run, identity="auto").start(
        grid=grid,
        initial_arrays=initial_arrays(),
        num_rounds=rounds,
        timeout=2.0,
        evaluate_fn=placing(run, {1: ["c5"]}),
    )
    return len(sent_to(grid.nodes[5]))


def sent_to(node: Node) -> list[Message]:
    return [message for message in node.received if "proof" in message.content.get("disavow", {})]


@pytest.mark.parametrize("silent", [True, False])
def test_a_proof_that_was_not_answered_is_sent_again_until_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, silent: bool
) -> None:
    assert proofs_sent(tmp_path / "run", 6, failing(2, silent=silent)) == 3
    assert "try 2 of 5, the next follows" in caplog.text
    assert caplog.text.count("the client of request 1 has verified its proof") == 1


def test_but_not_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert proofs_sent(tmp_path / "run", 8, failing(100, silent=True)) == 5
    assert caplog.text.count("try 5 of 5, the last until the server app is started again") == 1


def test_an_app_that_takes_no_proofs_is_not_asked_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid, run = make_grid(8, unaware()), tmp_path / "run"
    strategy(run, identity="auto").start(
        grid=grid,
        initial_arrays=initial_arrays(),
        num_rounds=4,
        timeout=2.0,
        evaluate_fn=placing(run, {1: ["node-5"]}),
    )
    assert len(sent_to(grid.nodes[5])) == 1
    assert "its app takes none" in caplog.text


# -- messages and replies -----------------------------------------------------------------------------------


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
