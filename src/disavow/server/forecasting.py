"""Forecasts made beside the pages: judging one request with thousands that wait takes longer than a page may.

A page waits a moment, in which a small run is forecast. Else it shows the last forecast there is, if any, and the
new one once it is made. One thread makes them, one after the other.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

MOST_KEPT = 200
MOST_WAITING = 20
PATIENCE_SECONDS = 0.1

Made = dict[str, Any]


@dataclass
class _Entry:
    changes: int = -1
    """The run's count of changes that the newest is made for."""

    future: Future[Made] | None = None
    last: Made | None = None


class Forecasting:
    """Makes forecasts in a thread of its own, and keeps the last one of each request."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: OrderedDict[tuple[str, int | bytes], _Entry] = OrderedDict()
        self._waiting: queue.SimpleQueue[tuple[Future[Made], Callable[[], Made]] | None] = queue.SimpleQueue()
        # a daemon: what it makes changes nothing, and is not waited for when the service stops
        self._thread = threading.Thread(target=self._work, name="forecasting", daemon=True)

    def ask(
        self,
        run_id: str,
        number: int | bytes,
        changes: int,
        make: Callable[[], Made],
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> tuple[Made | None, bool]:
        """Give the forecast of a request; and whether a newer one is still being made.

        Args:
            run_id: The id of the run.
            number: The request; or what tells one that is not filed yet from others.
            changes: The run's count of changes: where nothing has happened, a forecast stays.
            make: Makes it.
            patience: Seconds to wait for it.

        Raises:
            DisavowError: It cannot be made.

        """
        with self._guard:
            entry = self._entries.pop((run_id, number), _Entry())
            self._entries[run_id, number] = entry
            while len(self._entries) > MOST_KEPT:
                self._entries.popitem(last=False)
            running = entry.future is not None and not entry.future.done()
            waiting = sum(each.future is not None and not each.future.done() for each in self._entries.values())
            if entry.changes != changes and not running and waiting < MOST_WAITING:
                entry.changes, entry.future = changes, Future()
                self._waiting.put((entry.future, make))
                if not self._thread.is_alive():
                    self._thread.start()
            future = entry.future
        if future is None:
            return entry.last, True
        try:
            entry.last = future.result(patience)
        except TimeoutError:
            return entry.last, True
        except BaseException:
            entry.changes = -1  # what was missing may be there the next time
            raise
        return entry.last, entry.changes != changes

    def close(self) -> None:
        """Make no more."""
        self._waiting.put(None)

    def _work(self) -> None:
        while (task := self._waiting.get()) is not None:
            future, make = task
            try:
                future.set_result(make())
            except Exception as error:  # whoever waits must hear of it, whatever it is
                future.set_exception(error)
