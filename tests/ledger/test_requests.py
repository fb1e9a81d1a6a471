"""Requests as rows: placed once, found again, and refused when the key is not the run's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.domain import Cost, RequestState, Verdict, VerdictKind
from disavow.errors import AlreadyForgotten, LeaverReturns, RequestNotOpen, RunError, UnknownClient
from disavow.ledger import Ledger, fsck, journal, log
from disavow.ledger.id_search import files_with
from disavow.ledger.requests import find
from disavow.ledger.schema import requests
from tests.ledger.making import IDS, MOMENT, all_rows, by_hand, change, create, record_next, two_clusters
from tests.refusals import refuses


def place(ledger: Ledger, *ids: str) -> tuple[int, ...]:
    return ledger.place_requests(ids, at=MOMENT)


def test_a_request_waits_until_somebody_answers_it(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        assert ledger.requests() == ()
        [number] = place(ledger, "cleo")
        [request] = ledger.requests()
        assert (request.number, request.client, request.state) == (number, "cleo", RequestState.WAITING)
        assert (request.verdict, request.cost, request.answered_at, request.remark) == (None, None, None, "")
        assert request.asked_at == MOMENT
        # whoever waits is still in: only an answer takes it out
        assert ledger.clients() == IDS


def test_numbers_come_in_the_order_of_asking_and_are_listed_so(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        numbers = place(ledger, "dora", "ada")
        assert numbers == (1, 2)
        assert place(ledger, "bela", "dora") == (3, 1)
        assert [request.client for request in ledger.requests()] == ["dora", "ada", "bela"]
        assert [request.client for request in ledger.requests([3, 1])] == ["dora", "bela"]
        assert ledger.requests([]) == ()
        assert ledger.requests([99]) == ()


def test_asking_twice_keeps_the_first_time(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        first = place(ledger, "ada")
        again = ledger.place_requests(["ada", "ada"], at=MOMENT + timedelta(days=1))
        assert again == first * 2
        assert [request.asked_at for request in ledger.requests()] == [MOMENT]


def test_who_is_unknown_is_refused_and_then_nothing_is_placed(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        with refuses(UnknownClient, "'nobody'"):
            place(ledger, "ada", "nobody")
        assert ledger.requests() == ()
        # a name that differs in anything is another name
        for name in ("Ada", "ada ", "", "ad", "adaa"):
            with pytest.raises(UnknownClient):
                place(ledger, name)


def test_an_id_that_is_no_proper_text_is_an_unknown_client_like_any_other(tmp_path: Path) -> None:
    """The command line hands over bytes that are no UTF-8 as lone surrogates."""
    with create(tmp_path / "run") as ledger, pytest.raises(UnknownClient):
        place(ledger, "\udcff")


def test_neither_an_id_nor_what_derives_from_it_without_a_key_is_in_a_request(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        number = ledger.numbers_of(["ada"])["ada"]
    with by_hand(tmp_path / "run") as connection:
        [row] = connection.execute("SELECT * FROM requests").fetchall()
    assert not any(b"ada" in value for value in row if isinstance(value, bytes))
    assert "ada" not in row
    assert number in row
    with create(tmp_path / "other") as ledger:  # random, and so another one in another run
        assert ledger.numbers_of(["ada"])["ada"] != number


def test_whoever_waits_is_a_client_and_registering_it_again_changes_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        ledger.register(["new", "ada"])
        assert ledger.clients() == (*IDS[:4], "new")
        assert [request.client for request in ledger.requests()] == ["ada"]


def test_requests_can_be_placed_beside_the_process_that_holds_the_run(tmp_path: Path) -> None:
    with create(tmp_path / "run") as holder:
        with Ledger.open(tmp_path / "run", shared=True) as guest:
            assert place(guest, "ada") == (1,)
        assert [request.client for request in holder.requests()] == ["ada"]
        record_next(holder)
    with Ledger.open(tmp_path / "run") as reader:
        assert len(reader.requests()) == 1


def test_a_reader_places_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
    before = all_rows(tmp_path / "run")
    with Ledger.open(tmp_path / "run") as reader, refuses(RunError, "cannot be written"):
        place(reader, "ada")
    assert all_rows(tmp_path / "run") == before


def test_what_became_of_requests_is_told_with_the_verdict_of_each(tmp_path: Path) -> None:
    ids = (*IDS, "never")
    with create(tmp_path / "run", clients=ids) as ledger:
        record_next(ledger, clusters=two_clusters(), seconds=1.5)
        place(ledger, "ada", "never")
        verdict = Verdict(VerdictKind.ROLLBACK, 1)
        with ledger._begin() as connection:
            waiting = journal.waiting(connection)
            erasure = journal.open_erasure(
                connection, ledger.members, waiting, verdict, mechanism="retrain", at=MOMENT
            )
            journal.supersede(connection, 1, erasure)
        one, two = ledger.requests()
        assert (one.verdict, one.state) == (verdict, RequestState.REBUILDING)
        assert two.verdict == Verdict(VerdictKind.NEVER_PRESENT)
        assert ledger.clients() == ("bela", "cleo", "dora")
        with ledger._begin() as connection:
            journal.finish_rebuilding(connection, epochs=2, model_bytes=10, remark="nobody was left")
            leavers = journal.leavers_to_forget(connection)
        ledger.forget(leavers)
        one, two = ledger.requests()
        assert (one.client, one.state, one.remark) == (None, RequestState.DELETING, "nobody was left")
        assert one.cost == Cost()
        with ledger._begin() as connection:
            assert journal.finish(connection, ledger.keyring, at=MOMENT + timedelta(seconds=3)) == (1, 2)
        one, two = ledger.requests()
        assert one.state is two.state is RequestState.ANSWERED
        assert one.answered_at == MOMENT + timedelta(seconds=3)
        # the id is gone; the tombstone still knows it, but not by which request
        with refuses(AlreadyForgotten, "'ada'"):
            place(ledger, "ada")
        with refuses(LeaverReturns, "'ada'"):
            ledger.register(["ada"])


# -- cancelled ---------------------------------------------------------------------------------------------------


def judge_all(ledger: Ledger) -> None:
    """Everybody who waits is deniable."""
    with ledger._begin() as connection:
        waiting, verdict = journal.waiting(connection), Verdict(VerdictKind.DENIABLE)
        erasure = journal.open_erasure(connection, ledger.members, waiting, verdict, mechanism="retrain", at=MOMENT)
        log.log_erasure(connection, ledger.members, erasure)


def test_a_request_that_waits_can_be_cancelled_and_then_is_as_if_nobody_had_asked(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada", "bela")
        later = MOMENT + timedelta(hours=1)
        assert ledger.cancel_request("ada", at=later) == 1
        assert ledger.cancel_request("ada", at=later + timedelta(hours=1)) == 1  # once is enough
        cancelled, waits = ledger.requests()
        assert (cancelled.state, cancelled.cancelled_at, cancelled.client) == (RequestState.CANCELLED, later, "ada")
        assert (cancelled.pending, cancelled.judged, waits.pending) == (False, False, True)
        with ledger._connect() as connection:
            assert list(journal.waiting(connection).clients) == [waits.number]
            assert find(connection, ledger.members, "ada") is None
        ledger.register(["ada"])  # no leaver: nobody refuses its return
        assert ledger.clients() == IDS
    assert fsck(tmp_path / "run") == []


def test_whoever_cancelled_may_ask_again_and_leave(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        place(ledger, "bela")
        ledger.cancel_request("bela", at=MOMENT)
        assert place(ledger, "bela") == (2,)
        judge_all(ledger)
        with ledger._begin() as connection:
            leavers = journal.leavers_to_forget(connection)
        ledger.forget(leavers)
        with ledger._begin() as connection:
            journal.finish(connection, ledger.keyring, at=MOMENT)
        first, second = ledger.requests()
        assert (first.state, first.client, second.state) == (RequestState.CANCELLED, None, RequestState.ANSWERED)
        with ledger._connect() as connection:
            assert connection.execute(sa.select(requests.c.client)).scalars().all() == [None, None]
        assert "bela" not in ledger.clients()
        with refuses(LeaverReturns, "'bela'"):
            ledger.register(["bela"])
    assert [finding for finding in fsck(tmp_path / "run") if finding.fault] == []
    # not "ada": the random id of a run, which is hexadecimal, may contain it
    assert files_with(tmp_path / "run", "bela") == []


def test_what_cannot_be_cancelled_is_refused_and_stays(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        place(ledger, "ada")
        with pytest.raises(UnknownClient):
            ledger.cancel_request("nobody", at=MOMENT)
        with refuses(RunError, "bela", "not asked"):
            ledger.cancel_request("bela", at=MOMENT)
        judge_all(ledger)
        with refuses(RequestNotOpen, "ada", "verdict"):
            ledger.cancel_request("ada", at=MOMENT)
        assert [request.judged for request in ledger.requests()] == [True]


def test_a_cancelled_request_that_was_changed_is_found(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        ledger.cancel_request("ada", at=MOMENT)
    change(tmp_path / "run", "UPDATE requests SET cancelled_at = NULL")
    assert {finding.where for finding in fsck(tmp_path / "run")} == {"request 1"}
