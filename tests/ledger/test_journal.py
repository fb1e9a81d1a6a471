"""The journal: every step one transaction, none of them lost or taken twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from disavow.domain import Cluster, Cost, RequestState, Slot, Verdict, VerdictKind
from disavow.ledger import Ledger, fsck, journal, log
from disavow.ledger.schema import erasures, memberships, models, requests, rounds, withdrawals
from tests.ledger.making import IDS, MOMENT, POLICY, create, member, record_next, two_clusters

DENIABLE = Verdict(VerdictKind.DENIABLE)


@dataclass
class Book:
    """A ledger of three rounds, with shorthand for the journal's steps."""

    ledger: Ledger

    def open(self, verdict: Verdict, *ids: str) -> int:
        self.ledger.place_requests(ids, at=MOMENT)
        with self.ledger._begin() as connection:
            waiting = journal.waiting(connection)
            erasure = journal.open_erasure(
                connection, self.ledger.members, waiting, verdict, mechanism="retrain", at=MOMENT
            )
            if verdict.round is not None:
                journal.supersede(connection, verdict.round, erasure)
            log.log_erasure(connection, self.ledger.members, erasure)
        return erasure

    def rebuilt(self, *, epochs: int = 2, model_bytes: int = 10, remark: str = "") -> None:
        with self.ledger._begin() as connection:
            journal.finish_rebuilding(connection, epochs=epochs, model_bytes=model_bytes, remark=remark)

    def forget(self) -> None:
        with self.ledger._begin() as connection:
            leavers = journal.leavers_to_forget(connection)
            journal.give_up_contributions(connection, self.ledger.members, list(leavers))
        self.ledger.forget(leavers)

    def finish(self) -> tuple[int, ...]:
        with self.ledger._begin() as connection:
            return journal.finish(connection, self.ledger.keyring, at=MOMENT)

    def number_of(self, client: str) -> int:
        return self.ledger.numbers_of([client])[client]

    def states(self) -> list[str]:
        return [request.state.value for request in self.ledger.requests()]

    def rows(self, query: sa.Select[Any]) -> list[tuple[Any, ...]]:
        with self.ledger._connect() as connection:
            return [tuple(row) for row in connection.execute(query)]

    def faults(self) -> list[str]:
        return [str(finding) for finding in fsck(self.ledger.directory) if finding.fault]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    # without noise, a rebuilt round may end in the very model that was undone
    policy = replace(POLICY, noise="none")
    with create(tmp_path / "run", clients=(*IDS, "idle"), policy=policy, config="") as ledger:
        for number in (1, 2, 3):
            record_next(ledger, clusters=two_clusters(), seconds=float(number))
        yield Book(ledger)


def roll(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def three_left(gone: str) -> tuple[Cluster, ...]:
    left = [client for client in IDS if client != gone]
    return (Cluster(1.0, 0.25, tuple(Slot(member(client)) for client in left)),)


def test_opening_withdraws_from_every_stored_round_and_supersedes_from_the_broken_one(book: Book) -> None:
    erasure = book.open(roll(2), "cleo")
    withdrawn = sa.select(withdrawals.c.round_id, withdrawals.c.erasure).order_by(withdrawals.c.round_id)
    assert book.rows(withdrawn) == [(1, erasure), (2, erasure), (3, erasure)]
    assert book.rows(sa.select(rounds.c.number, rounds.c.standing, rounds.c.superseded_by)) == [
        (1, True, None),
        (2, False, erasure),
        (3, False, erasure),
    ]
    assert book.ledger.next_round() == (2, 2)
    assert book.states() == ["rebuilding"]
    assert book.faults() == []
    # withdrawn: no longer shown as a member, though the row that names it is still there
    assert book.ledger.membership(1) == (("ada", "bela"), ("dora",))
    assert book.rows(sa.select(sa.func.count()).select_from(memberships)) == [(12,)]


def test_a_deniable_erasure_supersedes_nothing_and_waits_only_for_its_deletion(book: Book) -> None:
    book.open(DENIABLE, "cleo")
    assert [summary.standing for summary in book.ledger.summaries()] == [True] * 3
    assert book.states() == ["deleting"]
    with book.ledger._connect() as connection:
        assert journal.rebuilding(connection) is None


def test_opening_again_finds_nobody_waiting(book: Book) -> None:
    book.open(DENIABLE, "cleo")
    with book.ledger._connect() as connection:
        assert journal.waiting(connection).clients == {}


def test_who_never_took_part_is_told_so_among_others_who_did(book: Book) -> None:
    book.open(roll(3), "idle", "ada")
    assert [request.verdict for request in book.ledger.requests()] == [Verdict(VerdictKind.NEVER_PRESENT), roll(3)]


def test_who_took_part_only_in_superseded_rounds_was_present_all_the_same(tmp_path: Path) -> None:
    with create(tmp_path / "run", clients=(*IDS, "eve")) as ledger:
        book = Book(ledger)
        record_next(ledger, clusters=two_clusters(("ada", "bela", "cleo", "eve")))
        book.open(roll(1), "bela")
        with ledger._connect() as connection:
            number, idle = book.number_of("eve"), book.number_of("dora")
            assert journal.never_present(connection, ledger.members, [number, idle]) == {idle}


def test_the_target_is_the_newest_round_that_stood(book: Book) -> None:
    book.open(roll(2), "cleo")
    with book.ledger._connect() as connection:
        assert journal.rebuilding(connection) == journal.Rebuilding(2, 3, newest=2)
    record_next(book.ledger, after=None, clusters=three_left("cleo"))
    book.open(roll(1), "dora")
    with book.ledger._connect() as connection:
        # the second rollback stopped at round 2, the first still owes round 3
        assert journal.rebuilding(connection) == journal.Rebuilding(1, 3, newest=1)


def test_the_cost_counts_rounds_recorded_since_up_to_the_target(book: Book) -> None:
    book.open(roll(2), "cleo")
    record_next(book.ledger, clusters=three_left("cleo"), seconds=0.25)
    record_next(book.ledger, clusters=three_left("cleo"), seconds=0.5)
    book.rebuilt(epochs=2, model_bytes=10)
    [request] = book.ledger.requests()
    assert request.state is RequestState.DELETING
    assert request.cost == Cost(rounds=2, client_epochs=12, exchanged_bytes=120, seconds=0.75)


def test_the_models_of_superseded_rounds_are_given_up_and_their_digests_stay(book: Book) -> None:
    digests = [summary.after for summary in book.ledger.summaries()]
    book.open(roll(2), "cleo")
    book.rebuilt(remark="nobody is left")
    present = {row[0]: row[1] for row in book.rows(sa.select(models.c.digest, models.c.present))}
    assert present == {book.ledger.initial_model: True, digests[0]: True, digests[1]: False, digests[2]: False}
    book.ledger.remove_leftovers()
    assert set(book.ledger.store.digests()) == {book.ledger.initial_model, digests[0]}
    assert [summary.after for summary in book.ledger.summaries()] == digests
    assert book.faults() == []


def test_a_model_that_a_rebuilt_round_gave_again_is_kept(book: Book) -> None:
    """Without noise, a rebuilt round can come to the very model that was superseded."""
    book.open(roll(3), "cleo")
    old = book.ledger.summaries()[2].after
    record_next(book.ledger, clusters=three_left("cleo"))
    assert book.ledger.summaries()[3].after == old
    book.rebuilt()
    book.ledger.remove_leftovers()
    assert old in set(book.ledger.store.digests())
    assert book.faults() == []


def test_a_model_given_up_and_produced_again_later_is_present_again(book: Book) -> None:
    book.open(roll(3), "cleo")
    old = book.ledger.summaries()[2].after
    book.rebuilt(remark="cannot")
    book.ledger.remove_leftovers()
    record_next(book.ledger, clusters=three_left("cleo"))
    assert book.ledger.summary(3).after == old
    assert (book.ledger.model_after(3) == book.ledger.store.read(book.ledger.layout, old)).all()
    assert book.faults() == []


def test_forgetting_takes_the_keys_and_leaves_every_row_nameless(book: Book) -> None:
    book.open(DENIABLE, "cleo", "idle")
    with book.ledger._connect() as connection:
        assert journal.leavers_to_forget(connection) == {book.number_of("cleo"): 1, book.number_of("idle"): 2}
    book.forget()
    assert book.states() == ["deleting"] * 2
    assert book.finish() == (1, 2)
    assert book.ledger.clients() == ("ada", "bela", "dora")
    assert book.rows(sa.select(sa.func.count()).select_from(memberships)) == [(12,)]
    assert book.rows(sa.select(requests.c.client)) == [(None,), (None,)]
    assert [slot.member is None for slot in book.ledger.round(1).slots].count(True) == 1
    assert book.states() == ["answered"] * 2
    assert book.faults() == []
    with book.ledger._connect() as connection:
        assert journal.leavers_to_forget(connection) == {}
        assert not journal.deleting(connection)


def test_an_erasure_is_not_finished_before_its_leavers_are_forgotten(book: Book) -> None:
    book.open(DENIABLE, "cleo")
    assert book.finish() == ()
    assert book.states() == ["deleting"]


def test_nothing_is_deleted_while_it_is_being_rebuilt(book: Book) -> None:
    book.open(roll(1), "cleo")
    with book.ledger._connect() as connection:
        assert journal.leavers_to_forget(connection) == {}
        assert not journal.deleting(connection)


def test_finishing_names_the_requests_once(book: Book) -> None:
    book.open(DENIABLE, "cleo", "idle")
    book.forget()
    assert book.finish() == (1, 2)
    assert book.finish() == ()
    assert book.states() == ["answered"] * 2
    assert [request.answered_at for request in book.ledger.requests()] == [MOMENT] * 2


def test_steps_of_different_erasures_do_not_mix(book: Book) -> None:
    book.open(DENIABLE, "idle")
    book.forget()
    book.open(DENIABLE, "ada")
    book.open(roll(2), "cleo")  # rebuilding
    book.ledger.place_requests(["bela"], at=MOMENT)  # waiting
    assert book.states() == ["deleting", "deleting", "rebuilding", "waiting"]
    assert book.faults() == []
    assert book.finish() == (1,)
    assert book.states() == ["answered", "deleting", "rebuilding", "waiting"]


def test_a_failure_inside_a_transaction_leaves_no_step_behind(book: Book) -> None:
    before = book.rows(sa.select(erasures.c.id))
    book.ledger.place_requests(["cleo"], at=MOMENT)

    def fail_halfway() -> None:
        with book.ledger._begin() as connection:
            waiting = journal.waiting(connection)
            erasure = journal.open_erasure(
                connection, book.ledger.members, waiting, roll(1), mechanism="retrain", at=MOMENT
            )
            journal.supersede(connection, 1, erasure)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert book.rows(sa.select(erasures.c.id)) == before
    assert book.states() == ["waiting"]
    assert book.ledger.next_round() == (4, 1)
    assert book.faults() == []
