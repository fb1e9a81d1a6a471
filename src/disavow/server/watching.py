"""Notice what became of requests, whoever changed them: a worker, a command, another service.

A thread looks at every run once a second. What has changed is noted in the service's database together with what is
to be sent of it, in one transaction: a crash in between sends nothing twice and forgets nothing.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import DisavowError
from disavow.federation import Federation
from disavow.server import opendsr, views, webhooks
from disavow.server.access import NOBODY
from disavow.server.deliveries import Sender
from disavow.server.services import Services

logger = logging.getLogger("disavow.server")

_TIDY_SECONDS = 600.0
_KEPT_SECONDS = 7 * 86_400.0
_AT_ONCE = 500
_CLOSED = (RequestState.ANSWERED, RequestState.CANCELLED, RequestState.REFUSED)


class Watcher:
    """Looks for changes from a thread of its own.

    Args:
        services: What the application has.
        sender: Told when there is something to send.

    """

    def __init__(self, services: Services, sender: Sender) -> None:
        self._services, self._sender = services, sender
        self._stop = threading.Event()
        self._seen: dict[str, int] = {}
        self._tidied = 0.0
        self._thread = threading.Thread(target=self._work, name="watching", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._services.settings.poll_seconds):
            try:
                self.look(time.time())
            except DisavowError as error:
                logger.warning("watching: %s", error.code)

    def look(self, now: float) -> None:
        """Look at every run once, and have what has changed sent."""
        for run in self._services.runs.names():
            try:
                federation = self._services.runs.federation(run)
                changes = federation.ledger.changes()
                if self._seen.get(run) != changes:
                    self._note_changes(run, federation, now)
                    self._seen[run] = changes
            except DisavowError as error:
                self._services.runs.drop(run)
                logger.warning("watching: %s", error.code)
        if now - self._tidied > _TIDY_SECONDS:
            self._services.state.tidy(now, keep=_KEPT_SECONDS)
            self._tidied = now

    def _note_changes(self, run: str, federation: Federation, now: float) -> None:
        """Note the states that are new, and what is to be sent of them."""
        state = self._services.state
        mark = state.row("SELECT newest, purge FROM watermarks WHERE run = ?", (run,))
        first = 1 if mark is None else mark["newest"] + 1
        purged = federation.ledger.purged_since(0 if mark is None else mark["purge"])
        watched = {
            row["number"]: row["state"]
            for row in state.rows("SELECT number, state FROM watched WHERE run = ?", (run,))
        }
        states = federation.ledger.request_states(min([first, *watched]))
        changed = [
            number
            for number, found in states.items()
            if (number >= first or number in watched) and watched.get(number) != found
        ]
        for start in range(0, len(changed), _AT_ONCE):
            some = changed[start : start + _AT_ONCE]
            reported = federation.requests(self._to_report(run, some))
            with state.writing() as connection:
                self._note(connection, run, {number: states[number] for number in some}, reported, now)
        self._note_purged(run, federation, purged, now)
        self._sender.wake()

    def _note_purged(self, run: str, federation: Federation, purged: Mapping[int, int], now: float) -> None:
        """Send the event that requests are purged, which may have been answered long ago."""
        state, numbers = self._services.state, list(purged)
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            reported = federation.requests(self._to_report(run, some))
            with state.writing() as connection:
                for request in reported:
                    shown = {"request": views.request(run, request, NOBODY)}
                    webhooks.enqueue(connection, "request.purged", shown, now=now)
                _raise_mark(connection, run, purge=purged[some[-1]])

    def _to_report(self, run: str, numbers: Sequence[int]) -> list[int]:
        """Choose the requests of which something is to be sent: to read them all takes longer than all the rest."""
        state = self._services.state
        if state.row("SELECT 1 FROM webhooks WHERE removed_at IS NULL") is not None:
            return list(numbers)
        called_back = {row["number"] for row in state.rows("SELECT number FROM opendsr WHERE run = ?", (run,))}
        return [number for number in numbers if number in called_back]

    def _note(
        self,
        connection: sqlite3.Connection,
        run: str,
        states: Mapping[int, RequestState],
        reported: Sequence[ErasureRequest],
        now: float,
    ) -> None:
        known = "SELECT 1 FROM watched WHERE run = ? AND number = ?"
        for request in reported:
            new = connection.execute(known, (run, request.number)).fetchone() is None
            event = "request.received" if new and request.pending else f"request.{request.state.value}"
            webhooks.enqueue(connection, event, {"request": views.request(run, request, NOBODY)}, now=now)
            opendsr.note_status(connection, run, request, now=now)
        # the state that was reported: it may have changed since it was read above
        found = {**states, **{request.number: request.state for request in reported}}
        for number, state in found.items():
            if state in _CLOSED:
                connection.execute("DELETE FROM watched WHERE run = ? AND number = ?", (run, number))
            else:
                connection.execute("INSERT OR REPLACE INTO watched VALUES (?, ?, ?)", (run, number, state.value))
        _raise_mark(connection, run, newest=max(found))


def _raise_mark(connection: sqlite3.Connection, run: str, *, newest: int = 0, purge: int = 0) -> None:
    """Note up to where a run was seen."""
    connection.execute(
        "INSERT INTO watermarks VALUES (?, ?, ?) ON CONFLICT (run) "
        "DO UPDATE SET newest = max(newest, excluded.newest), purge = max(purge, excluded.purge)",
        (run, newest, purge),
    )
