"""Requests that meet: for records and for the whole client, on hold, given up, placed meanwhile, beside a purge."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from disavow.domain import RequestState
from disavow.erasure.erase import delete, judge_waiting
from disavow.errors import IntegrityError
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.journal import CLIENT_LEAVES
from disavow.ledger.keyring import Keyring
from disavow.ledger.keyring.table import TABLE
from disavow.ledger.requests import NewRequest
from disavow.rounds.options import now
from tests.erasure.random_task import RandomTask, settings_of
from tests.refusals import refuses

TASK = RandomTask(5)
RECORD = TASK.record_keys("site-3")[0]
ALWAYS_BACK: dict[str, Any] = {"delta": 1e-9}
"""Nobody is deniable: every request goes back to round 1."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return tmp_path / "keys"


def trained(tmp_path: Path, task: RandomTask = TASK, **settings: Any) -> Path:
    with Federation.create(tmp_path / "run", task, settings=settings_of(5, **settings)) as federation:
        federation.train()
    return tmp_path / "run"


def ask_for_record(run: Path, client: str = "site-3", record: str = RECORD) -> int:
    with Ledger.open(run, shared=True) as ledger:
        return ledger.place_record_requests({client: [record]}, at=now())[client]


def ask_to_leave(run: Path, client: str = "site-3") -> int:
    with Ledger.open(run, shared=True) as ledger:
        return ledger.place_requests([client], at=now())[0]


def judge_now(federation: Federation) -> None:
    """Judge whoever waits, and train nothing yet."""
    judge_waiting(federation.ledger, federation.options, federation.mechanism, lambda verdict, requests: None)


# -- on hold -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["paused", "not approved"])
def test_what_is_on_hold_when_its_client_leaves_is_given_up(tmp_path: Path, held: str) -> None:
    run = trained(tmp_path, requests={"approval": "never" if held == "paused" else "always"})
    of_record, of_client = ask_for_record(run), ask_to_leave(run)
    with Federation.open(run, TASK) as federation:
        if held == "paused":
            federation.pause(of_record, by="dpo", reason="who is it?")
        else:
            federation.approve(of_client, by="dpo")
        assert [request.number for request in federation.answer()] == [of_client]
        given_up = federation.request(of_record)
        assert (given_up.state, given_up.history[-1].reason) == (RequestState.CANCELLED, CLIENT_LEAVES)
        assert federation.answer() == ()
    assert not fsck(run)


def test_what_is_on_hold_cannot_be_let_go_while_its_client_is_rebuilt_without(tmp_path: Path) -> None:
    run = trained(tmp_path, **ALWAYS_BACK, requests={"approval": "always"})
    of_record, of_client = ask_for_record(run), ask_to_leave(run)
    with Federation.open(run, TASK, write=True) as federation:
        federation.approve(of_client, by="dpo")
        judge_now(federation)
        assert federation.request(of_client).state is RequestState.REBUILDING
        assert federation.request(of_record).state is RequestState.CANCELLED
        assert [request.number for request in federation.answer()] == [of_client]
    assert not fsck(run)


def test_a_request_for_records_is_approved_by_the_digest_of_its_own_forecast(tmp_path: Path) -> None:
    run = trained(tmp_path, **ALWAYS_BACK, requests={"approval": "always"})
    number = ask_for_record(run)
    with Federation.open(run, TASK) as federation:
        federation.approve(number, by="dpo", forecast_digest=federation.forecast_of(number).digest)
        assert [request.number for request in federation.answer()] == [number]
    assert not fsck(run)


# -- given up ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cancel", "refuse"])
def test_killed_before_it_is_given_up_a_request_still_has_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    run = trained(tmp_path)
    number = ask_for_record(run)

    def killed(*_: object) -> None:
        raise Killed

    with Federation.open(run, TASK) as federation:
        with monkeypatch.context() as patched:
            patched.setattr(Keyring, "advance", killed)  # the last step before the run commits
            with pytest.raises(Killed):
                getattr(federation, kind)(number, by="dpo", reason="a mistake")
        assert federation.request(number).state is RequestState.WAITING
        federation.answer()
        assert federation.ledger.exclusions()["site-3"].excludes(RECORD)
    assert not fsck(run)


def test_nothing_is_judged_of_which_the_keyring_has_lost_the_records(tmp_path: Path) -> None:
    run = trained(tmp_path)
    number = ask_for_record(run)
    with Federation.open(run, TASK) as federation:
        with closing(sqlite3.connect(federation.ledger.keyring.folder / TABLE)) as table:
            [nonce] = table.execute("SELECT request FROM requests").fetchone()
        federation.ledger.keyring.forget_requested_records(nonce)
        with refuses(IntegrityError):
            federation.answer()
        assert federation.request(number).state is RequestState.WAITING
        federation.cancel(number)
        assert federation.answer() == ()
    assert not fsck(run)


def test_no_word_is_wanted_for_a_request_that_was_refused(tmp_path: Path) -> None:
    run = trained(tmp_path)
    number = ask_for_record(run)
    with Federation.open(run, TASK) as federation:
        assert set(federation.ledger.words_wanted("site-3")) == {number}
        federation.refuse(number, by="dpo", reason="not theirs")
        assert federation.ledger.words_wanted("site-3") == {}
    assert not fsck(run)


# -- meanwhile ---------------------------------------------------------------------------------------------------


def test_a_request_between_a_verdict_and_the_new_key_is_of_the_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever places it waits for the transaction of the verdict, and is faster than who judged."""
    run = trained(tmp_path)
    ask_for_record(run)
    with Federation.open(run, TASK, write=True) as federation, Ledger.open(run, shared=True) as other:
        complete, placed = Ledger.complete_record_requests, list[int]()

        def after_another(ledger: Ledger) -> tuple[str, ...]:
            if not placed:
                with other.transaction() as transaction:
                    placed.extend(transaction.place_requests([NewRequest("site-3")], at=now()))
            return complete(ledger)

        monkeypatch.setattr(Ledger, "complete_record_requests", after_another)
        federation.answer()
        federation.answer()
        assert {request.state for request in federation.requests()} == {RequestState.ANSWERED}
        assert "site-3" not in federation.clients()
    assert not fsck(run)


@pytest.mark.parametrize("back", [True, False])
def test_interrupted_before_the_new_key_is_in_use_the_same_process_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """As by Ctrl-C in a notebook, or a full disk: the run stays open, and is asked to answer again."""
    run = trained(tmp_path, **(ALWAYS_BACK if back else {}))
    ask_for_record(run)

    def interrupted(*_: object) -> None:
        raise Killed

    with Federation.open(run, TASK, write=True) as federation:
        federation.load()
        with monkeypatch.context() as patched:
            patched.setattr(Keyring, "put_in_place_of", interrupted)
            with pytest.raises(Killed):
                federation.answer()
        federation.answer()
        assert [request.state for request in federation.requests()] == [RequestState.ANSWERED]
        assert "site-3" in federation.clients()
        assert federation.ledger.exclusions()["site-3"].excludes(RECORD)
        assert federation.ledger.rounds_with("site-3") == ((1, 2, 3) if back else ())
    assert not fsck(run)


@pytest.mark.parametrize("fraction", [1.0, 0.7])
def test_a_client_leaves_and_returns_while_rounds_are_rebuilt_without_its_record(
    tmp_path: Path, fraction: float
) -> None:
    run = trained(tmp_path, **ALWAYS_BACK, training={"fraction": fraction})
    ask_for_record(run)
    with Federation.open(run, TASK, write=True) as federation:
        judge_now(federation)
        ask_to_leave(run)
        judge_now(federation)
        delete(federation.ledger, federation.options, federation.mechanism, tmp_path / "openings")
        assert federation.ledger.has_left("site-3")
    assert not fsck(run)  # its old key is there until its proof is made
    with Federation.open(run, TASK, write=True) as federation:
        federation.readmit("site-3", by="dpo", reason="consents again")
        assert not federation.ledger.keyring.faults()
        federation.answer()
        assert {request.state for request in federation.requests()} == {RequestState.ANSWERED}
        assert federation.ledger.exclusions()["site-3"].excludes(RECORD)
        assert "site-3" in federation.clients()
    assert not fsck(run)


def test_a_run_from_before_keeps_what_its_client_asks_for_under_another_key(tmp_path: Path) -> None:
    """One request was answered since the backup, and the others went on waiting under the client's new key."""
    run = trained(tmp_path, requests={"approval": "always"})
    other = next(key for key in TASK.record_keys("site-3") if key != RECORD)
    answered, of_record, of_client = ask_for_record(run), ask_for_record(run, record=other), ask_to_leave(run)
    shutil.copytree(run, tmp_path / "backup")
    with Federation.open(run, TASK) as federation:
        federation.approve(answered, by="dpo")
        assert [request.number for request in federation.answer()] == [answered]
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "backup", run)
    Ledger.accept(run)
    with Federation.open(run, TASK) as federation:
        federation.answer()
        states = {request.number: request.state for request in federation.requests()}
        assert states[answered] is RequestState.CANCELLED
        assert (states[of_record], states[of_client]) == (RequestState.WAITING, RequestState.WAITING)
        federation.approve(of_record, by="dpo")
        federation.answer()
        assert federation.ledger.exclusions()["site-3"].excludes(other)
        federation.approve(of_client, by="dpo")
        federation.answer()
        assert federation.ledger.has_left("site-3")
    assert not fsck(run)


# -- purge -------------------------------------------------------------------------------------------------------


def test_a_purge_of_somebody_whose_own_rollback_undoes_all_its_rounds(tmp_path: Path) -> None:
    run = trained(tmp_path, **ALWAYS_BACK)
    number = ask_to_leave(run)
    with Federation.open(run, TASK) as federation:
        done = federation.purge()
        assert (done.purge, [request.number for request in done.requests]) == (None, [number])
    assert not fsck(run)


def test_whoever_only_has_records_erased_is_left_to_retrain_a_purge(tmp_path: Path) -> None:
    task = RandomTask(5, clients=4)
    run = trained(tmp_path, task)
    with Federation.open(run, task) as federation:
        federation.erase("site-0")
        number = ask_for_record(run, "site-3", task.record_keys("site-3")[0])
        forecast = federation.forecast_purge()  # three are left, and k is 3
        assert (forecast.obstacle, forecast.requests) == (None, (1, number))
        assert [request.number for request in federation.purge().requests] == [1, number]
    assert not fsck(run)
