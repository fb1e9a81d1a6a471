"""The server app is killed while it takes a node's request, erases a record or notes a word: nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from disavow.domain import RequestState
from disavow.federation import Federation
from disavow.flower.client import ask_erasure
from disavow.flower.messages import Delivery
from disavow.flower.placement import NodeRequests
from disavow.ledger import Ledger, fsck
from disavow.ledger.keyring import Keyring
from disavow.proof.word import SignedWord
from tests.flower.hospitals import Hospitals

pytestmark = [pytest.mark.flower, pytest.mark.kill]

ASKING = 3
RECORD = f"record-{ASKING}-1"

INSTANTS: dict[str, tuple[Any, str, bool]] = {
    "before the request is kept": (NodeRequests, "_keep", False),
    "before it is placed": (Ledger, "place_record_requests", False),
    "before what was kept has its number": (Ledger, "place_record_requests", True),
    "before the new key is in use": (Keyring, "put_in_place_of", False),
    "before the old key is destroyed": (Ledger, "forget", False),
    "before the proof is handed over": (Delivery, "send_proofs", False),
    "before the word is noted": (Federation, "note_word", False),
    "before the word is a file": (Ledger, "note_word", True),
}
"""Where the process dies: at a call, before it or behind it."""


def train_killed(hospitals: Hospitals, instant: str, patch: pytest.MonkeyPatch) -> None:
    """Train in a process of its own, that kills itself there while the request is on its way."""
    owner, name, behind = INSTANTS[instant]
    real: Callable[..., Any] = getattr(owner, name)

    def kill(*arguments: Any, **named: Any) -> Any:
        if behind:
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            patch.setattr(owner, name, kill)
            hospitals.train(4)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"it never came to {instant}"


@pytest.mark.parametrize("instant", INSTANTS)
def test_whoever_starts_again_completes_it(instant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals = Hospitals(tmp_path / "hospitals")
    hospitals.train(1)
    path = ask_erasure(hospitals.evidence(ASKING), records=[RECORD], node_key=hospitals.keys[ASKING])
    train_killed(hospitals, instant, monkeypatch)
    hospitals.train(6)

    [request] = hospitals.requests()
    assert (request.state, request.records) == (RequestState.ANSWERED, 1)
    assert hospitals.exclusions_sent(ASKING)[-1] == (6, 1)
    assert path.with_name(f"{path.stem}.answer.txt").exists()
    assert (hospitals.kept(ASKING) / "request-1" / "verification.txt").read_text().startswith("the proof holds")
    openings = hospitals.run.with_name("run.openings")
    [word] = openings.glob("word-1-*.json")
    with Ledger.open(hospitals.run, keys=hospitals.folder / "keys") as ledger:
        assert ledger.word_of(1) == SignedWord.decode(word.read_bytes()).digest
        assert len(ledger.clients()) == len(hospitals.keys)
    assert len(list(openings.glob("asked-1-*.json"))) == 1
    assert [finding for finding in fsck(hospitals.run, keys=hospitals.folder / "keys") if finding.fault] == []
