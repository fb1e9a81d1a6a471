"""Requests that arrive between rounds and during a rebuild."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from disavow.domain import RequestState
from disavow.federation import Callbacks
from disavow.ledger import Ledger, RoundSummary, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from tests.erasure.erased_runs import DENIABLE, erasure_rows, rollback, toy
from tests.erasure.mechanisms.contract import (
    ask,
    groups,
    leave,
    standing,
    start_toy,
    toy_settings,
)


def test_requests_placed_during_training_are_honoured_between_rounds(tmp_path: Path) -> None:
    events: list[tuple[str, object]] = []
    with start_toy(tmp_path / "run", toy_settings(rounds=5)) as run:

        def on_round(summary: RoundSummary) -> None:
            events.append(("round", (summary.number, summary.attempt, summary.participants)))
            if (summary.number, summary.attempt) == (2, 1):
                ask(run, "client-01")
            if (summary.number, summary.attempt) == (4, 1):
                ask(run, *sorted(run.ledger.membership(1)[0])[:2])

        run.train(
            Callbacks(
                on_round,
                lambda verdict, requests: events.append(("verdict", (str(verdict), requests))),
                lambda request: events.append(("answer", request.number)),
            )
        )
        assert run.ledger.next_round() == (6, 1)
    rebuilt = [("round", (n, 2, 6)) for n in (1, 2, 3, 4)]
    first_two = [("round", (1, 1, 9)), ("round", (2, 1, 9))]
    assert events == [
        *first_two,
        ("verdict", ("deniable", 1)),
        ("answer", 1),
        ("round", (3, 1, 8)),
        ("round", (4, 1, 8)),
        ("verdict", ("rollback to round 1", 2)),
        *rebuilt,
        ("answer", 2),
        ("answer", 3),
        ("round", (5, 1, 6)),
    ]
    assert fsck(tmp_path / "run") == []


def test_a_request_that_arrives_during_a_rebuild_waits_for_one_round_at_most(tmp_path: Path) -> None:
    events: list[object] = []
    with toy(tmp_path / "run", clients=12, clustering={"sticky": False}) as run:
        first = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, *first)

        def on_round(summary: RoundSummary) -> None:
            events.append((summary.number, summary.attempt))
            if (summary.number, summary.attempt) == (2, 2):
                # in round 2, as just rebuilt, these two break it; round 1 is rebuilt already and may hold
                ask(run, *sorted(run.ledger.membership(2)[0])[:2])

        answered = run.answer(
            Callbacks(on_round, lambda verdict, requests: events.append((str(verdict), requests)))
        )
        second = answered[-1].verdict
        assert second is not None
        assert second.round in (1, 2)
        again = [(n, 3 if n <= 2 else 2) for n in range(second.round, 5)]
        assert events == [("rollback to round 1", 2), (1, 2), (2, 2), (f"{second}", 2), *again]
        assert [s.number for s in standing(run.ledger)] == [1, 2, 3, 4]
        assert [request.state for request in run.ledger.requests()] == [RequestState.ANSWERED] * 4
        assert erasure_rows(run.ledger) == 2
        assert {s.participants for s in standing(run.ledger) if s.number > 1} == {8}
        # the first erasure's cost counts the rounds that were rebuilt twice
        assert answered[0].cost is not None
        assert answered[0].cost.rounds == 2 + len(again)
    assert fsck(tmp_path / "run") == []


def test_a_deniable_request_during_a_rebuild_does_not_wait_for_its_end(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        pair = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, *pair)
        requesters: list[str] = []

        def on_round(summary: RoundSummary) -> None:
            if summary.number == 1:
                requesters.append(run.ledger.clients()[0])
                ask(run, *requesters)

        answered = run.answer(Callbacks(on_round))
        assert [str(request.verdict) for request in answered] == ["deniable"] + ["rollback to round 1"] * 2
        assert answered[0].answered_at is not None
        assert answered[0].answered_at < standing(run.ledger)[2].recorded_at
        assert [s.participants for s in standing(run.ledger)] == [7, 6, 6, 6]
        for client in (*pair, *requesters):
            assert files_with(tmp_path / "run", client) == []
    assert fsck(tmp_path / "run") == []


def test_a_rebuild_that_was_complete_is_not_said_to_have_been_impossible(tmp_path: Path) -> None:
    """After the last rebuilt round a deniable leaver makes the survivors too few: nothing was left to retrain."""
    with toy(tmp_path / "run", clients=5, clustering={"k": 2}, deniability={"x": 1}) as run:
        # a whole cluster leaves; the three or two who are left make one cluster, and one of them is deniable
        [small] = [group for group in groups(run.ledger, 1) if len(group) == 2]
        [other] = [group for group in groups(run.ledger, 1) if len(group) == 3]
        ask(run, *small, min(other))

        def on_round(summary: RoundSummary) -> None:
            if summary.number == 4:
                ask(run, max(other))

        deniable, *first = run.answer(Callbacks(on_round))
        assert {request.verdict for request in first} == {rollback(1)}
        assert deniable.verdict == DENIABLE
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(n, 2) for n in range(1, 5)]
        assert [request.cost.rounds for request in first if request.cost] == [4, 4, 4]
        assert [request.remark for request in first] == [""] * 3


def test_survivors_who_leave_during_a_rebuild_can_stop_it(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=6) as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])

        def on_round(summary: RoundSummary) -> None:
            if (summary.number, summary.attempt) == (2, 2):
                ask(run, *run.ledger.clients()[:2])

        answered = run.answer(Callbacks(on_round))
        assert len(run.ledger.clients()) == 2
        assert all(request.state is RequestState.ANSWERED for request in answered)
        # the four who were left made one cluster: two of them leaving keeps x = 2, so rounds 1 and 2 stand
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(1, 2), (2, 2)]
        assert answered[-1].remark.endswith("fewer than k = 3; the model of round 2 is served")
        assert str(answered[0].verdict) == "deniable"
    assert fsck(tmp_path / "run") == []


def test_sticky_clusters_keep_the_others_together_when_one_leaves(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings(clients=15, rounds=8, clustering={"k": 3})) as run:
        replace(run, settings=run.settings.model_copy(update={"rounds": 4})).train()
        before = groups(run.ledger, 4)
        [leaver] = [sorted(group)[0] for group in before if len(group) > 3][:1] or [run.ledger.clients()[0]]
        leave(run, leaver)
        run.train()
        kept = {group - {leaver} for group in before if len(group - {leaver}) >= 3}
        assert len(kept) >= 4
        for number in range(5, 9):
            # whoever kept k members stays together; a cluster that fell short may join them
            assert all(any(group <= other for other in groups(run.ledger, number)) for group in kept)
            assert groups(run.ledger, number) == groups(run.ledger, 5)


def test_who_is_forgotten_while_another_process_reads_the_keyring_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and keys are read one after the other."""
    with start_toy(tmp_path / "run", toy_settings()) as run, Ledger.open(tmp_path / "run") as reader:
        [number] = run.ledger.numbers_of(["client-04"]).values()
        real, others = Keyring._read_files, list[int]()

        def meanwhile(keyring: Keyring) -> list[list[bytes]]:
            if not others:
                others.append(number)
                run.ledger.forget([number])
            return real(keyring)

        monkeypatch.setattr(Keyring, "_read_files", meanwhile)
        assert len(reader.keyring.present()) == 8
        assert others
        assert reader.keyring.by_number([number]) == {}
        assert reader.keyring.faults() == []
