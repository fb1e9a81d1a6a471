"""Requests that nodes make themselves: signed, placed once, answered, and never for anybody else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import ConfigError
from disavow.flower.client import ask_erasure
from disavow.flower.node_keys import NodeSigner, fingerprint
from disavow.flower.node_requests import SignedRequest
from disavow.ledger import Ledger
from disavow.proof.keys import generate
from tests.flower.builders import initial_arrays, learner, rounds_asked, strategy
from tests.flower.loopback import LoopbackGrid, Node
from tests.flower.network import make_node_key

pytestmark = pytest.mark.flower

NODES, LEAVER = 6, 3


class Hospital:
    """A federation of nodes with keys and folders of evidence, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        generate(folder / "keys", name="server", passphrase=None, at="2026-01-01T00:00:00.000000+00:00")
        keys = [make_node_key(folder / f"node-{i}") for i in range(1, NODES + 1)]
        self.keys = dict(enumerate(keys, start=1))
        self.grid = LoopbackGrid({i: self.node(i) for i in self.keys})

    def node(self, i: int) -> Node:
        config = {"evidence-dir": str(self.evidence(i)), "node-key": str(self.keys[i]), "client-id": f"c{i}"}
        return Node(learner(), config, NodeSigner.load(self.keys[i]).public_key)

    def evidence(self, i: int) -> Path:
        return self.folder / f"evidence-{i}"

    def kept(self, i: int) -> Path:
        """What node i keeps of the run."""
        [found] = self.evidence(i).iterdir()
        return found

    def client(self, i: int) -> str:
        known = fingerprint(NodeSigner.load(self.keys[i]).public_key)
        assert known is not None
        return known

    def train(self, rounds: int, after: dict[int, Callable[[], Any]] | None = None, **more: Any) -> None:
        """Train; after some rounds something happens, once."""
        waiting = dict(after or {})

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
            if number in waiting:
                waiting.pop(number)()
            return MetricRecord({"accuracy": 0.5, "loss": 1.0})

        made = strategy(self.run, **{"identity": "key", "keys": self.folder / "keys", **more})
        made.start(
            grid=self.grid,
            initial_arrays=initial_arrays(),
            num_rounds=rounds,
            timeout=0.5,
            evaluate_fn=evaluate,
        )

    def requests(self) -> tuple[ErasureRequest, ...]:
        with Ledger.open(self.run, keys=self.folder / "keys") as ledger:
            return ledger.requests()


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path)


def answer_to(path: Path) -> str:
    return path.with_name(f"{path.stem}.answer.txt").read_text()


def test_a_node_asks_that_its_client_be_forgotten_and_is_answered(hospital: Hospital) -> None:
    asked: list[Path] = []

    def ask() -> None:
        asked.append(ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER]))

    hospital.train(4, {1: ask})
    [request] = hospital.requests()
    assert request.state is RequestState.ANSWERED
    # the reply of round 2 brought it
    assert rounds_asked(hospital.grid.nodes[LEAVER])[:2] == [1, 2]
    assert 4 not in rounds_asked(hospital.grid.nodes[LEAVER])
    assert (hospital.kept(LEAVER) / "verification.txt").read_text().startswith("the proof holds")
    assert answer_to(asked[0]).startswith("request 1: answered, ")
    assert not (hospital.kept(LEAVER) / "complaints.txt").exists()


def test_what_was_asked_is_kept_as_evidence_beside_the_openings(hospital: Hospital) -> None:
    hospital.train(3, {1: lambda: ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER])})
    [kept] = hospital.run.with_name("run.openings").glob("asked-1-*.json")
    signed = SignedRequest.decode(kept.read_bytes())
    signed.refuse_unsigned(hospital.client(LEAVER))
    assert signed.request.unit == "client"


def test_it_may_ask_with_the_very_last_reply(hospital: Hospital) -> None:
    hospital.train(2, {2: lambda: ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER])})
    assert [request.state for request in hospital.requests()] == [RequestState.ANSWERED]


def refusal(hospital: Hospital, make: Callable[[], Path], **more: Any) -> str:
    """What a node hears of a request that is refused."""
    made: list[Path] = []
    hospital.train(4, {1: lambda: made.append(make())}, **more)
    assert hospital.requests() == ()
    assert len(rounds_asked(hospital.grid.nodes[LEAVER])) == 4
    return answer_to(made[0])


def test_an_unsigned_request_is_refused(hospital: Hospital) -> None:
    assert "not signed" in refusal(hospital, lambda: ask_erasure(hospital.evidence(LEAVER)))


def test_unless_the_strategy_says_otherwise(hospital: Hospital) -> None:
    ask = lambda: ask_erasure(hospital.evidence(LEAVER))  # noqa: E731
    hospital.train(3, {1: ask}, identity="client-id", accept_node_requests="unsigned")
    assert [request.state for request in hospital.requests()] == [RequestState.ANSWERED]


def test_a_signature_proves_nothing_of_a_client_that_is_not_known_by_its_key(hospital: Hospital) -> None:
    def ask() -> Path:
        path = ask_erasure(hospital.evidence(LEAVER))
        unsigned = SignedRequest.decode(path.read_bytes())
        path.write_bytes(SignedRequest.make(unsigned.request, NodeSigner.load(hospital.keys[LEAVER])).encode())
        return path

    assert "another key" in refusal(hospital, ask, identity="client-id")


def test_none_is_taken_where_none_is_wanted(hospital: Hospital) -> None:
    ask = lambda: ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER])  # noqa: E731
    assert "takes no requests" in refusal(hospital, ask, accept_node_requests="never")


def test_a_node_cannot_send_what_another_has_signed(hospital: Hospital) -> None:
    def steal() -> Path:
        path = ask_erasure(hospital.evidence(5), node_key=hospital.keys[5])
        (hospital.kept(LEAVER) / "requests").mkdir()
        return Path(shutil.move(path, hospital.kept(LEAVER) / "requests" / path.name))

    assert "another client" in refusal(hospital, steal)


def test_nor_sign_for_another(hospital: Hospital) -> None:
    def forge() -> Path:
        path = ask_erasure(hospital.evidence(LEAVER))
        asked = SignedRequest.decode(path.read_bytes()).request
        path.write_bytes(SignedRequest.make(asked, NodeSigner.load(hospital.keys[5])).encode())
        return path

    assert "another key" in refusal(hospital, forge)
    with pytest.raises(ConfigError):
        ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[5])


def test_nor_change_what_was_signed(hospital: Hospital) -> None:
    def change() -> Path:
        path = ask_erasure(hospital.evidence(LEAVER), records=["x"], node_key=hospital.keys[LEAVER])
        signed = SignedRequest.decode(path.read_bytes())
        whole = SignedRequest.decode(ask_erasure(hospital.evidence(LEAVER)).read_bytes())
        for other in path.parent.iterdir():
            other.unlink()
        forged = SignedRequest(payload=whole.payload, public_key=signed.public_key, signature=signed.signature)
        path = path.with_name(f"{whole.request.nonce.hex()}.json")
        path.write_bytes(forged.encode())
        return path

    assert "signature does not hold" in refusal(hospital, change)


@pytest.mark.parametrize("age", [timedelta(days=40), -timedelta(days=2)])
def test_an_old_request_is_refused(hospital: Hospital, age: timedelta) -> None:
    at = datetime.now(UTC) - age
    ask = lambda: ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER], at=at)  # noqa: E731
    assert "ask again" in refusal(hospital, ask)


def test_a_request_of_another_run_is_refused(hospital: Hospital) -> None:
    def ask() -> Path:
        here = hospital.kept(LEAVER)
        there = here.with_name("0" * 32)
        shutil.copytree(here, there)
        path = ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER], run=there.name)
        (here / "requests").mkdir()
        moved = shutil.move(path, here / "requests" / path.name)
        shutil.rmtree(there)
        return Path(moved)

    assert "another run" in refusal(hospital, ask)


@pytest.mark.parametrize("sent", [[b""], [b"{}"], [b"x" * 100] * 40, b"bytes", ["text"], 7])
def test_what_is_no_request_is_left_out(hospital: Hospital, sent: Any) -> None:
    node = hospital.grid.nodes[LEAVER]

    def tamper(reply: Any) -> Any:
        if reply.has_content() and "arrays" in reply.content:
            reply.content["disavow"] = ConfigRecord({"requests": sent})
        return reply

    node.tamper = tamper
    hospital.train(2)
    assert hospital.requests() == ()
    assert rounds_asked(node) == [1, 2]


def test_a_request_that_comes_again_counts_once(hospital: Hospital) -> None:
    hospital.train(3, {1: lambda: ask_erasure(hospital.evidence(LEAVER), node_key=hospital.keys[LEAVER])})
    for answered in (hospital.kept(LEAVER) / "requests").glob("*.answer.txt"):
        answered.unlink()  # so that the node sends it again
    hospital.train(4)
    assert len(hospital.requests()) == 1


@pytest.mark.parametrize("records", [[], ["x"] * 10_001])
def test_a_request_for_records_names_some(hospital: Hospital, records: list[str]) -> None:
    hospital.train(1)
    with pytest.raises(ConfigError):
        ask_erasure(hospital.evidence(LEAVER), records=records)


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
