"""The history of requests as rows: written with every change, sealed, refused where it must be, checked by fsck."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from disavow.domain import Approval, Decision, EventKind, RequestState, Verdict, VerdictKind
from disavow.domain.history import months_after
from disavow.errors import (
    ConfigError,
    DeadlineRefused,
    LeaverReturns,
    NotForgotten,
    RequestNotOpen,
    RunOutdated,
    TextNamesClient,
    UnknownClient,
    UnknownRequest,
)
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.id_search import files_with, tables_with
from tests.database_option import on_postgres
from tests.ledger.making import MOMENT, by_hand, change, create, record_next, vector
from tests.ledger.test_requests import judge_all, place
from tests.refusals import refuses

DAY = timedelta(days=1)
DUE = months_after(MOMENT, 1)


def decided(reason: str = "because", *, by: str = "officer", after: timedelta = DAY) -> Decision:
    return Decision(by, MOMENT + after, reason)


def kinds(ledger: Ledger, number: int = 1) -> list[str]:
    return [event.kind.value for event in ledger.request(number).history]


def faults(run: Path) -> list[str]:
    """Where fsck finds faults; that nobody has proved anything here is none."""
    return [finding.where for finding in fsck(run) if finding.fault]


def forget(ledger: Ledger, client: str) -> None:
    """Erase a client whose departure is deniable, as `erase` does once it is proved."""
    place(ledger, client)
    judge_all(ledger)
    leavers = list(ledger.leavers_to_forget())
    with ledger.transaction() as transaction:
        transaction.give_up_contributions(leavers)
    ledger.forget(leavers)
    with ledger.transaction() as transaction:
        transaction.finish_erasures(at=MOMENT + 2 * DAY)


def test_every_change_is_an_event_of_the_same_transaction(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        place(ledger, "ada")
        place(ledger, "ada")
        ledger.decide_request(1, EventKind.PAUSED, decided("whose is it?"))
        ledger.decide_request(1, EventKind.RESUMED, decided("passport", after=3 * DAY))
        ledger.decide_request(1, EventKind.EXTENDED, decided("many", after=4 * DAY))
        ledger.decide_request(1, EventKind.APPROVED, decided("", after=5 * DAY))
        forget(ledger, "bela")
        assert kinds(ledger) == [
            *("received", "duplicate", "paused", "resumed", "extended", "approved", "judged", "answered")
        ]
        found = ledger.request(1)
        assert [(event.actor, event.reason) for event in found.history[2:4]] == [
            ("officer", "whose is it?"),
            ("officer", "passport"),
        ]
        assert found.due == found.extended_until == months_after(MOMENT, 3) + 2 * DAY
        assert (found.approval, found.state) == (Approval.APPROVED, RequestState.ANSWERED)
        assert kinds(ledger, 2) == ["received", "judged", "answered"]
    assert faults(tmp_path / "run") == []


def test_paused_refused_and_cancelled_requests_do_not_wait(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada", "bela", "cleo", "dora")
        ledger.decide_request(1, EventKind.PAUSED, decided())
        ledger.decide_request(2, EventKind.REFUSED, decided())
        ledger.decide_request(3, EventKind.CANCELLED, decided("", by=""))
        assert list(ledger.waiting().clients) == [4]
        states = [RequestState.PAUSED, RequestState.REFUSED, RequestState.CANCELLED, RequestState.WAITING]
        assert [request.state for request in ledger.requests()] == states
        assert [request.number for request in ledger.open_requests()] == [1, 4]
        # whoever was refused may ask again: another request, and the first one stays in the register
        assert place(ledger, "bela", "ada") == (5, 1)
        ledger.decide_request(1, EventKind.RESUMED, decided())
        assert list(ledger.waiting().clients) == [1, 4, 5]
    assert faults(tmp_path / "run") == []


def test_approved_requests_are_told_from_others(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada", "bela")
        ledger.decide_request(2, EventKind.APPROVED, decided(""))
        assert [list(ledger.waiting(approved=which).clients) for which in (True, False, None)] == [[2], [1], [1, 2]]


@pytest.mark.parametrize("kind", [EventKind.APPROVED, EventKind.REFUSED, EventKind.PAUSED, EventKind.EXTENDED])
def test_what_is_closed_stays_as_it_is(tmp_path: Path, kind: EventKind) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        forget(ledger, "ada")
        place(ledger, "bela", "cleo")
        ledger.decide_request(2, EventKind.REFUSED, decided())
        ledger.cancel_request("cleo", at=MOMENT)
        before = [request.history for request in ledger.requests()]
        for number in (1, 2, 3):
            with refuses(RequestNotOpen, f"request {number}"):
                ledger.decide_request(number, kind, decided())
        assert [request.history for request in ledger.requests()] == before


def test_decisions_that_make_no_sense_are_refused_and_change_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        for number in (0, -1, 2, 10**30):
            with refuses(UnknownRequest, number):
                ledger.decide_request(number, EventKind.APPROVED, decided())
        with refuses(RequestNotOpen, "waiting"):
            ledger.decide_request(1, EventKind.RESUMED, decided())
        ledger.decide_request(1, EventKind.APPROVED, decided())
        with refuses(RequestNotOpen, "approved already"):
            ledger.decide_request(1, EventKind.APPROVED, decided())
        ledger.decide_request(1, EventKind.PAUSED, decided())
        for kind in (EventKind.PAUSED, EventKind.EXTENDED):
            with refuses(RequestNotOpen, "paused"):
                ledger.decide_request(1, kind, decided())
        assert kinds(ledger) == ["received", "approved", "paused"]


@pytest.mark.parametrize(
    ("after", "until"),
    [
        (DAY, MOMENT),  # in the past
        (DAY, DUE),  # no extension at all
        (DAY, months_after(MOMENT, 3) + timedelta(seconds=1)),  # too far
        (DUE - MOMENT, None),  # it is due
        (DUE - MOMENT + DAY, DUE + 2 * DAY),  # it was
    ],
)
def test_a_deadline_that_may_not_be_set_is_refused(tmp_path: Path, after: timedelta, until: object) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        with refuses(DeadlineRefused, "request 1"):
            ledger.decide_request(1, EventKind.EXTENDED, decided(after=after), until=until)  # type: ignore[arg-type]
        assert ledger.request(1).due == DUE


def test_a_deadline_is_extended_once(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        place(ledger, "ada")
        ledger.decide_request(1, EventKind.EXTENDED, decided(), until=DUE + DAY)
        with refuses(DeadlineRefused, "extended before"):
            ledger.decide_request(1, EventKind.EXTENDED, decided(), until=DUE + 2 * DAY)
        assert ledger.request(1).due == DUE + DAY


@pytest.mark.parametrize(
    ("by", "reason", "refusal"),
    [
        ("officer", "ada was here", TextNamesClient),
        ("ada", "because", TextNamesClient),
        ("officer", " ".join(["word"] * 100) + " (cleo)", TextNamesClient),
        ("officer", "gone, too", TextNamesClient),
        ("", "because", ConfigError),
        ("officer", " ", ConfigError),
        ("officer", "x" * 2001, ConfigError),
        ("officer\x1b[31m", "because", ConfigError),
        ("officer", "\udcff", ConfigError),
    ],
)
def test_a_text_that_may_not_be_kept_is_refused(
    tmp_path: Path, by: str, reason: str, refusal: type[ConfigError]
) -> None:
    with create(tmp_path / "run", clients=["ada", "bela", "cleo", "dora", "gone"]) as ledger:
        record_next(ledger)
        forget(ledger, "gone")
        place(ledger, "ada")
        with refuses(refusal):
            ledger.decide_request(2, EventKind.PAUSED, decided(reason, by=by))
        assert kinds(ledger, 2) == ["received"]
        with refuses(TextNamesClient):
            ledger.place_requests(["bela"], at=MOMENT, by="cleo")
        assert len(ledger.requests()) == 2


def test_who_and_why_are_sealed_and_nobody_is_named_without_the_keyring(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        place(ledger, "ada")
        ledger.decide_request(1, EventKind.PAUSED, decided("a secret reason", by="a secret officer"))
        record_next(ledger)
        ledger.note_release(
            digest="d", newest=1, after=ledger.served_model_digest(), averaged=1, to="a secret ministry", at=MOMENT
        )
    searched = tables_with if on_postgres() else files_with
    assert searched(run, "a secret") == []
    with Ledger.open(run, keys=tmp_path / "nowhere") as ledger:
        paused = ledger.request(1).history[1]
        assert (paused.kind, paused.actor, paused.reason) == (EventKind.PAUSED, None, None)
        assert ledger.request(1).client is None
        assert [release.recipient for release in ledger.releases()] == [None]


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE request_events SET at = '2020-01-01T00:00:00.000000+00:00' WHERE id = 2", "event 2 of request 1"),
        ("UPDATE request_events SET kind = 'resumed' WHERE id = 2", "event 2 of request 1"),
        ("UPDATE request_events SET sealed = NULL WHERE id = 2", "event 2 of request 1"),
        ("UPDATE request_events SET kind = 'nonsense' WHERE id = 2", "table request_events"),
        ("DELETE FROM request_events WHERE id = 2", "table request_events"),
        ("DELETE FROM request_events WHERE id = 3", "table request_events"),
        ("UPDATE requests SET paused_at = NULL", "request 1"),
        ("UPDATE requests SET approved_at = asked_at", "request 1"),
        ("UPDATE releases SET averaged = 2", "release 1"),
        ("UPDATE releases SET sealed = (SELECT sealed FROM request_events WHERE id = 2)", "release 1"),
        ("DELETE FROM releases", "table releases"),
    ],
)
def test_fsck_finds_whatever_was_changed_by_hand(tmp_path: Path, statement: str, where: str) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        place(ledger, "ada")
        record_next(ledger)
        ledger.decide_request(1, EventKind.PAUSED, decided())
        ledger.decide_request(1, EventKind.APPROVED, decided(""))
        ledger.note_release(
            digest="d", newest=1, after=ledger.served_model_digest(), averaged=1, to="somebody", at=MOMENT
        )
    assert faults(run) == []
    change(run, statement)
    assert where in [finding.where for finding in fsck(run)]


def test_decisions_count_as_commits_so_that_an_older_copy_is_noticed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        place(ledger, "ada")
        if on_postgres():
            pytest.skip("a directory is no backup of a database server")
    with by_hand(run) as connection:
        connection.execute("VACUUM INTO ?", [str(tmp_path / "older")])
    with Ledger.open(run, shared=True) as ledger:
        ledger.decide_request(1, EventKind.REFUSED, decided())
    for end in ("-wal", "-shm"):
        (run / f"ledger.sqlite3{end}").unlink(missing_ok=True)
    (tmp_path / "older").replace(run / "ledger.sqlite3")
    with pytest.raises(RunOutdated):
        Ledger.open(run, write=True)


def test_decisions_are_made_beside_the_process_that_holds_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as holder:
        place(holder, "ada")
        with Ledger.open(run, shared=True) as guest:
            guest.decide_request(1, EventKind.PAUSED, decided())
        assert holder.request(1).paused
        record_next(holder)


# -- releases ----------------------------------------------------------------------------------------------------


def test_a_release_is_superseded_once_its_newest_round_is_undone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        initial = ledger.served_model_digest()
        models = [initial, *(record_next(ledger, vector(number)).after for number in (1, 2))]
        for number, after in enumerate(models):
            ledger.note_release(digest=after, newest=number, after=after, averaged=1, to=f"to {number}", at=MOMENT)
        ledger.note_release(digest="mean", newest=2, after=models[2], averaged=2, to="mean", at=MOMENT)
        assert not any(release.superseded for release in ledger.releases())
        place(ledger, "ada")
        with ledger.transaction() as transaction:
            verdict = Verdict(VerdictKind.ROLLBACK, 2)
            waiting = transaction.waiting()
            erasure = transaction.open_erasure(waiting, verdict, mechanism="retrain", at=MOMENT + DAY)
            transaction.supersede(2, erasure)
        found = ledger.releases()
        assert [(each.round, each.recipient, each.superseded_at) for each in found] == [
            (0, "to 0", None),
            (1, "to 1", None),
            (2, "to 2", MOMENT.astimezone(UTC) + DAY),
            (2, "mean", MOMENT.astimezone(UTC) + DAY),
        ]


def test_a_recipient_who_is_a_client_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        for name in ("dora", "the hospital (dora)"):
            with refuses(TextNamesClient):
                ledger.note_release(
                    digest="d", newest=0, after=ledger.initial_model, averaged=1, to=name, at=MOMENT
                )
        assert ledger.releases() == ()


# -- returning ---------------------------------------------------------------------------------------------------


def test_whoever_returns_has_a_new_key_and_leaves_again_as_anybody(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        record_next(ledger)
        before = ledger.keyring.find("ada")
        forget(ledger, "ada")
        with pytest.raises(LeaverReturns):
            ledger.register(["ada"])
        with Ledger.open(run, shared=True) as guest:
            guest.readmit("ada", decided("consents again"))
        after = ledger.keyring.find("ada")
        assert before is not None
        assert after is not None
        assert before.number != after.number
        assert before.first != after.first
        assert "ada" in ledger.clients()
        assert not ledger.has_left("ada")
        assert ledger.rounds_with("ada") == ()  # what it was forgotten for stays forgotten
        assert ledger.find_request("ada") is None
        assert [(each.by, each.reason) for each in ledger.readmissions("ada")] == [("officer", "consents again")]
        record_next(ledger)
        assert ledger.rounds_with("ada") == (2,)
        forget(ledger, "ada")
        assert ledger.has_left("ada")
        with pytest.raises(LeaverReturns):
            ledger.register(["ada"])
        ledger.readmit("ada", decided("and again"))
        assert [each.reason for each in ledger.readmissions("ada")] == ["consents again", "and again"]
        assert ledger.keyring.tombstones() == 0
    assert faults(run) == []
    assert files_with(run, "consents again") == []


def test_whoever_is_in_or_never_was_is_not_readmitted(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        with refuses(NotForgotten, "ada"):
            ledger.readmit("ada", decided())
        with refuses(UnknownClient, "nobody"):
            ledger.readmit("nobody", decided())
        forget(ledger, "ada")
        for decision in (decided(""), decided(by=""), decided("bela agrees"), decided("ada agrees")):
            with pytest.raises(ConfigError):
                ledger.readmit("ada", decision)
        assert ledger.has_left("ada")
        ledger.readmit("ada", decided())
        with refuses(NotForgotten, "ada"):
            ledger.readmit("ada", decided())


def test_a_damaged_tombstone_is_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with create(run) as ledger:
        record_next(ledger)
        forget(ledger, "ada")
        ledger.readmit("ada", decided())
        table = ledger.keyring.folder / "clients.sqlite3"
    for statement, count in (
        ("UPDATE tombstones SET readmitted = x'00'", 1),
        ("UPDATE tombstones SET gone = 1", 2),
    ):
        with closing(sqlite3.connect(table)) as connection:
            connection.execute(statement)
            connection.commit()
        assert faults(run) == ["keyring"] * count


def test_a_copy_has_histories_and_releases(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", tmp_path / "copied keys"
    with create(run) as ledger:
        record_next(ledger)
        place(ledger, "ada")
        ledger.decide_request(1, EventKind.PAUSED, decided())
        ledger.note_release(
            digest="d", newest=1, after=ledger.served_model_digest(), averaged=1, to="somebody", at=MOMENT
        )
        expected = ledger.requests(), ledger.releases()
        copy_run(run, tmp_path / "copy", keys=ledger.keyring.folder.parent.parent, target_keys=keys)
    with Ledger.open(tmp_path / "copy", keys=keys) as copy:
        assert (copy.requests(), copy.releases()) == expected
    assert fsck(tmp_path / "copy", keys=keys) == []
