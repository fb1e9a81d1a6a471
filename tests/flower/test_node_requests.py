"""Requests that nodes make themselves: signed, placed once, answered, and never for anybody else."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord

from disavow.domain import EventKind, RequestState
from disavow.errors import ConfigError
from disavow.flower.client import ask_erasure
from disavow.flower.node_keys import NodeSigner
from disavow.flower.node_requests import SignedRequest
from disavow.ledger import Ledger
from tests.flower.builders import rounds_received, strategy
from tests.flower.hospitals import Hospitals
from tests.rounds.builders import MOMENT

pytestmark = pytest.mark.flower

LEAVER = 3


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    return Hospitals(tmp_path)


def answer_to(path: Path) -> str:
    return path.with_name(f"{path.stem}.answer.txt").read_text()


def test_a_node_asks_that_its_client_be_forgotten_and_is_answered(hospitals: Hospitals) -> None:
    paths: list[Path] = []

    def ask() -> None:
        paths.append(ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER]))

    hospitals.train(4, {1: ask})
    [request] = hospitals.requests()
    assert request.state is RequestState.ANSWERED
    # the reply of round 2 brought it
    assert rounds_received(hospitals.grid.nodes[LEAVER])[:2] == [1, 2]
    assert 4 not in rounds_received(hospitals.grid.nodes[LEAVER])
    assert (hospitals.kept(LEAVER) / "verification.txt").read_text().startswith("the proof holds")
    assert answer_to(paths[0]).startswith("request 1: answered, ")
    assert not (hospitals.kept(LEAVER) / "complaints.txt").exists()


def test_what_was_asked_is_kept_as_evidence_beside_the_openings(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER])})
    [kept] = hospitals.run.with_name("run.openings").glob("asked-1-*.json")
    signed = SignedRequest.decode(kept.read_bytes())
    signed.refuse_unsigned(hospitals.client(LEAVER))
    assert signed.request.unit == "client"


def test_it_may_ask_with_the_very_last_reply(hospitals: Hospitals) -> None:
    hospitals.train(2, {2: lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER])})
    assert [request.state for request in hospitals.requests()] == [RequestState.ANSWERED]


def refusal(hospitals: Hospitals, make: Callable[[], Path], **more: Any) -> str:
    """What a node hears of a request that is refused."""
    made: list[Path] = []
    hospitals.train(4, {1: lambda: made.append(make())}, **more)
    assert hospitals.requests() == ()
    assert len(rounds_received(hospitals.grid.nodes[LEAVER])) == 4
    return answer_to(made[0])


def test_an_unsigned_request_is_refused(hospitals: Hospitals) -> None:
    assert "not signed" in refusal(hospitals, lambda: ask_erasure(hospitals.evidence(LEAVER)))


def test_unless_the_strategy_says_otherwise(hospitals: Hospitals) -> None:
    ask = lambda: ask_erasure(hospitals.evidence(LEAVER))  # noqa: E731
    hospitals.train(3, {1: ask}, identity="client-id", accept_node_requests="unsigned")
    assert [request.state for request in hospitals.requests()] == [RequestState.ANSWERED]


def test_a_signature_proves_nothing_of_a_client_that_is_not_known_by_its_key(hospitals: Hospitals) -> None:
    def ask() -> Path:
        path = ask_erasure(hospitals.evidence(LEAVER))
        unsigned = SignedRequest.decode(path.read_bytes())
        path.write_bytes(SignedRequest.make(unsigned.request, NodeSigner.load(hospitals.keys[LEAVER])).encode())
        return path

    assert "another key" in refusal(hospitals, ask, identity="client-id")


def test_none_is_taken_where_none_is_wanted(hospitals: Hospitals) -> None:
    ask = lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER])  # noqa: E731
    assert "takes no requests" in refusal(hospitals, ask, accept_node_requests="never")


def test_a_node_cannot_send_what_another_has_signed(hospitals: Hospitals) -> None:
    def steal() -> Path:
        path = ask_erasure(hospitals.evidence(5), node_key=hospitals.keys[5])
        (hospitals.kept(LEAVER) / "requests").mkdir()
        return Path(shutil.move(path, hospitals.kept(LEAVER) / "requests" / path.name))

    assert "another client" in refusal(hospitals, steal)


def test_nor_sign_for_another(hospitals: Hospitals) -> None:
    def forge() -> Path:
        path = ask_erasure(hospitals.evidence(LEAVER))
        request = SignedRequest.decode(path.read_bytes()).request
        path.write_bytes(SignedRequest.make(request, NodeSigner.load(hospitals.keys[5])).encode())
        return path

    assert "another key" in refusal(hospitals, forge)
    with pytest.raises(ConfigError):
        ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[5])


def test_nor_change_what_was_signed(hospitals: Hospitals) -> None:
    def change() -> Path:
        path = ask_erasure(hospitals.evidence(LEAVER), records=["x"], node_key=hospitals.keys[LEAVER])
        signed = SignedRequest.decode(path.read_bytes())
        whole = SignedRequest.decode(ask_erasure(hospitals.evidence(LEAVER)).read_bytes())
        for other in path.parent.iterdir():
            other.unlink()
        forged = SignedRequest(payload=whole.payload, public_key=signed.public_key, signature=signed.signature)
        path = path.with_name(f"{whole.request.nonce.hex()}.json")
        path.write_bytes(forged.encode())
        return path

    assert "signature does not hold" in refusal(hospitals, change)


@pytest.mark.parametrize("age", [timedelta(days=40), -timedelta(days=2)])
def test_an_old_request_is_refused(hospitals: Hospitals, age: timedelta) -> None:
    at = datetime.now(UTC) - age
    ask = lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER], at=at)  # noqa: E731
    assert "ask again" in refusal(hospitals, ask)


def test_a_request_of_another_run_is_refused(hospitals: Hospitals) -> None:
    def ask() -> Path:
        here = hospitals.kept(LEAVER)
        there = here.with_name("0" * 32)
        shutil.copytree(here, there)
        path = ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER], run=there.name)
        (here / "requests").mkdir()
        moved = shutil.move(path, here / "requests" / path.name)
        shutil.rmtree(there)
        return Path(moved)

    assert "another run" in refusal(hospitals, ask)


@pytest.mark.parametrize("sent", [[b""], [b"{}"], [b"x" * 100] * 40, b"bytes", ["text"], 7])
def test_what_is_no_request_is_left_out(hospitals: Hospitals, sent: Any) -> None:
    node = hospitals.grid.nodes[LEAVER]

    def tamper(reply: Any) -> Any:
        if reply.has_content() and "arrays" in reply.content:
            reply.content["disavow"] = ConfigRecord({"requests": sent})
        return reply

    node.tamper = tamper
    hospitals.train(2)
    assert hospitals.requests() == ()
    assert rounds_received(node) == [1, 2]


def test_a_request_that_comes_again_counts_once(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER])})
    for answered in (hospitals.kept(LEAVER) / "requests").glob("*.answer.txt"):
        answered.unlink()  # so that the node sends it again
    hospitals.train(4)
    assert len(hospitals.requests()) == 1


@pytest.mark.parametrize("records", [[], ["x"] * 10_001])
def test_a_request_for_records_names_some(hospitals: Hospitals, records: list[str]) -> None:
    hospitals.train(1)
    with pytest.raises(ConfigError):
        ask_erasure(hospitals.evidence(LEAVER), records=records)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError):
            ask_erasure(folder)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\nx\n"])
def test_what_is_no_key_of_a_node_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ConfigError):
        NodeSigner.load(tmp_path / "key")


def test_which_requests_are_taken_must_be_a_known_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        strategy(tmp_path / "run", accept_node_requests="maybe")


def test_the_history_says_that_the_node_asked_and_what_it_signed(hospitals: Hospitals) -> None:
    hospitals.train(3, {1: lambda: ask_erasure(hospitals.evidence(LEAVER), node_key=hospitals.keys[LEAVER])})
    [kept] = hospitals.run.with_name("run.openings").glob("asked-1-*.json")
    [request] = hospitals.requests()
    received = request.history[0]
    assert (received.kind, received.actor) == (EventKind.RECEIVED, "the node itself")
    assert received.reason is not None
    assert received.reason.startswith("signed with its key; ")
    assert hashlib.sha256(kept.read_bytes()).hexdigest() in received.reason
    assert hospitals.client(LEAVER).removeprefix("SHA256:") not in received.reason


def test_a_client_called_as_the_history_would_call_it_is_heard_all_the_same(hospitals: Hospitals) -> None:
    hospitals.grid.nodes[LEAVER] = hospitals.node(LEAVER, **{"client-id": "node"})
    ask = lambda: ask_erasure(hospitals.evidence(LEAVER))  # noqa: E731
    hospitals.train(3, {1: ask}, identity="client-id", accept_node_requests="unsigned")
    [request] = hospitals.requests()
    assert request.state is RequestState.ANSWERED
    assert (request.history[0].actor, request.history[0].reason) == ("", "")


# -- second proofs ---------------------------------------------------------------------------------------------


def leaving(hospitals: Hospitals, *nodes: int) -> Callable[[], None]:
    def place() -> None:
        with Ledger.open(hospitals.run, shared=True, keys=hospitals.folder / "keys") as ledger:
            ledger.place_requests([hospitals.client(i) for i in nodes], at=MOMENT)

    return place


def verifications(hospitals: Hospitals, i: int) -> dict[str, bool]:
    """The proofs that a node has verified, and whether they hold."""
    found = sorted(hospitals.kept(i).rglob("verification*.txt"))
    return {str(p.relative_to(hospitals.kept(i))): p.read_text().startswith("the proof holds\n") for p in found}


PURGES: dict[str, Any] = {"settings": {"deniability": {"purge": "deadline"}}}
"""Requests of `MOMENT` are overdue, and so purged as soon as they are answered."""


def test_a_second_proof_is_handed_to_the_leaver_after_a_purge(hospitals: Hospitals) -> None:
    hospitals.train(4, {2: leaving(hospitals, LEAVER)}, **PURGES)
    [request] = hospitals.requests()
    assert request.purged_at is not None
    assert verifications(hospitals, LEAVER) == {"verification.purged.txt": True, "verification.txt": True}
    kept = hospitals.kept(LEAVER)
    second = hospitals.run / "proofs" / "request-1.purged.json"
    assert (kept / "proof.purged.json").read_bytes() == second.read_bytes()
    assert (kept / "proof.json").read_bytes() != second.read_bytes()
    assert not (kept / "complaints.txt").exists()
    assert 3 not in rounds_received(hospitals.grid.nodes[LEAVER])


def test_of_records_too_whose_client_goes_on(hospitals: Hospitals) -> None:
    def place() -> None:
        with Ledger.open(hospitals.run, shared=True, keys=hospitals.folder / "keys") as ledger:
            ledger.place_record_requests({hospitals.client(LEAVER): [f"record-{LEAVER}-1"]}, at=MOMENT)

    hospitals.train(4, {2: place}, **PURGES)
    assert verifications(hospitals, LEAVER) == {
        "request-1/verification.purged.txt": True,
        "request-1/verification.txt": True,
    }
    assert not (hospitals.kept(LEAVER) / "complaints.txt").exists()
    assert rounds_received(hospitals.grid.nodes[LEAVER]) == [1, 2, 1, 2, 3, 4]


def test_and_after_a_rollback_that_undoes_its_last_round(hospitals: Hospitals) -> None:
    gone: list[int] = []

    def leave_one_after_the_other() -> None:
        with Ledger.open(hospitals.run, keys=hospitals.folder / "keys") as ledger:
            [mates] = [cluster for cluster in ledger.membership(1) if hospitals.client(LEAVER) in cluster]
        gone.extend(i for i in hospitals.keys if hospitals.client(i) in mates and i != LEAVER)
        leaving(hospitals, LEAVER)()

    hospitals.train(4, {1: leave_one_after_the_other, 2: lambda: leaving(hospitals, *gone[:1])()})  # noqa: PLW0108 - nobody is known yet
    first, second = hospitals.requests()
    assert first.verdict is not None
    assert second.verdict is not None
    assert (str(first.verdict), second.verdict.undoes) == ("deniable", 1)
    assert verifications(hospitals, LEAVER) == {"verification.purged.txt": True, "verification.txt": True}
    assert verifications(hospitals, gone[0]) == {"verification.txt": True}  # none of its rounds stood at the answer


def test_a_node_that_was_away_gets_both(hospitals: Hospitals) -> None:
    hospitals.train(2)
    node = hospitals.grid.nodes.pop(LEAVER)
    leaving(hospitals, LEAVER)()
    hospitals.train(3, **PURGES)
    assert verifications(hospitals, LEAVER) == {}
    hospitals.grid.nodes[LEAVER] = node
    hospitals.train(4, **PURGES)
    assert verifications(hospitals, LEAVER) == {"verification.purged.txt": True, "verification.txt": True}
