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
class _Asked:
    changes: int = -1
    """The run's count of changes that the newest is made for."""

    future: Future[Made] | None = None
    last: Made | None = None


class Forecasting:
    """Makes forecasts in a thread of its own, and keeps the last one of each request."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._asked: OrderedDict[tuple[str, int | bytes], _Asked] = OrderedDict()
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
            asked = self._asked.pop((run_id, number), _Asked())
            self._asked[run_id, number] = asked
            while len(self._asked) > MOST_KEPT:
                self._asked.popitem(last=False)
            running = asked.future is not None and not asked.future.done()
            waiting = sum(each.future is not None and not each.future.done() for each in self._asked.values())
            if asked.changes != changes and not running and waiting < MOST_WAITING:
                asked.changes, asked.future = changes, Future()
                self._waiting.put((asked.future, make))
                if not self._thread.is_alive():
                    self._thread.start()
            future = asked.future
        if future is None:
            return asked.last, True
        try:
            asked.last = future.result(patience)
        except TimeoutError:
            return asked.last, True
        except BaseException:
            asked.changes = -1  # what was missing may be there the next time
            raise
        return asked.last, asked.changes != changes

    def close(self) -> None:
        """Make no more."""
        self._waiting.put(None)

    def _work(self) -> None:
        while (asked := self._waiting.get()) is not None:
            future, make = asked
            try:
                future.set_result(make())
            except Exception as error:  # whoever waits must hear of it, whatever it is
                future.set_exception(error)
