"""All members of one cluster leave: one of them was drawn in every round, so not all of them are deniable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from disavow.domain import Verdict, VerdictKind
from disavow.erasure import judge
from disavow.erasure.prove import renew
from disavow.errors import IntegrityError
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.proof.envelope import Envelope
from disavow.proof.verify import VerificationInputs, verify
from tests.erasure.mechanisms.contract import ask, leave, standing
from tests.erasure.proving import SERVER, held, opening_of, proof_of, served, trained, trust
from tests.proof import second_verifier

KEY = f"{SERVER.public}\n".encode()

CASES: dict[str, dict[str, Any]] = {
    "x = 1": {"deniability": {"x": 1}},
    "x = 2": {"deniability": {"x": 2}},
    "two drawn, x = 2": {"deniability": {"x": 2}, "clustering": {"k": 4, "representatives": 2}},
    "clusters anew": {"deniability": {"x": 1}, "clustering": {"k": 4, "sticky": False}},
}


def run_of(directory: Path, name: str) -> Federation:
    """A run in clusters of four and five."""
    changed = CASES[name]
    return trained(directory, number=9, rounds=2, **{"clustering": {"k": 4}, **changed})


def smallest_cluster(run: Federation) -> list[str]:
    """The members of a cluster of four in round 1."""
    return min((list(group) for group in run.ledger.membership(1)), key=len)


def kind(verdict: Verdict | None) -> VerdictKind:
    assert verdict is not None
    return verdict.kind


@pytest.mark.parametrize("name", CASES)
def test_one_after_the_other_a_rollback_comes_before_too_few_are_left(tmp_path: Path, name: str) -> None:
    """And so every proof can be renewed when all have left, and holds for both verifiers."""
    with run_of(tmp_path / "run", name) as run:
        members = smallest_cluster(run)
        needed = run.ledger.policy.survivors_needed
        kinds = [kind(leave(run, client)[0].verdict) for client in members]
        first = kinds.index(VerdictKind.ROLLBACK)
        assert first <= len(members) - needed
        if run.ledger.policy.sticky:  # they were together in every round
            assert first == len(members) - needed
        for number, client in enumerate(members, start=1):
            held(run, number, client)
            renewed = renew(run.ledger, Envelope.decode(proof_of(run, number)).statement, SERVER)
            report = verify(VerificationInputs(renewed, trust(), opening_of(run, number), model=served(run)))
            assert all(left >= needed for left in report.survivors)
            assert second_verifier.verify(renewed, KEY, opening_of(run, number), model=served(run)) == (0, None)
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("name", CASES)
def test_all_at_once_nobody_is_deniable(tmp_path: Path, name: str) -> None:
    with run_of(tmp_path / "run", name) as run:
        members = smallest_cluster(run)
        before = {summary.after for summary in standing(run.ledger)}
        verdicts = [request.verdict for request in leave(run, *members)]
        assert {kind(verdict) for verdict in verdicts} == {VerdictKind.ROLLBACK}
        assert {verdict.round for verdict in verdicts if verdict} == {1}
        assert not before & {summary.after for summary in standing(run.ledger)}
        for number, client in enumerate(members, start=1):
            assert held(run, number, client, model=served(run)).survivors == []
    assert fsck(tmp_path / "run") == []


def test_a_server_that_calls_all_of_them_deniable_has_no_proof_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_of(tmp_path / "run", "x = 1") as run:
        members = smallest_cluster(run)
        ask(run, *members)
        monkeypatch.setattr(judge, "judge", lambda *_: Verdict(VerdictKind.DENIABLE))
        with pytest.raises(IntegrityError):
            run.answer()
        assert [request.client for request in run.ledger.requests()] == members
