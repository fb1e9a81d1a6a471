"""One state of a ledger, and several changes at once: what modules outside this package get of a connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from disavow.domain import Decision, EventKind, Verdict
from disavow.ledger import journal, log
from disavow.ledger.journal import Waiting
from disavow.ledger.reader import Reader, RunRecord
from disavow.ledger.request_events import note_event
from disavow.ledger.requests import NewRequest, decide, note_checked, place, place_for_records
from disavow.proof.notes import Signer


class Snapshot(Reader):
    """Reads one state of a ledger, whoever writes to it meanwhile; good until its `with` block ends."""

    def __init__(self, record: RunRecord, connection: sa.Connection) -> None:
        super().__init__(record)
        self._connection = connection

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        yield self._connection


class Transaction(Snapshot):
    """Writes the steps of an erasure: all of them once its `with` block ends, none where that raises.

    What it reads is the state with its own changes.
    """

    def __init__(self, record: RunRecord, connection: sa.Connection, signer: Signer | None) -> None:
        super().__init__(record, connection)
        self._signer = signer

    def open_erasure(self, requested: Waiting, verdict: Verdict, *, mechanism: str, at: datetime) -> int:
        """Withdraw the leavers of these requests and write the verdict down; the number of the erasure."""
        return journal.open_erasure(self._connection, self.members, requested, verdict, mechanism=mechanism, at=at)

    def supersede(self, first: int, erasure: int) -> None:
        """Undo the standing rounds from `first` on."""
        journal.supersede(self._connection, first, erasure)

    def log_erasure(self, erasure: int) -> None:
        """Append the leaf of an erasure's withdrawals to the log, and that of its rollback if there is one."""
        log.log_erasure(self._connection, self.members, erasure)

    def open_purge(self, first: int, back_to: int, *, mechanism: str, at: datetime) -> int:
        """Undo the standing rounds from `back_to` on, and log it; the number of the erasure.

        Args:
            first: The first standing round with a withdrawn slot.
            back_to: The first round to undo: that one, or an earlier one whose model is kept.
            mechanism: What retrains them.
            at: When.

        """
        erasure = journal.open_purge(self._connection, first, back_to, mechanism=mechanism, at=at)
        journal.supersede(self._connection, back_to, erasure)
        log.log_purge(self._connection, erasure)
        return erasure

    def note_purged(self, numbers: Sequence[int], *, at: datetime) -> None:
        """Note that nothing of the clients of these requests is in the model any more."""
        journal.note_purged(self._connection, self.members.keyring, numbers, at=at)

    def sign_head(self) -> None:
        """Sign what the transaction has appended to the log, if there is a key."""
        if self._signer is not None:
            log.sign_head(self._connection, self.run_id, self._signer)

    def finish_rebuilding(self, *, epochs: int, model_bytes: int, remark: str = "") -> None:
        """Complete a rebuild: write its cost down, give up superseded models and updates.

        Args:
            epochs: What a participant trains in a round, unless the round says otherwise.
            model_bytes: The size of a model that is exchanged.
            remark: What the report says beyond the cost.

        """
        journal.finish_rebuilding(self._connection, epochs=epochs, model_bytes=model_bytes, remark=remark)

    def give_up_contributions(self, leavers: Sequence[int]) -> None:
        """Delete what the run knows of clients who are about to be forgotten, and their kept updates."""
        journal.give_up_contributions(self._connection, self.members, leavers)

    def finish_erasures(self, *, at: datetime) -> tuple[int, ...]:
        """Mark erasures as answered whose leavers have been forgotten; the numbers of their requests."""
        return journal.finish(self._connection, self.members.keyring, at=at)

    def place_requests(
        self,
        requests: Sequence[NewRequest],
        *,
        at: datetime,
        openings: Path | None = None,
        note: str = "",
    ) -> tuple[int, ...]:
        """Make requests wait; their numbers, in this order. See `requests.place` and `requests.place_for_records`.

        Args:
            requests: The requests.
            at: When they are placed.
            openings: The folder for the openings of those who ask.
            note: What is said of those for records wherever they are listed.

        """
        connection, keyring = self._connection, self.members.keyring
        folder = None if openings is None else str(openings.absolute())
        journal.complete_record_requests(connection, self.members)  # their clients have other numbers then
        whole = [each for each in requests if each.records is None]
        ids, actors = [each.client for each in whole], [each.by for each in whole]
        placed = iter(place(connection, keyring, ids, at=at, openings=folder, by=actors))
        numbers = []
        for each in requests:
            if each.records is None:
                numbers.append(next(placed))
            else:
                named = {each.client: each.records}
                by_client = place_for_records(
                    connection, keyring, named, at=at, openings=folder, note=note, by=each.by
                )
                numbers.append(by_client[each.client])
        return tuple(numbers)

    def note_checked(self, number: int, refusal: Decision | None) -> None:
        """Note that the records of a request were looked up, and refuse it where they cannot be erased."""
        note_checked(self._connection, number)
        if refusal is not None:
            decide(self._connection, self.members, number, EventKind.REFUSED, refusal)

    def approve_request(self, number: int, decision: Decision, *, forecast: str | None) -> None:
        """Approve a request, given the digest of the forecast that was seen; see `requests.decide`."""
        decide(self._connection, self.members, number, EventKind.APPROVED, decision, forecast=forecast)

    def note_event(self, number: int, kind: EventKind, *, at: datetime, reason: str = "") -> None:
        """Write that something happened to a request which disavow itself did, such as a purge."""
        note_event(self._connection, self.members.keyring, number, kind, at=at, reason=reason)
