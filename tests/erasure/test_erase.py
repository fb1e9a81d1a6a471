"""An erasure from the request to the report, on real runs and on toy ones."""

from __future__ import annotations

import random
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import torch

from disavow import config, runs
from disavow.domain import Evaluation, RequestState, Verdict, VerdictKind
from disavow.errors import CannotRetrain, LedgerError, RoundRefused, RunInUse
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, database, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.ledger import Ledger as LedgerClass
from disavow.ledger.models import ModelStore
from disavow.ledger.schema import clients, erasures, memberships
from disavow.rounds.vectors import Model, Updates
from tests.erasure.mechanisms.contract import (
    ToyEngine,
    ask,
    digests,
    faults,
    groups,
    leave,
    pair_first_together_in,
    reopen_toy,
    standing,
    start_toy,
    toy_settings,
)
from tests.ledger.making import files_of
from tests.refusals import refuses
from tests.rounds.builders import MOMENT

DENIABLE = Verdict(VerdictKind.DENIABLE)
NEVER = Verdict(VerdictKind.NEVER_PRESENT)

REAL: dict[str, Any] = {
    "seed": 11,
    "rounds": 4,
    "draws": "seeded",
    "data": {"clients": 10},
    "model": {"name": "resnet-mini"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3, "sticky": False},
    "deniability": {"x": 2},
}
"""Digits; a fresh partition each round, so that rollbacks need not begin at round 1."""


def rollback(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def toy(directory: Path, **changed: Any) -> Federation:
    run = start_toy(directory, toy_settings(**changed))
    run.train()
    return run


def erasure_rows(ledger: Ledger) -> int:
    with ledger._connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(erasures)).scalar_one()


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, trained once."""
    folder = tmp_path_factory.mktemp("real")
    with Federation.create(folder / "run", config.from_values(REAL, source="tests"), keys=folder / "keys") as run:
        run.train()
    return folder / "run"


@pytest.fixture
def real(real_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real_run, tmp_path / "run"))


def reopened(directory: Path) -> Federation:
    return Federation.open(directory, keys=directory.with_name("keys"), write=True)


# -- deniable ----------------------------------------------------------------------------------------------------


class Alike(ToyEngine):
    """Every client returns the same, so that who is left changes nothing."""

    def _one(self, model: Model, client: str, round_number: int) -> torch.Tensor:
        return super()._one(model, "anybody", round_number)


def test_a_rebuild_that_ends_in_the_very_models_it_undid_says_so(tmp_path: Path) -> None:
    settings = toy_settings(noise={"mode": "none"}, deniability={"x": 3})
    with start_toy(tmp_path / "run", settings) as started:
        run = replace(started, own_engine=Alike(settings.seed))
        run.train()
        before = digests(run.ledger)
        [answered] = leave(run, "client-01")
        assert answered.verdict is not None
        assert answered.verdict.kind is VerdictKind.ROLLBACK
        same = sum(one == other for one, other in zip(before, digests(run.ledger), strict=True))
        assert same > 0
        assert f"{same} of the rounds end in the very models that were undone" in answered.remark
    with start_toy(tmp_path / "other", toy_settings(deniability={"x": 3})) as run:
        run.train()
        [answered] = leave(run, "client-01")
        assert "undone" not in answered.remark


def test_a_deniable_request_leaves_every_model_as_it_is(real: Path) -> None:
    with reopened(real) as run:
        before, models = run.ledger.summaries(), files_of(real / "models")
        # nobody's cluster keeps fewer than two of its three
        [request] = leave(run, "client-04")
        assert (request.verdict, request.state) == (DENIABLE, RequestState.ANSWERED)
        assert request.cost is not None
        assert request.cost.rounds == 0
        assert request.client is None
        assert request.answered_at is not None
        assert run.ledger.summaries() == before
        assert files_of(real / "models") == models
        assert "client-04" not in run.ledger.clients()
        assert all("client-04" not in group for t in range(1, 5) for group in groups(run.ledger, t))
    assert fsck(real) == []
    assert files_with(real, "client-04") == []


def test_a_deniable_request_succeeds_even_when_fewer_than_k_are_left(tmp_path: Path) -> None:
    """x = 1: a cluster holds as long as anyone is left in it, while k = 3 could train no further round."""
    with toy(tmp_path / "run", clients=3, deniability={"x": 1}) as run:
        models = digests(run.ledger)
        for client in ("client-01", "client-02"):
            [request] = leave(run, client)
            assert (request.verdict, request.remark) == (DENIABLE, "")
        assert digests(run.ledger) == models
        assert run.ledger.clients() == ("client-03",)
    assert fsck(tmp_path / "run") == []


# -- rollback ----------------------------------------------------------------------------------------------------


def test_a_rollback_rebuilds_from_the_broken_round_to_where_it_stood(real: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 3)
        before = run.ledger.summaries()
        old_files = set(run.ledger.store.digests())
        one, two = leave(run, *pair)
        assert one.verdict == two.verdict == rollback(3)
        after = run.ledger.summaries()
        # rounds 1 and 2 are untouched, 3 and 4 are superseded and stand anew, at their second attempt
        assert [(s.number, s.attempt, s.standing) for s in after] == [
            (1, 1, True),
            (2, 1, True),
            (3, 1, False),
            (4, 1, False),
            (3, 2, True),
            (4, 2, True),
        ]
        assert after[:2] == before[:2]
        assert [s.after for s in after[:4]] == [s.after for s in before]  # their digests remain
        assert [s.participants for s in after] == [10, 10, 10, 10, 8, 8]
        assert run.ledger.round(3).before == before[1].after  # the model broadcast in it, not the one after
        assert all(summary.evaluation is not None for summary in after[4:])
        gone = {before[2].after, before[3].after}
        assert set(run.ledger.store.digests()) == (old_files - gone) | {after[4].after, after[5].after}
        assert one.cost is not None
        assert (one.cost.rounds, one.cost.client_epochs) == (2, 16)
        assert one.cost.exchanged_bytes == 2 * 16 * 4 * run.ledger.layout.size
        assert one.cost.seconds > 0
        assert erasure_rows(run.ledger) == 1  # one judgement, one rollback
    assert fsck(real) == []
    for client in pair:
        assert files_with(real, client) == []


def test_many_at_once_are_one_judgement_though_each_alone_were_deniable(real: Path, tmp_path: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 2)
    for client in pair:
        # with keys of its own: tombstones beside shared ones would withdraw from one copy who left the other
        alone = Path(shutil.copytree(real, tmp_path / f"only {client}" / "run"))
        with reopened(alone) as run:
            assert leave(run, client)[0].verdict == DENIABLE
    with reopened(real) as run:
        assert {request.verdict for request in leave(run, *pair)} == {rollback(2)}
        assert erasure_rows(run.ledger) == 1


def test_one_after_the_other_they_come_to_the_same_round(real: Path) -> None:
    with reopened(real) as run:
        one, two = pair_first_together_in(run.ledger, 2)
        assert leave(run, one)[0].verdict == DENIABLE
        assert leave(run, two)[0].verdict == rollback(2)
        assert [s.number for s in standing(run.ledger)] == [1, 2, 3, 4]
    assert fsck(real) == []


def test_a_second_rollback_goes_deeper_than_the_first(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clustering={"sticky": False}) as run:
        late = pair_first_together_in(run.ledger, 4)
        assert leave(run, *late)[0].verdict == rollback(4)
        early = sorted(run.ledger.membership(1)[0])[:2]
        assert leave(run, *early)[0].verdict == rollback(1)
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(1, 2), (2, 2), (3, 2), (4, 3)]
        assert len(list(run.ledger.store.digests())) == 5
    assert fsck(tmp_path / "run") == []


def test_a_cluster_wider_than_a_fixed_delta_breaks_whoever_leaves_it(tmp_path: Path) -> None:
    with toy(tmp_path / "run", deniability={"x": 1, "delta": 1e-6}) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
        assert len(standing(run.ledger)) == 4
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("representatives", [1, 2])
def test_when_a_whole_cluster_leaves_the_model_rolls_back(
    tmp_path: Path, together: bool, representatives: int
) -> None:
    """In every round the representative was with certainty one of them: nobody else could have been drawn."""
    clustering = {"k": 3, "representatives": representatives}
    with toy(tmp_path / "run", clustering=clustering, deniability={"x": 1}) as run:
        leavers = run.ledger.membership(1)[0]
        if together:
            assert {request.verdict for request in leave(run, *leavers)} == {rollback(1)}
            return
        verdicts = [leave(run, client)[0].verdict for client in leavers]
    survivors = [len(leavers) - 1 - i for i in range(len(leavers))]
    enough = [left >= representatives for left in survivors]  # x + s - 1, with x = 1
    assert verdicts[: enough.index(False) + 1] == [DENIABLE] * enough.index(False) + [rollback(1)]


def test_a_relative_delta_decides_who_is_alike(tmp_path: Path) -> None:
    with toy(tmp_path / "run", deniability={"x": 1, "delta": "0.01x"}) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
    with toy(tmp_path / "wide", deniability={"x": 1, "delta": "100x"}) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE


def test_odds_decide_where_they_are_limited(tmp_path: Path) -> None:
    """Enough survive; the limit on the odds over all rounds makes it a rollback to the first round beyond it."""
    noise = {"sigma": 1.0}
    with toy(tmp_path / "free", deniability={"x": 1}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE
    with toy(tmp_path / "strict", deniability={"x": 1, "odds": 1.01}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
    with toy(tmp_path / "loose", deniability={"x": 1, "odds": 1e30}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE


# -- too few to retrain ------------------------------------------------------------------------------------------


def test_with_fewer_than_k_survivors_the_rollback_still_happens_and_says_so(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=4, deniability={"x": 3}) as run:
        models = digests(run.ledger)
        [request] = leave(run, "client-02")
        assert request.verdict == DENIABLE  # a cluster of four keeps three
        one, two = leave(run, "client-01", "client-04")
        assert one.verdict == two.verdict == rollback(1)
        assert one.state is RequestState.ANSWERED
        assert one.remark == (
            "not retrained: 1 participants are left, fewer than k = 3; the initial model is served"
        )
        assert one.cost is not None
        assert one.cost.rounds == 0
        assert standing(run.ledger) == []
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model}
        assert [summary.after for summary in run.ledger.summaries()] == models
        assert run.ledger.next_round() == (1, 2)
    assert fsck(tmp_path / "run") == []
    for client in ("client-01", "client-02", "client-04"):
        assert files_with(tmp_path / "run", client) == []


def test_an_earlier_model_is_served_where_later_rounds_cannot_be_retrained(tmp_path: Path) -> None:
    """Half of eight clients take part in a round; when three have left, half of the rest are too few."""
    with toy(tmp_path / "run", clients=8, training={"fraction": 0.5}) as run:
        models = digests(run.ledger)
        [present] = zip(*(groups(run.ledger, t) for t in range(1, 5)), strict=True)
        broken = {
            trio: [t for t, group in enumerate(present, start=1) if len(group - set(trio)) < 2]
            for trio in combinations(run.ledger.clients(), 3)
        }
        leavers, first = next((trio, rounds[0]) for trio, rounds in broken.items() if rounds and rounds[0] > 1)
        answered = leave(run, *leavers)
        assert {request.verdict for request in answered if request.verdict != NEVER} == {rollback(first)}
        assert answered[0].remark == (
            f"not retrained: 2 participants are left, fewer than k = 3; the model of round {first - 1} is served"
        )
        assert digests(run.ledger) == models[: first - 1]
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *models[: first - 1]}
        assert (run.ledger.model_before(first) == run.ledger.model_after(first - 1)).all()
    assert fsck(tmp_path / "run") == []


def test_a_run_without_enough_clients_goes_no_further_and_says_why(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=3, deniability={"x": 3}) as run:
        leave(run, "client-01")
        with refuses(RoundRefused, "2 participants", "k = 3"):
            run.train()
        leave(run, "client-02", "client-03")
        assert run.ledger.clients() == ()
    assert fsck(tmp_path / "run") == []


def test_a_run_without_any_client_is_refused_like_one_with_too_few(real: Path) -> None:
    """An engine that is asked to train nobody must not crash."""
    with reopened(real) as run:
        everyone = run.ledger.clients()
        leave(run, *everyone)
        assert run.ledger.clients() == ()
        assert standing(run.ledger) == []
        with refuses(RoundRefused, "0 participants", "k = 3"):
            run.train()
    assert fsck(real) == []
    for client in everyone:
        assert files_with(real, client) == []


# -- never present, twice, back again ----------------------------------------------------------------------------


def test_who_never_took_part_is_told_so_and_forgotten_all_the_same(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        models = digests(run.ledger)
        run.ledger.register(["newcomer"], key=run.tombstone_key())
        [request] = leave(run, "newcomer")
        assert (request.verdict, request.state) == (NEVER, RequestState.ANSWERED)
        assert digests(run.ledger) == models
        with refuses(LedgerError, "newcomer"):
            run.ledger.register(["newcomer"], key=run.tombstone_key())
    assert files_with(tmp_path / "run", "newcomer") == []
    assert fsck(tmp_path / "run") == []


def test_asking_before_the_first_round_is_never_present(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        [request] = leave(run, "client-01")
        assert request.verdict == NEVER
        run.train()
        assert run.ledger.round(1).slots.__len__() == 8


def test_asked_twice_gives_the_first_answer_and_nothing_happens_again(real: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 3)
        first = leave(run, *pair)
        before = run.ledger.summaries()
        assert leave(run, *pair) == first
        assert run.answer() == ()
        assert run.ledger.summaries() == before
        assert erasure_rows(run.ledger) == 1
    rows = files_of(real)
    with reopened(real) as run:  # and in another process, later
        assert leave(run, pair[1]) == first[1:]
    assert files_of(real) == rows


def test_asked_twice_while_waiting_is_asked_once(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        first = ask(run, "client-01")
        assert ask(run, "client-01", "client-01") == first * 2
        assert len(run.answer()) == 1
        assert len(run.ledger.requests()) == 1


def test_a_leaver_takes_part_in_no_later_round_and_cannot_return(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, "client-01")
        replace(run, settings=run.settings.model_copy(update={"rounds": 7})).train()
        assert [s.participants for s in standing(run.ledger)] == [9] * 4 + [8] * 3
        assert all("client-01" not in group for t in range(1, 8) for group in groups(run.ledger, t))
        with refuses(LedgerError, "client-01"):
            run.ledger.register(["client-01"], key=run.tombstone_key())
        run.ledger.register(["client-02", "client-1"], key=run.tombstone_key())  # others can come and stay


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "another one"])
def test_another_key_is_refused_and_the_right_one_still_works(tmp_path: Path, lost: bool) -> None:
    with toy(tmp_path / "run") as run:
        first = leave(run, "client-01")
        key = tmp_path / "keys" / "tombstone.key"
        right = key.read_bytes()
        key.unlink()
        if not lost:
            key.write_bytes(b"x" * 32)
        with refuses(LedgerError, "DISAVOW_KEYS"):
            ask(run, "client-02")
        with refuses(LedgerError, "DISAVOW_KEYS"):
            run.ledger.register(["client-01"], key=run.tombstone_key())
        assert len(run.ledger.requests()) == 1
        key.write_bytes(right)
        assert leave(run, "client-01") == first


def test_what_waits_is_honoured_without_the_key(tmp_path: Path) -> None:
    """A lost key stops new requests; it must not stop those that were placed."""
    with toy(tmp_path / "run") as run:
        ask(run, "client-01")
        (tmp_path / "keys" / "tombstone.key").unlink()
        assert [request.verdict for request in run.answer()] == [DENIABLE]


# -- between rounds and during a rebuild -------------------------------------------------------------------------


def test_requests_placed_during_training_are_honoured_between_rounds(tmp_path: Path) -> None:
    told: list[tuple[str, object]] = []
    with start_toy(tmp_path / "run", toy_settings(rounds=5)) as run:

        def on_round(summary: RoundSummary) -> None:
            told.append(("round", (summary.number, summary.attempt, summary.participants)))
            if (summary.number, summary.attempt) == (2, 1):
                ask(run, "client-01")
            if (summary.number, summary.attempt) == (4, 1):
                ask(run, *sorted(run.ledger.membership(1)[0])[:2])

        run.train(
            Callbacks(
                on_round,
                lambda verdict, requests: told.append(("verdict", (str(verdict), requests))),
                lambda request: told.append(("answer", request.number)),
            )
        )
        assert run.ledger.next_round() == (6, 1)
    rebuilt = [("round", (n, 2, 6)) for n in (1, 2, 3, 4)]
    first_two = [("round", (1, 1, 9)), ("round", (2, 1, 9))]
    assert told == [
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
    told: list[object] = []
    with toy(tmp_path / "run", clients=12, clustering={"sticky": False}) as run:
        first = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, *first)

        def on_round(summary: RoundSummary) -> None:
            told.append((summary.number, summary.attempt))
            if (summary.number, summary.attempt) == (2, 2):
                # in round 2, as just rebuilt, these two break it; round 1 is rebuilt already and may hold
                ask(run, *sorted(run.ledger.membership(2)[0])[:2])

        answered = run.answer(Callbacks(on_round, lambda verdict, requests: told.append((str(verdict), requests))))
        second = answered[-1].verdict
        assert second is not None
        assert second.round in (1, 2)
        again = [(n, 3 if n <= 2 else 2) for n in range(second.round, 5)]
        assert told == [("rollback to round 1", 2), (1, 2), (2, 2), (f"{second}", 2), *again]
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
        asked: list[str] = []

        def on_round(summary: RoundSummary) -> None:
            if summary.number == 1:
                asked.append(run.ledger.clients()[0])
                ask(run, *asked)

        answered = run.answer(Callbacks(on_round))
        assert [str(request.verdict) for request in answered] == ["deniable"] + ["rollback to round 1"] * 2
        assert answered[0].answered_at is not None
        assert answered[0].answered_at < standing(run.ledger)[2].recorded_at
        assert [s.participants for s in standing(run.ledger)] == [7, 6, 6, 6]
        for client in (*pair, *asked):
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


# -- interruptions -----------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def failing(times: Sequence[int]) -> Callable[..., Any]:
    """A hook that raises on these calls, counted from 1."""
    count = 0

    def hook(*_: Any, **__: Any) -> None:
        nonlocal count
        count += 1
        if count in times:
            raise Interrupted

    return hook


@pytest.mark.parametrize("same_process", [True, False])
@pytest.mark.parametrize("step", ["remove_leftovers", "purge", "_checkpoint", "note_evaluation", "record"])
def test_whatever_step_fails_the_next_call_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, same_process: bool
) -> None:
    with toy(tmp_path / "undisturbed") as run:
        pair = sorted(run.ledger.membership(1)[0])[:2]
        due = [(r.verdict, r.cost and r.cost.rounds) for r in leave(run, *pair)]
        models = digests(run.ledger)
    run = toy(tmp_path / "run")
    ask(run, *pair)
    real, hook = getattr(LedgerClass, step), failing([1, 3])

    def disturbed(*arguments: Any, **named: Any) -> Any:
        hook()
        return real(*arguments, **named)

    monkeypatch.setattr(LedgerClass, step, disturbed)
    interruptions = 0
    while True:
        try:
            run.answer()
        except Interrupted:
            interruptions += 1
            assert faults(tmp_path / "run") == []
            if not same_process:
                run.close()
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(LedgerClass, step, real)
                    run = reopen_toy(tmp_path / "run")
        else:
            break
    assert interruptions > 0
    assert [(r.verdict, r.cost and r.cost.rounds) for r in run.ledger.requests()] == due
    assert [r.state for r in run.ledger.requests()] == [RequestState.ANSWERED] * 2
    assert digests(run.ledger) == models
    assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *models}
    assert run.ledger.unevaluated() == ()
    run.close()
    assert fsck(tmp_path / "run") == []
    for client in pair:
        assert files_with(tmp_path / "run", client) == []


def test_superseded_models_are_gone_before_a_request_counts_as_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold the leaver undeniably: even after a failure in the very moment of their deletion."""
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        with monkeypatch.context() as patch:
            patch.setattr(ModelStore, "remove", failing([1]))
            with pytest.raises(Interrupted):
                run.answer()
        run.answer()
        assert {request.state for request in run.ledger.requests()} == {RequestState.ANSWERED}
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *digests(run.ledger)}


def test_the_last_rebuilt_round_is_evaluated_though_its_evaluation_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        real, hook = ToyEngine.evaluate, failing([4])

        def evaluate(engine: ToyEngine, model: Model) -> Evaluation:
            hook()
            return real(engine, model)

        monkeypatch.setattr(ToyEngine, "evaluate", evaluate)
        with pytest.raises(Interrupted):
            run.answer()
        run.answer()
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(n, 2) for n in range(1, 5)]
        assert run.ledger.unevaluated() == ()


def test_a_reader_in_the_way_delays_the_deletion_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log cannot be emptied under somebody who reads it."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with toy(tmp_path / "run") as run:
        ask(run, "client-01")
        with closing(sqlite3.connect(tmp_path / "run" / database.NAME, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rounds").fetchone()
            assert run.answer() == ()
            assert [request.state for request in run.ledger.requests()] == [RequestState.PURGING]
        assert faults(tmp_path / "run") == []
        assert [request.state for request in run.answer()] == [RequestState.ANSWERED]
        assert files_with(tmp_path / "run", "client-01") == []
    assert fsck(tmp_path / "run") == []


LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM rounds").fetchone()[0])
connection.close()
"""


def rounds_seen_by_another_process(directory: Path) -> int:
    command = [sys.executable, "-c", LOOK, str(directory / database.NAME)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def test_after_an_erasure_other_processes_still_see_what_the_run_records(tmp_path: Path) -> None:
    """POSIX drops all locks of a process on a file when the process closes any descriptor of that file.

    Whoever searches the bytes of an open ledger must not give up SQLite's locks that way: the next reader to close
    would take itself for the last one and delete the log, and what is recorded from then on goes nowhere.
    """
    with toy(tmp_path / "run") as run:
        assert rounds_seen_by_another_process(tmp_path / "run") == 4
        leave(run, "client-01")
        assert rounds_seen_by_another_process(tmp_path / "run") == 4
        replace(run, settings=run.settings.model_copy(update={"rounds": 6})).train()
        assert rounds_seen_by_another_process(tmp_path / "run") == 6
    assert rounds_seen_by_another_process(tmp_path / "run") == 6
    assert fsck(tmp_path / "run") == []


def test_a_check_of_a_run_at_work_raises_no_false_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`disavow erase` checks the run first, and the process that holds it may be deleting models meanwhile."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        done: list[int] = []

        def meanwhile(checked: int, total: int) -> None:
            if not done:
                done.append(total)
                with suppress(RunInUse):  # the checker is a reader too: the purge has to wait for it
                    run.answer()

        assert [str(finding) for finding in fsck(tmp_path / "run", meanwhile) if finding.fault] == []


# -- nothing is left ---------------------------------------------------------------------------------------------


def secrets_of(ledger: Ledger, client: str) -> list[bytes]:
    """All bytes that tie a slot to a client: salts, update digests, and the random number that stands for it."""
    with ledger._connect() as connection:
        number = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar_one()
        query = sa.select(memberships.c.salt, memberships.c.update_digest).where(memberships.c.client == number)
        found = [value for row in connection.execute(query) for value in row]
    return [*found, number.to_bytes(8, "big")]


def files_holding(directory: Path, secret: bytes) -> list[str]:
    return [name for name, data in files_of(directory).items() if secret in data]


def test_all_forty_clients_leave_one_by_one_and_no_file_names_any(tmp_path: Path) -> None:
    """Tables, free pages, the log."""
    order = random.Random(5)
    with start_toy(tmp_path / "run", toy_settings(clients=40, rounds=3, clustering={"k": 4})) as run:
        run.train()
        left = list(run.ledger.clients())
        order.shuffle(left)
        for done, client in enumerate(left, start=1):
            [request] = leave(run, client)
            assert request.state is RequestState.ANSWERED
            assert len(run.ledger.clients()) == 40 - done
            # while the run is still open: the log counts
            for gone in left[:done] if done % 8 == 0 else [client]:
                assert files_with(tmp_path / "run", gone) == []
            if done % 8 == 0:
                assert faults(tmp_path / "run") == []
        verdicts = {str(request.verdict) for request in run.ledger.requests()}
        assert {"deniable", "rollback to round 1"} <= verdicts
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_ties_a_slot_to_a_leaver_is_left_in_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Salt and update digest open a slot's commitment for whoever tries ids; the number links slots of one client.

    Pages that SQLite splits can keep copies of rows in what counts as free space. Where they do depends on the
    random bytes that are stored, so these are drawn from a seed here.
    """
    chance = random.Random(seed)
    monkeypatch.setattr(secrets, "token_bytes", chance.randbytes)
    monkeypatch.setattr(secrets, "randbits", chance.getrandbits)
    remains: list[str] = []
    with start_toy(tmp_path / "run", toy_settings(clients=36 + 3 * seed, rounds=3, clustering={"k": 4})) as run:
        run.train()
        left = list(run.ledger.clients())
        chance.shuffle(left)
        for client in left:
            known = secrets_of(run.ledger, client)
            assert len(known) > 2
            leave(run, client)
            remains += [client for secret in known if files_holding(tmp_path / "run", secret)]
    assert remains == []


@pytest.mark.parametrize("count", [1, 25])
def test_leaving_together_nothing_is_left_of_any(tmp_path: Path, count: int) -> None:
    ids = [f"somebody-with-a-long-name-{i:03d}" for i in range(60)]
    with start_toy(tmp_path / "run", toy_settings(clients=60, clustering={"k": 4}), ids=ids) as run:
        run.train()
        leavers = random.Random(count).sample(ids, count)
        known = [secret for client in leavers for secret in secrets_of(run.ledger, client)]
        leave(run, *leavers)
        for client in leavers:
            assert files_with(tmp_path / "run", client) == []
        assert {name for secret in known for name in files_holding(tmp_path / "run", secret)} == set()
    assert fsck(tmp_path / "run") == []


def test_a_leaver_whose_id_is_part_of_anothers_is_gone_and_the_other_stays(tmp_path: Path) -> None:
    ids = ["client-1", "client-10", "client-11", "client-2", "client-20", "client-3", "my-client-1"]
    with start_toy(tmp_path / "run", toy_settings(clients=7), ids=ids) as run:
        run.train()
        assert len(leave(run, "client-1")) == 1
        assert run.ledger.clients() == tuple(ids[1:])
        assert files_with(tmp_path / "run", "client-1", run.ledger.clients()) == []
        assert files_with(tmp_path / "run", "client-10", run.ledger.clients()) != []
        leave(run, "client-10")
        for gone in ("client-1", "client-10"):
            assert files_with(tmp_path / "run", gone, run.ledger.clients()) == []


def test_an_interrupted_purge_is_repeated_though_nobody_knows_the_ids_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(tmp_path / "run", clients=30)
    ask(run, "client-07", "client-19")
    with monkeypatch.context() as patch:
        patch.setattr(LedgerClass, "purge", failing([1]))
        with pytest.raises(Interrupted):
            run.answer()
    # rows are gone; the log still holds the pages of before
    assert [path.name for path in files_with(tmp_path / "run", "client-07")]
    shutil.copytree(tmp_path / "run", tmp_path / "crashed")  # as a killed process leaves it: log and all
    run.close()
    with reopen_toy(tmp_path / "crashed") as again:
        assert len(again.answer()) == 2
        for client in ("client-07", "client-19"):
            assert files_with(tmp_path / "crashed", client) == []


def test_a_program_whose_argument_is_the_leaver_does_not_write_it_into_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock names the program that holds the run, and after a kill it stays as it is."""
    toy(tmp_path / "run").close()
    monkeypatch.setattr(sys, "argv", ["forget.py", "client-05"])
    with reopen_toy(tmp_path / "run") as run:
        leave(run, "client-05")
        assert files_with(tmp_path / "run", "client-05") == []


def test_the_clock_of_the_run_is_the_clock_of_its_answers(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        then = replace(run, own_options=replace(run.options, clock=lambda: MOMENT))
        [request] = leave(then, "client-01")
        assert (request.asked_at, request.answered_at) == (MOMENT, MOMENT)


@dataclass(frozen=True)
class Diverging(ToyEngine):
    """From the second attempt on, somebody returns what cannot be aggregated."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number)
        if round_number == 3:
            updates.vectors[0, 0] = float("nan")
        return updates


def test_a_retraining_that_is_refused_serves_the_earlier_model_instead_of_failing_for_ever(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        pair = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, *pair)
        answered = replace(run, own_engine=Diverging(run.options.seed)).answer()
        assert [str(request.verdict) for request in answered] == ["rollback to round 1"] * 2
        assert "round 3 refused" in answered[0].remark
        assert answered[0].remark.endswith("the model of round 2 is served")
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(1, 2), (2, 2)]
        assert not set(pair) & set(run.ledger.clients())
    assert fsck(tmp_path / "run") == []
    for client in pair:
        assert files_with(tmp_path / "run", client) == []


@dataclass(frozen=True)
class Unfit(ToyEngine):
    """Somebody's engine of another model: it never says so, and its updates are too short."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number, epochs=epochs)
        return replace(updates, vectors=updates.vectors[:, :-1])


@dataclass(frozen=True)
class Stranger(ToyEngine):
    """Somebody's engine that has never heard of these clients."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        raise KeyError(clients[0])


@pytest.mark.parametrize(("engine", "error"), [(Unfit, CannotRetrain), (Stranger, KeyError)])
def test_an_engine_that_cannot_train_the_run_undoes_nothing(
    tmp_path: Path, engine: type[ToyEngine], error: type[Exception]
) -> None:
    with toy(tmp_path / "run") as run:
        numbers, before = ask(run, *sorted(run.ledger.membership(1)[0])[:2]), run.ledger.summaries()
        with pytest.raises(error):
            replace(run, own_engine=engine(run.options.seed)).answer()
        assert run.ledger.summaries() == before
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.WAITING}
        run.answer()
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.ANSWERED}


@pytest.mark.parametrize("changed", [{"model": {"name": "convnet"}}, {"data": {"clients": 4}}])
@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_our_engines_refuse_another_model_and_clients_they_have_no_data_of(
    real: Path, changed: dict[str, Any], name: str
) -> None:
    """The ids of the first four clients are the same: one of the others must be looked for."""
    values = {**REAL, "engine": {"name": name}, **changed}
    with reopened(real) as run, closing(runs.prepare(config.from_values(values, source="tests")).engine) as engine:
        numbers, before = ask(run, *pair_first_together_in(run.ledger, 3)), run.ledger.summaries()
        with pytest.raises(CannotRetrain):
            replace(run, own_engine=engine).answer()
        assert run.ledger.summaries() == before
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.WAITING}
