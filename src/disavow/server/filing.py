"""Place the requests of many callers together: one transaction for all who wait, however many they are.

Each durable write takes some milliseconds, and only one process writes to a run at a time. So one thread for each
run takes whatever waits, places it at once, notes the idempotency keys of all, and then answers each caller. A
crash before the note loses nothing: whoever tries again gets the number that was given, because a run gives a
client one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from disavow.domain import ErasureRequest
from disavow.errors import DisavowError, KeyReused, StorageError
from disavow.federation import Federation
from disavow.server.error_responses import SERVER_ERROR, status_of
from disavow.server.state import State

MOST_AT_ONCE = 200


@dataclass(frozen=True, eq=False)
class Filed:
    """One request to be placed.

    Args:
        client: Who is to be forgotten, or has the records.
        actor: Who files it.
        key: What makes a repetition of the call out; None where it is never repeated.
        fingerprint: Keyed hash of run, client and records, under a key of the service.
        records: The records to be erased; None for the whole client.
        done: Told the request as it was placed, or why it is refused.

    """

    client: str
    actor: str
    key: bytes | None = None
    fingerprint: bytes = b""
    records: tuple[str, ...] | None = None
    done: Future[ErasureRequest] = field(default_factory=Future)


OpenRun = Callable[[str], Federation]


class Filing:
    """Places requests; one thread for each run that somebody asks for.

    Args:
        state: Where idempotency keys are kept.
        open_run: Gives a run by its name, open to place requests in it.

    """

    def __init__(self, state: State, open_run: OpenRun) -> None:
        self._state, self._open_run = state, open_run
        self._guard = threading.Lock()
        self._queues: dict[str, queue.SimpleQueue[Filed | None]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def file(self, run: str, filed: Filed) -> Future[ErasureRequest]:
        """Have a request placed; the request, once it is durable.

        Args:
            run: The run.
            filed: The request.

        """
        with self._guard:
            if self._closed:
                raise StorageError("the service is stopping; nothing was filed")
            waiting = self._queues.get(run)
            if waiting is None:
                waiting = self._queues[run] = queue.SimpleQueue()
                thread = threading.Thread(target=self._work, args=(run, waiting), name=f"filing {run}", daemon=True)
                self._threads.append(thread)
                thread.start()
            waiting.put(filed)
        return filed.done

    def close(self) -> None:
        """Place what waits, and stop."""
        with self._guard:
            self._closed = True
            for waiting in self._queues.values():
                waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, run: str, waiting: queue.SimpleQueue[Filed | None]) -> None:
        while (first := waiting.get()) is not None:
            batch = [first]
            while len(batch) < MOST_AT_ONCE:
                try:
                    more = waiting.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    waiting.put(None)
                    break
                batch.append(more)
            self._file_all(run, batch)

    def _file_all(self, run: str, batch: Sequence[Filed]) -> None:
        keys = [filed.key for filed in batch]
        again = [filed for i, filed in enumerate(batch) if filed.key is not None and filed.key in keys[:i]]
        self._file_together(run, [filed for filed in batch if filed not in again])
        for filed in again:  # only once the first call of this key has been noted
            self._file_together(run, [filed])

    def _file_together(self, run: str, batch: Sequence[Filed]) -> None:
        try:
            repeated = self._repeated(batch)
            fresh = [filed for filed in batch if filed not in repeated and not filed.done.done()]
            placed = self._place(run, fresh)
            self._note_keys(run, placed)
            numbers = {**dict(placed), **repeated}
            # all of them by one query: a caller by caller one takes longer than placing them
            found = {each.number: each for each in self._open_run(run).requests(list(numbers.values()))}
        except Exception as error:  # whoever waits must hear of it, whatever it is
            for filed in batch:
                if not filed.done.done():
                    filed.done.set_exception(error)
            return
        for filed, number in numbers.items():
            filed.done.set_result(found[number])

    def _repeated(self, batch: Sequence[Filed]) -> dict[Filed, int]:
        """Find the calls that were answered before, with the numbers they were given; refuse reused keys."""
        numbers = {}
        for filed in batch:
            if filed.key is None:
                continue
            row = self._state.row("SELECT number, fingerprint FROM idempotency WHERE hash = ?", (filed.key,))
            if row is None:
                continue
            if row["fingerprint"] == filed.fingerprint:
                numbers[filed] = row["number"]
            else:
                refusal = KeyReused("this Idempotency-Key was used for another request; use a new one")
                filed.done.set_exception(refusal)
        return numbers

    def _place(self, run: str, batch: Sequence[Filed]) -> list[tuple[Filed, int]]:
        """Place requests together; where one of them is refused, each half of them, until it is found."""
        if not batch:
            return []
        federation = self._open_run(run)
        try:
            placed = federation.place(
                [filed.client for filed in batch],
                by=[filed.actor for filed in batch],
                records=[filed.records for filed in batch],
            )
            return list(zip(batch, placed, strict=True))
        except DisavowError as error:
            if len(batch) == 1 or status_of(error) >= SERVER_ERROR:  # the run cannot be written: so for all of them
                for filed in batch:
                    filed.done.set_exception(error)
                return []
        middle = len(batch) // 2
        return self._place(run, batch[:middle]) + self._place(run, batch[middle:])

    def _note_keys(self, run: str, placed: Sequence[tuple[Filed, int]]) -> None:
        now = time.time()
        rows = [(filed.key, filed.fingerprint, run, number, now) for filed, number in placed if filed.key]
        if rows:
            with self._state.writing() as connection:
                connection.executemany("INSERT OR IGNORE INTO idempotency VALUES (?, ?, ?, ?, ?)", rows)
