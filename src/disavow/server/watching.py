"""Notice what became of requests, whoever changed them: a worker, a command, another service.

A thread looks at every run once a second. What has changed is noted in the service's database together with what is
to be sent of it, in one transaction: a crash in between sends nothing twice and forgets nothing.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Sequence

from disavow.domain import ErasureRequest
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
        state = self._services.state
        mark = state.row("SELECT newest FROM watermarks WHERE run = ?", (run,))
        newest = federation.ledger.newest_request()
        first = 0 if mark is None else mark["newest"]
        watched = [row["number"] for row in state.rows("SELECT number FROM watched WHERE run = ?", (run,))]
        numbers = [*watched, *range(first + 1, newest + 1)]
        for start in range(0, len(numbers), _AT_ONCE):
            found = federation.requests(numbers[start : start + _AT_ONCE])
            with state.writing() as connection:
                self._note(connection, run, found, now)
        with state.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO watermarks VALUES (?, ?)", (run, newest))
        self._sender.wake()

    def _note(self, connection: sqlite3.Connection, run: str, found: Sequence[ErasureRequest], now: float) -> None:
        for request in found:
            row = connection.execute(
                "SELECT state FROM watched WHERE run = ? AND number = ?", (run, request.number)
            ).fetchone()
            state = request.state.value
            if row is not None and row["state"] == state:
                continue
            told = views.request(run, request, NOBODY)
            event = "request.received" if row is None and request.pending else f"request.{state}"
            webhooks.enqueue(connection, event, {"request": told}, now=now)
            opendsr.note_status(connection, run, request, now=now)
            if request.pending:
                connection.execute("INSERT OR REPLACE INTO watched VALUES (?, ?, ?)", (run, request.number, state))
            else:
                connection.execute("DELETE FROM watched WHERE run = ? AND number = ?", (run, request.number))
        # a crash here repeats nothing: what was noted is no change any more
        numbers = [request.number for request in found]
        if numbers:
            connection.execute(
                "INSERT INTO watermarks VALUES (?1, ?2) ON CONFLICT (run) DO UPDATE SET newest = max(newest, ?2)",
                (run, max(numbers)),
            )
