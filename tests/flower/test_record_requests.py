"""One record and not the whole client: left out from the next round on, proved, and by the client's word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message

from disavow.domain import EventKind, RequestState, VerdictKind
from disavow.errors import ConfigError
from disavow.federation import Federation
from disavow.flower.client import ask_erasure
from disavow.flower.node_keys import NodeSigner
from disavow.flower.opened_requests import OpenedRequests
from disavow.flower.removal_words import RemovalWords
from disavow.ledger import Ledger, fsck
from disavow.proof.envelope import Envelope
from disavow.proof.notes import PublicKey
from disavow.proof.statement import Predicate, decode_statement
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from disavow.proof.word import SignedWord
from tests.flower.builders import rounds_received
from tests.flower.hospitals import Hospitals, record_learner
from tests.rounds.builders import MOMENT

pytestmark = pytest.mark.flower

ASKING = 3
RECORD = f"record-{ASKING}-1"
ROLLS_BACK = {"x": 3, "settings": {"draws": "seeded"}}
"""Every client is needed: whoever is withdrawn takes the run back to its first round."""


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    return Hospitals(tmp_path / "hospitals")


def placing_records(hospitals: Hospitals, *records: str, i: int = ASKING) -> Callable[[], None]:
    """Ask as `disavow erase --record` does beside the server app."""

    def place() -> None:
        with Ledger.open(hospitals.run, shared=True, keys=hospitals.folder / "keys") as ledger:
            ledger.place_record_requests({hospitals.client(i): list(records)}, at=MOMENT)

    return place


def proof_of(hospitals: Hospitals, number: int = 1, *, renewed: bool = False) -> bytes:
    if not renewed:
        return (hospitals.run / "proofs" / f"request-{number}.json").read_bytes()
    with Federation.open(hospitals.run, keys=hospitals.folder / "keys") as federation:
        [request] = federation.requests([number])
        return federation.proof(request).data


def word_in(proof: bytes) -> bytes | None:
    said = decode_statement(Envelope.decode(proof).statement).predicate
    assert isinstance(said, Predicate)
    assert said.records is not None
    return said.records.word


def word_file(hospitals: Hospitals, number: int = 1) -> bytes:
    [path] = hospitals.run.with_name("run.openings").glob(f"word-{number}-*.json")
    return path.read_bytes()


def test_only_its_own_node_is_told_and_from_the_next_round_on(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: placing_records(hospitals, RECORD, f"record-{ASKING}-2")})
    assert hospitals.exclusions_sent(ASKING) == [(1, 0), (2, 2), (3, 2)]
    for i in hospitals.keys:
        if i != ASKING:
            assert {count for _, count in hospitals.exclusions_sent(i)} == {0}
    [request] = hospitals.requests()
    assert (request.state, request.records) == (RequestState.ANSWERED, 2)


def test_rounds_are_retrained_by_the_same_node_without_the_record(hospitals: Hospitals) -> None:
    hospitals.train(3, {2: placing_records(hospitals, RECORD)}, **ROLLS_BACK)
    assert hospitals.exclusions_sent(ASKING) == [(1, 0), (2, 0), (1, 1), (2, 1), (3, 1)]
    [request] = hospitals.requests()
    assert request.verdict is not None
    assert request.verdict.kind is VerdictKind.ROLLBACK
    assert request.remark == ""


def test_the_model_is_that_of_a_run_in_which_the_client_never_held_the_record(
    hospitals: Hospitals, tmp_path: Path
) -> None:
    after = hospitals.train(3, {2: placing_records(hospitals, RECORD)}, **ROLLS_BACK)
    never = Hospitals(tmp_path / "never", keys=hospitals.keys)
    held = " ".join(f"record-{ASKING}-{j}" for j in (0, 2))
    never.grid.nodes[ASKING] = never.node(ASKING, records=held)
    # its rounds are retrained, too, because secret draws differ from attempt to attempt
    other = never.train(3, {2: placing_records(never, "never-held")}, **ROLLS_BACK)
    assert after.arrays.keys() == other.arrays.keys()
    for name, array in after.arrays.items():
        assert np.array_equal(array.numpy(), other.arrays[name].numpy()), name


def test_a_retrained_round_brings_the_word_before_the_proof_is_made(hospitals: Hospitals) -> None:
    hospitals.train(3, {2: placing_records(hospitals, RECORD)}, **ROLLS_BACK)
    word = SignedWord.decode(word_file(hospitals))
    assert word_in(proof_of(hospitals)) == word.digest


def test_a_deniable_request_has_the_word_in_its_renewed_proof(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: placing_records(hospitals, RECORD)})
    word = word_file(hospitals)
    assert word_in(proof_of(hospitals)) is None
    renewed = proof_of(hospitals, renewed=True)
    assert word_in(renewed) == SignedWord.decode(word).digest
    trusted = TrustedKey(PublicKey.parse((hospitals.kept(ASKING) / "server.pub").read_text().strip()))
    [opening] = hospitals.run.with_name("run.openings").glob("request-1-*.json")
    report = verify(VerificationInputs(renewed, [trusted], opening=opening.read_bytes(), word=word))
    assert all(result.passed is not False for result in report.results)
    [kept] = (hospitals.kept(ASKING) / "words").iterdir()
    assert kept.read_bytes() == word


def test_the_node_verifies_the_proof_and_goes_on(hospitals: Hospitals) -> None:
    hospitals.train(4, {1: placing_records(hospitals, RECORD), 2: placing_records(hospitals, f"record-{ASKING}-0")})
    for number in (1, 2):
        verified = hospitals.kept(ASKING) / f"request-{number}" / "verification.txt"
        assert verified.read_text().startswith("the proof holds"), verified.read_text()
        assert "left it out" not in verified.read_text()
    assert not (hospitals.kept(ASKING) / "complaints.txt").exists()
    assert hospitals.exclusions_sent(ASKING) == [(1, 0), (2, 1), (3, 2), (4, 2)]


def test_whoever_had_records_erased_may_leave_later(hospitals: Hospitals) -> None:
    def leave() -> None:
        with Ledger.open(hospitals.run, shared=True, keys=hospitals.folder / "keys") as ledger:
            ledger.place_requests([hospitals.client(ASKING)], at=MOMENT)

    hospitals.train(4, {1: placing_records(hospitals, RECORD), 3: leave})
    kept = hospitals.kept(ASKING)
    assert (kept / "request-1" / "verification.txt").read_text().startswith("the proof holds")
    assert (kept / "verification.txt").read_text().startswith("the proof holds"), (
        kept / "verification.txt"
    ).read_text()
    assert not (kept / "complaints.txt").exists(), (kept / "complaints.txt").read_text()
    assert rounds_received(hospitals.grid.nodes[ASKING]) == [1, 2, 3]


def test_with_retrained_rounds_too(hospitals: Hospitals) -> None:
    def leave() -> None:
        with Ledger.open(hospitals.run, shared=True, keys=hospitals.folder / "keys") as ledger:
            ledger.place_requests([hospitals.client(ASKING)], at=MOMENT)

    hospitals.train(4, {2: placing_records(hospitals, RECORD), 3: leave}, **ROLLS_BACK)
    kept = hospitals.kept(ASKING)
    for folder in (kept / "request-1", kept):
        verification = (folder / "verification.txt").read_text()
        assert verification.startswith("the proof holds"), verification
    assert not (kept / "complaints.txt").exists(), (kept / "complaints.txt").read_text()


def test_a_node_asks_for_one_of_its_records(hospitals: Hospitals) -> None:
    paths: list[Path] = []

    def ask() -> None:
        key = hospitals.keys[ASKING]
        paths.append(ask_erasure(hospitals.evidence(ASKING), records=[RECORD], node_key=key))

    hospitals.train(4, {1: ask})
    assert hospitals.exclusions_sent(ASKING) == [(1, 0), (2, 0), (3, 1), (4, 1)]
    [request] = hospitals.requests()
    assert (request.state, request.records) == (RequestState.ANSWERED, 1)
    answer = paths[0].with_name(f"{paths[0].stem}.answer.txt").read_text()
    assert answer.startswith("request 1: answered, "), answer
    assert (hospitals.kept(ASKING) / "request-1" / "opening.json").exists()


def test_a_record_that_is_erased_already_is_refused_to_the_node(hospitals: Hospitals) -> None:
    paths: list[Path] = []

    def ask() -> None:
        key = hospitals.keys[ASKING]
        paths.append(ask_erasure(hospitals.evidence(ASKING), records=[RECORD], node_key=key))

    hospitals.train(5, {1: ask, 3: ask})
    assert len(hospitals.requests()) == 1
    answer = paths[1].with_name(f"{paths[1].stem}.answer.txt").read_text()
    assert answer.startswith("refused: "), answer
    assert len(list(hospitals.run.with_name("run.openings").glob("asked-*"))) == 1


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def _logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


@pytest.mark.usefixtures("_logged")
def test_a_record_that_the_node_does_not_have_is_said_once(
    hospitals: Hospitals, caplog: pytest.LogCaptureFixture
) -> None:
    hospitals.train(4, {1: placing_records(hospitals, "misspelt", RECORD)})
    assert len([text for text in warnings_of(caplog) if "misspelt, or were removed" in text]) == 1
    [request] = hospitals.requests()
    [said] = [event for event in request.history if event.kind is EventKind.NOT_HELD]
    reason = "its node has none of 1 of 2 records: misspelt, or removed before"
    assert (said.actor, said.reason) == ("the node itself", reason)
    assert not any(finding.fault for finding in fsck(hospitals.run, keys=hospitals.folder / "keys"))


def test_it_is_noted_also_where_rounds_are_retrained_and_of_its_own_request_alone(hospitals: Hospitals) -> None:
    before_round = {2: placing_records(hospitals, RECORD), 3: placing_records(hospitals, "misspelt")}
    hospitals.train(4, before_round, **ROLLS_BACK)
    kinds = [[event.kind for event in request.history] for request in hospitals.requests()]
    assert [each.count(EventKind.NOT_HELD) for each in kinds] == [0, 1]


@pytest.mark.usefixtures("_logged")
def test_an_app_that_leaves_nothing_out_gives_no_word(
    hospitals: Hospitals, caplog: pytest.LogCaptureFixture
) -> None:
    hospitals.grid.nodes[ASKING] = hospitals.node(ASKING, record_learner(leaves_out=False))
    hospitals.train(3, {1: placing_records(hospitals, RECORD)})
    assert hospitals.exclusions_sent(ASKING)[-1] == (3, 1)
    assert list(hospitals.run.with_name("run.openings").glob("word-*")) == []


@pytest.mark.usefixtures("_logged")
def test_a_word_of_another_key_is_not_taken(hospitals: Hospitals, caplog: pytest.LogCaptureFixture) -> None:
    hospitals.grid.nodes[ASKING] = hospitals.node(ASKING, **{"node-key": str(hospitals.keys[5])})
    hospitals.train(3, {1: placing_records(hospitals, RECORD)})
    assert [text for text in warnings_of(caplog) if "signed with another key" in text]
    assert list(hospitals.run.with_name("run.openings").glob("word-*")) == []


@pytest.mark.parametrize("sent", [[b""], [b"{}"], ["text"], b"bytes", 7, [b"x" * 100_000]])
def test_what_is_no_word_is_left_out(hospitals: Hospitals, sent: Any) -> None:
    node = hospitals.grid.nodes[ASKING]

    def tamper(reply: Message) -> Message:
        if reply.has_content() and "arrays" in reply.content:
            reply.content["disavow"] = ConfigRecord({"words": sent, "unknown": sent, "evidence": True})
        return reply

    node.tamper = tamper
    hospitals.train(2, {1: placing_records(hospitals, RECORD)})
    assert rounds_received(node) == [1, 2]
    assert list(hospitals.run.with_name("run.openings").glob("word-*")) == []


def test_a_node_that_starts_again_is_the_same_client_and_gives_its_word_later(hospitals: Hospitals) -> None:
    del hospitals.grid.nodes[ASKING]
    hospitals.grid.nodes[30] = hospitals.node(ASKING, **{"node-key": str(hospitals.folder / "away")})
    hospitals.train(2, {1: placing_records(hospitals, RECORD)})
    assert list(hospitals.run.with_name("run.openings").glob("word-*")) == []
    del hospitals.grid.nodes[30]
    hospitals.grid.nodes[31] = hospitals.node(ASKING)  # another number, and now it has its key
    hospitals.train(3)
    assert hospitals.exclusions_sent(31) == [(3, 1)]
    word = SignedWord.decode(word_file(hospitals))
    assert word_in(proof_of(hospitals, renewed=True)) == word.digest
    with Ledger.open(hospitals.run, keys=hospitals.folder / "keys") as ledger:
        assert set(ledger.clients()) == {hospitals.client(i) for i in hospitals.keys}


def test_the_run_names_neither_the_client_nor_its_records(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: placing_records(hospitals, RECORD)})
    key = NodeSigner.load(hospitals.keys[ASKING]).key.public_key()
    numbers = key.public_numbers()
    for path in hospitals.run.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert RECORD.encode() not in data, path
            assert hospitals.client(ASKING).encode() not in data, path
            assert numbers.x.to_bytes(48, "big") not in data, path


def test_the_command_asks_without_looking_for_the_record(hospitals: Hospitals) -> None:
    hospitals.train(1)
    client = hospitals.client(ASKING)
    with Federation.open(hospitals.run, keys=hospitals.folder / "keys") as federation:
        foretold = federation.forecast(client, records=["anything"])
        assert foretold.forecast is not None
        answered = federation.erase(client, records=["anything"])
    assert answered.requests[client].state is RequestState.ANSWERED
    hospitals.train(2)
    assert hospitals.exclusions_sent(ASKING) == [(1, 0), (2, 1)]
    assert (hospitals.kept(ASKING) / "request-1" / "verification.txt").read_text().startswith("the proof holds")


def test_records_cannot_be_looked_for_on_all_nodes(hospitals: Hospitals) -> None:
    hospitals.train(1)
    with Federation.open(hospitals.run, keys=hospitals.folder / "keys") as federation, pytest.raises(ConfigError):
        federation.erase(everywhere=["patient-17"])
    assert hospitals.requests() == ()


def test_no_word_is_asked_for_while_a_request_waits(hospitals: Hospitals) -> None:
    """The record is not excluded yet: the client would give its word on what it does."""
    place = placing_records(hospitals, f"record-{ASKING}-2")
    hospitals.train(3, {1: placing_records(hospitals, RECORD)})
    with Federation.open(hospitals.run, keys=hospitals.folder / "keys") as federation:
        place()
        opened = OpenedRequests(federation.ledger, hospitals.run.with_name("run.openings"))
        wanted = RemovalWords(federation, opened, hospitals.run.with_name("run.openings"))
        assert federation.ledger.words_wanted(hospitals.client(ASKING))
        assert wanted.wanted(hospitals.client(ASKING)) == {}
