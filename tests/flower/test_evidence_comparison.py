"""A node compares the updates it returned with its receipts and its opening, and complains of what is withheld."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord

from disavow.errors import RoundRefused
from disavow.flower import messages
from disavow.flower.protocol import ATTEMPT, RECEIPT, ROUND, RUN
from disavow.ledger import Ledger
from disavow.proof.keys import generate
from tests.flower.builders import initial_arrays, make_grid, moved, placing, strategy
from tests.flower.loopback import Falsify, LoopbackGrid, Tamper

pytestmark = pytest.mark.flower


@pytest.fixture(autouse=True)
def _signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signed run, which does not wait a minute for who will not answer."""
    generate(tmp_path / "keys", name="fl.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(messages, "_SECONDS", 0.05)


@pytest.fixture
def grid(tmp_path: Path) -> LoopbackGrid:
    """Nine clients that keep their evidence in folders."""
    made = make_grid(9)
    for node in made.nodes.values():
        node.config = {**node.config, "evidence-dir": str(tmp_path / "evidence" / node.config["client-id"])}
    return made


def start(grid: LoopbackGrid, tmp_path: Path, rounds: int, **more: Any) -> None:
    """Train so many rounds; in a simulation, whose nodes are handed their openings."""
    arguments = {key: more.pop(key) for key in ("evaluate_fn",) if key in more}
    strategy(tmp_path / "run", identity="auto", **more).start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=0.2, **arguments
    )


def kept(tmp_path: Path, client: str) -> Path:
    [found] = (tmp_path / "evidence" / client).iterdir()
    return found


def complaints(tmp_path: Path, client: str) -> list[str]:
    file = kept(tmp_path, client) / "complaints.txt"
    return file.read_text().splitlines() if file.exists() else []


def rounds(tmp_path: Path, client: str) -> list[tuple[str, str]]:
    """What a node lists: each round, and what it has for it."""
    lines = (kept(tmp_path, client) / "rounds.txt").read_text().splitlines()
    return [(line.partition(": ")[0], line.rpartition("; ")[2]) for line in lines]


def in_round(number: int, tamper: Tamper) -> Tamper:
    """What happens to the reply of one round alone, the first time."""
    seen = 0

    def only(reply: Message) -> Message | None:
        nonlocal seen
        if not reply.has_content() or "arrays" not in reply.content:
            return reply
        seen += 1
        return tamper(reply) if seen == number else reply

    return only


def another_update(reply: Message) -> Message | None:
    reply.content["arrays"] = moved(reply.content["arrays"], lambda shape: np.full(shape, 0.05))
    return reply


def lost(reply: Message) -> Message | None:
    return None


def without_receipts(message: Message) -> None:
    for record in message.content.config_records.values():
        if RECEIPT in record:
            del record[RECEIPT]


# -- an honest server ----------------------------------------------------------------------------------------------


def leaving(tmp_path: Path, number: int, count: int) -> Callable[[int, ArrayRecord], MetricRecord]:
    """An `evaluate_fn` after which so many of a cluster of the first round ask to be forgotten; once."""
    placed = False

    def evaluate(at: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal placed
        if at == number and not placed:
            placed = True
            with Ledger.open(tmp_path / "run") as ledger:
                cluster = min(ledger.membership(1), key=len)
            placing(tmp_path / "run", {at: list(cluster[:count])})(at, arrays)
        return MetricRecord({"accuracy": 0.5, "loss": 1.0})

    return evaluate


@pytest.mark.parametrize("verdict", ["deniable", "rollback"])
def test_an_honest_server_gives_no_cause_for_complaint(grid: LoopbackGrid, tmp_path: Path, verdict: str) -> None:
    start(grid, tmp_path, 4, evaluate_fn=leaving(tmp_path, 2, 1 if verdict == "deniable" else 2))
    with Ledger.open(tmp_path / "run") as ledger:
        stayed = ledger.clients()
        assert {request.verdict and request.verdict.kind.value for request in ledger.requests()} == {verdict}
    left = {f"c{i}" for i in range(1, 10)} - set(stayed)
    for client in (*stayed, *left):
        assert complaints(tmp_path, client) == [], client
        assert {state for _, state in rounds(tmp_path, client)} == {"receipt kept"}, client
    for client in left:  # the last of its rounds too, though it is never asked again
        assert [name for name, _ in rounds(tmp_path, client)] == ["round 1", "round 2"]
        assert (kept(tmp_path, client) / "verification.txt").read_text().startswith("the proof holds\n")


def test_nor_does_one_that_is_started_again_or_asks_twice(grid: LoopbackGrid, tmp_path: Path) -> None:
    for number in range(3, 10):
        grid.nodes[number].tamper = in_round(2, lost)
    with pytest.raises(RoundRefused):
        start(grid, tmp_path, 2)  # in round 2 there are two replies, fewer than k
    for node in grid.nodes.values():
        node.context = None  # Flower's own run is another one now
    start(grid, tmp_path, 3)
    for client in ("c1", "c9"):
        assert complaints(tmp_path, client) == []
        assert rounds(tmp_path, client) == [(f"round {n}", "receipt kept") for n in (1, 2, 3)]


# -- a lying one ---------------------------------------------------------------------------------------------------


def test_a_receipt_for_another_update_is_kept_apart_with_a_complaint(
    grid: LoopbackGrid, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid.nodes[1].tamper = in_round(2, another_update)
    start(grid, tmp_path, 3)
    [complaint] = complaints(tmp_path, "c1")
    assert "round 2" in complaint
    assert "another update" in complaint
    assert complaint in caplog.text
    states = [state for _, state in rounds(tmp_path, "c1")]
    assert states == ["receipt kept", "receipt for another update", "receipt kept"]
    [disputed] = (kept(tmp_path, "c1") / "disputed").iterdir()
    assert disputed.name.startswith("round-2-attempt-1-leaf-")
    assert complaints(tmp_path, "c2") == []


def test_receipts_that_are_withheld_are_named_by_their_round(grid: LoopbackGrid, tmp_path: Path) -> None:
    grid.nodes[1].falsify = without_receipts
    start(grid, tmp_path, 3)
    assert rounds(tmp_path, "c1") == [(f"round {n}", "no receipt") for n in (1, 2, 3)]
    assert [line.partition(":")[0] for line in complaints(tmp_path, "c1")] == [
        f"no receipt for round {n}" for n in (1, 2, 3)
    ]
    assert all("withholds" in line for line in complaints(tmp_path, "c1"))


def test_an_update_that_never_arrived_looks_the_same_to_the_node_and_is_said_to(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    grid.nodes[1].tamper = in_round(2, lost)
    start(grid, tmp_path, 3)
    [complaint] = complaints(tmp_path, "c1")
    assert complaint.startswith("no receipt for round 2: ")
    assert "left" in complaint
    assert "withholds" in complaint
    assert rounds(tmp_path, "c1")[1] == ("round 2", "no receipt")


def test_a_round_that_was_undone_before_its_receipt_came_is_said_to_be(grid: LoopbackGrid, tmp_path: Path) -> None:
    def falsify(message: Message) -> None:
        for record in message.content.config_records.values():
            if record.get(ROUND) == 3:  # with the receipt of round 2, before that is undone
                for key in list(record):
                    del record[key]

    for node in grid.nodes.values():
        node.falsify = falsify
    start(grid, tmp_path, 2, evaluate_fn=leaving(tmp_path, 2, 2))
    with Ledger.open(tmp_path / "run") as ledger:
        stayed = ledger.clients()[0]
    assert ("round 2", "no receipt") in rounds(tmp_path, stayed)
    assert any(
        line.startswith("no receipt for round 2: ") and "went back to round" in line
        for line in complaints(tmp_path, stayed)
    )


def says(**changed: int | None) -> Falsify:
    """A server that says another round than it is at, or none, whenever it asks for training."""

    def falsify(message: Message) -> None:
        if message.metadata.message_type == "train":
            for record in message.content.config_records.values():
                for key, value in changed.items():
                    if value is None:
                        del record[f"disavow-{key}"]
                    else:
                        record[f"disavow-{key}"] = value

    return falsify


@pytest.mark.parametrize("changed", [{"round": None}, {"attempt": None}, {"round": 0}, {"attempt": -1}])
def test_a_server_that_does_not_say_which_round_it_is_is_complained_of(
    grid: LoopbackGrid, tmp_path: Path, changed: dict[str, int | None]
) -> None:
    assert (ROUND, ATTEMPT) == ("disavow-round", "disavow-attempt")
    grid.nodes[1].falsify = says(**changed)
    start(grid, tmp_path, 1)
    assert "which round" in complaints(tmp_path, "c1")[0]


def test_a_server_that_never_says_that_it_has_gone_on_is_seen_by_its_models(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    """It withholds every receipt, and names the same round for ever, whose receipt is never overdue."""

    def falsify(message: Message) -> None:
        without_receipts(message)
        says(round=1, attempt=1)(message)

    grid.nodes[1].falsify = falsify
    start(grid, tmp_path, 3)
    assert any("round 1 again, from another model" in line for line in complaints(tmp_path, "c1"))


def test_a_server_that_gives_its_run_a_new_name_is_complained_of(grid: LoopbackGrid, tmp_path: Path) -> None:
    """Under each name the node would have returned one update, whose receipt is never overdue."""
    names = iter(f"{number:032x}" for number in range(1, 100))

    def falsify(message: Message) -> None:
        without_receipts(message)
        for record in message.content.config_records.values():
            if RUN in record:
                record[RUN] = next(names)

    grid.nodes[1].falsify = falsify
    start(grid, tmp_path, 2)
    first = tmp_path / "evidence" / "c1" / f"{1:032x}"
    assert f"{2:032x}" in (first / "complaints.txt").read_text()


def test_a_receipt_for_an_own_update_of_another_round_is_disputed(grid: LoopbackGrid, tmp_path: Path) -> None:
    grid.nodes[1].falsify = says(round=7)
    start(grid, tmp_path, 1)
    [complaint] = complaints(tmp_path, "c1")[:1]
    assert "round 1" in complaint
    assert "noted none" in complaint


def test_a_receipt_for_a_round_in_which_a_node_returned_nothing_is_disputed(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    start(grid, tmp_path, 1)
    [noted] = (kept(tmp_path, "c1") / "updates").iterdir()
    noted.unlink()
    [receipt] = (kept(tmp_path, "c1") / "receipts").iterdir()
    receipt.unlink()
    start(grid, tmp_path, 2)
    [complaint] = complaints(tmp_path, "c1")
    assert "round 1" in complaint
    assert "noted none" in complaint


def test_a_node_that_begins_to_keep_evidence_late_believes_the_receipts_from_before(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    late = grid.nodes[1].config
    grid.nodes[1].config = {"client-id": "c1"}
    start(grid, tmp_path, 2)
    grid.nodes[1].config, grid.nodes[1].context = late, None
    start(grid, tmp_path, 4)
    assert complaints(tmp_path, "c1") == []
    assert rounds(tmp_path, "c1") == [
        ("round 2", "receipt kept, from before this node noted its updates"),
        ("round 3", "receipt kept"),
        ("round 4", "receipt kept"),
    ]


def test_a_server_that_signs_nothing_is_complained_of_once(
    grid: LoopbackGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "none"))
    start(grid, tmp_path, 3)
    [complaint] = complaints(tmp_path, "c1")
    assert "signs nothing" in complaint
    assert rounds(tmp_path, "c1") == [(f"round {n}", "no receipt") for n in (1, 2, 3)]


# -- the opening ---------------------------------------------------------------------------------------------------


def answers(grid: LoopbackGrid, number: int) -> Callable[[], list[dict[str, Any]]]:
    """What a node says of the proofs that are handed to it."""
    said: list[dict[str, Any]] = []
    tamper = grid.nodes[number].tamper

    def listening(reply: Message) -> Message | None:
        record = reply.content.get("disavow", {}) if reply.has_content() else {}
        if "verified" in record:
            said.append(dict(record))
        return tamper(reply)

    grid.nodes[number].tamper = listening
    return lambda: said


def test_an_opening_of_another_update_is_not_accepted(grid: LoopbackGrid, tmp_path: Path) -> None:
    grid.nodes[5].tamper = in_round(2, another_update)
    said = answers(grid, 5)
    start(grid, tmp_path, 3, evaluate_fn=placing(tmp_path / "run", {2: ["c5"]}))
    [answer] = said()
    assert answer["verified"] is False
    assert "round 2" in answer["reason"]
    assert "another update" in answer["reason"]
    assert "round 2" in (kept(tmp_path, "c5") / "verification.txt").read_text()
    assert any("opening" in line and "round 2" in line for line in complaints(tmp_path, "c5"))


def test_an_opening_without_a_round_is_accepted_with_a_complaint_that_names_it(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    grid.nodes[5].tamper = in_round(2, lost)
    said = answers(grid, 5)
    start(grid, tmp_path, 4, evaluate_fn=placing(tmp_path / "run", {3: ["c5"]}))
    [answer] = said()
    assert answer["verified"] is True
    assert "round 2" in answer["reason"]
    assert "round 1" not in answer["reason"]
    assert "round 2" in (kept(tmp_path, "c5") / "verification.txt").read_text().splitlines()[1]
    assert any("proof" in line and "round 2" in line for line in complaints(tmp_path, "c5"))


def test_an_opening_with_a_round_in_which_a_node_returned_nothing_is_not_accepted(
    grid: LoopbackGrid, tmp_path: Path
) -> None:
    said = answers(grid, 5)
    start(grid, tmp_path, 2)
    for folder in ("updates", "receipts"):
        for file in (kept(tmp_path, "c5") / folder).glob("round-2-*"):
            file.unlink()
    start(grid, tmp_path, 3, evaluate_fn=placing(tmp_path / "run", {3: ["c5"]}))
    [answer] = said()
    assert answer["verified"] is False
    assert "round 2" in answer["reason"]


def test_rounds_that_were_undone_must_be_named_as_such_or_are_missed(grid: LoopbackGrid, tmp_path: Path) -> None:
    """The leavers' first two rounds were undone; of one of them a reply was lost, so it is in neither list."""
    start(grid, tmp_path, 1)
    with Ledger.open(tmp_path / "run") as ledger:
        cluster = min(ledger.membership(1), key=len)
    leaver = int(cluster[0].removeprefix("c"))
    grid.nodes[leaver].tamper = in_round(1, lost)
    said = answers(grid, leaver)
    start(grid, tmp_path, 3, evaluate_fn=placing(tmp_path / "run", {3: list(cluster[:2])}))
    [answer] = said()
    assert answer["verified"] is True
    assert "round 2" in answer["reason"]
    assert "round 1" not in answer["reason"]
    assert "round 3" not in answer["reason"]
