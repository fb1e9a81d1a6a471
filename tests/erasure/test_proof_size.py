"""Proofs that no verifier would read: foreseen, refused while everything is there, and never written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from disavow.cli import erase as command
from disavow.domain import RequestState
from disavow.erasure import dry_run, prove
from disavow.erasure.dry_run import foresee
from disavow.erasure.proof_files import default_openings
from disavow.erasure.proof_size import ROUND_LEAF, ProofSizes, sealed_bytes
from disavow.erasure.prove import prove_what_if
from disavow.errors import ProofTooLarge
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.proof import envelope
from tests.erasure.mechanisms.contract import ask, leave
from tests.erasure.proving import (
    CLUSTER,
    DRAWN,
    SERVER,
    deniable_client,
    held,
    pair_that_breaks,
    proof_of,
    reopened,
    trained,
)
from tests.ledger.making import files_of


def expected(run: Federation, client: str, **more: Any) -> int:
    with run.ledger.snapshot() as snapshot:
        return ProofSizes.read(snapshot).of(snapshot.numbers_of([client])[client], **more)


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let verifiers read no more than this."""
    for module in (envelope, prove, dry_run):
        monkeypatch.setattr(module, "LARGEST", most)


@DRAWN
def test_no_proof_is_larger_than_foreseen(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", number=14, rounds=6, **changed) as run:
        for step in range(4):
            client = deniable_client(run)
            foreseen = expected(run, client, leavers=1)
            assert len(prove_what_if(run.ledger, client).sealed(SERVER)) <= foreseen
            leave(run, client)
            assert foreseen / 5 < len(proof_of(run, step + 1)) <= foreseen
        pair = pair_that_breaks(run)
        first = foresee(run.ledger, pair, run.options, run.mechanism).verdict.undoes
        sizes = [expected(run, client, before=first, leavers=2) for client in pair]
        retrained = run.settings.rounds * sealed_bytes(ROUND_LEAF)
        leave(run, *pair)
        for number, size in enumerate(sizes, start=5):
            assert len(proof_of(run, number)) <= size + retrained


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_request_that_cannot_be_proved_waits_with_nothing_undone_or_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, signed: bool, rolls_back: bool
) -> None:
    signer = SERVER if signed else None
    with trained(tmp_path / "run", signer, **CLUSTER) as run:
        leavers = pair_that_breaks(run) if rolls_back else (deniable_client(run),)
        before = files_of(tmp_path / "run" / "models")
        ask(run, *leavers)
        with monkeypatch.context() as patched:
            limit(patched, 4_000)
            for _ in range(2):
                with pytest.raises(ProofTooLarge):
                    run.answer()
        assert {request.state for request in run.ledger.requests()} == {RequestState.WAITING}
        assert set(leavers) <= set(run.ledger.clients())
        assert files_of(tmp_path / "run" / "models") == before
        assert not list((tmp_path / "run").glob("proofs/*"))
        assert not default_openings(tmp_path / "run").exists()
    assert fsck(tmp_path / "run") == []
    with reopened(tmp_path / "run", signer) as run:
        assert len(run.answer()) == len(leavers)


def test_a_proof_that_grew_too_large_since_it_was_judged_is_not_written_and_nothing_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        ask(run, client)
        with monkeypatch.context() as patched:
            patched.setattr(envelope, "LARGEST", 4_000)  # whoever judged thought it would do
            with pytest.raises(ProofTooLarge):
                run.answer()
        [request] = run.ledger.requests()
        assert (request.state, request.client) == (RequestState.DELETING, client)
        assert not list((tmp_path / "run").glob("proofs/*"))
        assert not default_openings(tmp_path / "run").exists()
        run.answer()
        assert held(run, 1, client).named
    assert fsck(tmp_path / "run") == []


def test_a_what_if_that_no_verifier_would_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        made = prove_what_if(run.ledger, deniable_client(run))
        limit(monkeypatch, 4_000)
        with pytest.raises(ProofTooLarge):
            made.sealed(SERVER)


def test_the_dry_run_foresees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        assert foresee(run.ledger, [client], run.options, run.mechanism).too_large is None
        foreseen = expected(run, client, leavers=1)
        limit(monkeypatch, foreseen)
        assert foresee(run.ledger, [client], run.options, run.mechanism).too_large is None
        limit(monkeypatch, foreseen - 1)
        assert foresee(run.ledger, [client], run.options, run.mechanism).too_large == foreseen
    options: dict[str, Any] = {"wait": 0.0, "retrain": True, "check": False, "yes": False, "openings": None}
    for as_json, words in ((False, f"up to {foreseen:,} bytes"), (True, f'"proof_too_large": {foreseen}')):
        wanted = command.wanted([client], None, None, None, unchecked=False)
        command.erase(tmp_path / "run", wanted, dry_run=True, as_json=as_json, **options)
        assert words in capsys.readouterr().out


def test_whoever_is_surely_small_enough_is_not_proved_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(*arguments: Any, **more: Any) -> Any:
        made.append(1)
        return original(*arguments, **more)

    original = prove.prove_erasure
    monkeypatch.setattr(prove, "prove_erasure", counted)
    with trained(tmp_path / "run", **CLUSTER) as run:
        leave(run, deniable_client(run))
    assert made == [1]
