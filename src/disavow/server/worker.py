"""Answer requests and train: a process of its own, so that the service answers while a run trains.

    for each run in turn:  take its lock -> answer who waits -> train one more round, or let the lock go

One worker works on a run at a time: that is the run's own lock. Nothing is kept here that a crash could lose:
whoever starts next goes on with the step that was interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from disavow import runs
from disavow.domain import ErasureRequest, Verdict
from disavow.erasure.purge import PurgeForecast
from disavow.errors import CannotRetrain, DisavowError, ForecastChanged, PurgeRefused, RoundRefused, RunInUse
from disavow.federation import Callbacks, Federation
from disavow.ledger import RoundSummary
from disavow.proof.keys import AskPassphrase, nobody_to_ask
from disavow.server.open_runs import find_runs
from disavow.server.settings import ServerSettings
from disavow.server.state import State

logger = logging.getLogger("disavow.worker")

IDLE_SECONDS = 0.5
_RETRY_SECONDS = 30.0
"""How long a run is left alone that was refused: its data may come back."""

_NEARBY_SECONDS = 2.0
"""The same where another process holds it."""

_NICENESS = 10
"""Of a worker that shares its machine with the service that started it: a tenth of the time of who is at 0."""

_LOOK_SECONDS = 60.0
"""How often a run is looked at in which nothing happens: a deadline may have come near."""


class Stopped(BaseException):
    """The process was asked to stop. It is no error: nothing is lost, wherever it comes."""


@dataclass
class _Turn:
    """A run that is worked on: open as long as there is something to do."""

    name: str
    path: Path
    federation: Federation | None = None
    not_before: float = 0.0
    changes: int = -1
    """What the run's count of changes was when there was nothing left to do."""

    looked_at: float = 0.0
    trains: bool = True
    """Whether more rounds can be trained: not once one was refused."""


@dataclass
class Worker:
    """Works on the runs of a folder, in turn.

    Args:
        settings: Where runs, keys and the service's database lie.
        state: Where progress is written.
        ask: Asks for the passphrase of the signing key.
        train: Whether runs that are not complete are trained; requests are answered in any case.

    """

    settings: ServerSettings
    state: State
    ask: AskPassphrase = nobody_to_ask
    train: bool = True
    _turns: dict[str, _Turn] = field(default_factory=dict)

    def work(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Work until told to stop.

        Args:
            until: Asked between steps; work ends once it is true.

        """
        try:
            while not until():
                if not self.step():
                    time.sleep(IDLE_SECONDS)
        finally:
            for turn in self._turns.values():
                self._let_go(turn)

    def step(self) -> bool:
        """Give every run one turn; whether there was anything to do."""
        found = find_runs(self.settings.runs)
        for name in [name for name in self._turns if name not in found]:
            self._let_go(self._turns.pop(name))
        busy = [self._turn(self._turns.setdefault(name, _Turn(name, path))) for name, path in found.items()]
        return any(busy)

    def _turn(self, turn: _Turn) -> bool:
        if time.monotonic() < turn.not_before:
            return False
        try:
            return self._work_on(turn)
        except RunInUse:
            self._leave_alone(turn, _NEARBY_SECONDS)
        except RoundRefused as refusal:  # the budget is spent, say: requests are still answered
            logger.warning("%s: %s", turn.name, refusal.code)
            self._tell(turn, "refused", detail=refusal.code)
            turn.trains = False
            return True
        except DisavowError as error:
            logger.warning("%s: %s", turn.name, error.code)
            self._tell(turn, "refused", detail=error.code)
            self._leave_alone(turn, _RETRY_SECONDS)
        except OSError as error:
            logger.warning("%s: %s", turn.name, type(error).__name__)
            self._leave_alone(turn, _RETRY_SECONDS)
        return False

    def _leave_alone(self, turn: _Turn, seconds: float) -> None:
        self._let_go(turn)
        turn.not_before = time.monotonic() + seconds

    def _work_on(self, turn: _Turn) -> bool:
        """Do one step of what a run needs; whether there was one."""
        if turn.federation is None and not self._is_due(turn):
            return False
        federation = turn.federation
        if federation is None:
            federation = turn.federation = Federation.open(
                turn.path, write=True, keys=self.settings.keys, ask=self.ask, openings=self.settings.openings_folder
            )
        callbacks = self._callbacks(turn, federation)
        self._purge_if_requested(turn, federation, callbacks)
        wanted, standing = federation.settings.rounds, federation.ledger.last_round
        if self.train and turn.trains and standing < wanted:
            self._tell(turn, "training", standing, wanted)
            federation.train(callbacks, rounds=standing + 1)  # it answers who waits before the round and after
            self._tell(turn, "training", federation.ledger.last_round, wanted)
            return True
        before = federation.ledger.changes()  # what is placed while it answers is a change after this
        answered = federation.answer(callbacks)
        turn.changes, turn.looked_at = before, time.monotonic()
        self._tell(turn, "idle", federation.ledger.last_round, wanted)
        self._let_go(turn)
        return bool(answered)

    def _purge_if_requested(self, turn: _Turn, federation: Federation, callbacks: Callbacks) -> None:
        """Purge where somebody has asked for it, as it was forecast; is it another purge by now, it is not done.

        Killed meanwhile, the next worker completes what was undone, and finds nothing left to purge.
        """
        digest = self._requested_purge(turn)
        if digest is None:
            return

        def confirm(forecast: PurgeForecast) -> None:
            if forecast.digest != digest:
                raise ForecastChanged("the purge is another one than was asked for", digest=forecast.digest)

        try:
            federation.purge(confirm=confirm, callbacks=callbacks)
        except (ForecastChanged, PurgeRefused, CannotRetrain) as refusal:
            logger.warning("%s: not purged: %s", turn.name, refusal.code)
            self._tell(turn, "refused", detail=refusal.code)
        with self.state.writing() as connection:
            connection.execute("DELETE FROM purges WHERE run = ? AND forecast = ?", (turn.name, digest))

    def _requested_purge(self, turn: _Turn) -> str | None:
        """The digest of the purge that somebody has asked for, if so."""
        row = self.state.row("SELECT forecast FROM purges WHERE run = ?", (turn.name,))
        return None if row is None else str(row["forecast"])

    def _is_due(self, turn: _Turn) -> bool:
        """Look, without its lock, whether there is something to do for a run."""
        with Federation.open(turn.path, keys=self.settings.keys) as federation:
            if runs.on_nodes(federation.settings):
                return False  # its Flower server app answers
            ledger = federation.ledger
            if self.train and turn.trains and ledger.last_round < federation.settings.rounds:
                return True
            if self._requested_purge(turn) is not None:
                return True
            changes, now = ledger.changes(), time.monotonic()
            if changes == turn.changes and now < turn.looked_at + _LOOK_SECONDS:
                return False  # nothing happened since there was nothing left to do
            if federation.due() or federation.unsettled() or now >= turn.looked_at + _LOOK_SECONDS:
                return True
            turn.changes = changes
            return False

    def _callbacks(self, turn: _Turn, federation: Federation) -> Callbacks:
        wanted = federation.settings.rounds

        def on_round(summary: RoundSummary) -> None:
            rebuild = federation.ledger.rebuilding()
            phase = "training" if rebuild is None else "rebuilding"
            self._tell(turn, phase, summary.number, wanted if rebuild is None else rebuild.target)

        def on_verdict(verdict: Verdict, requests: int) -> None:
            logger.info("%s: %d requests: %s", turn.name, requests, verdict)
            self._tell(turn, "answering", federation.ledger.last_round, wanted)

        def on_answer(request: ErasureRequest) -> None:
            logger.info("%s: request %d answered", turn.name, request.number)

        def on_purge(forecast: PurgeForecast) -> None:
            logger.info("%s: purging %d requests", turn.name, len(forecast.requests))
            self._tell(turn, "purging", (forecast.back_to or 1) - 1, forecast.last)

        return Callbacks(on_round=on_round, on_verdict=on_verdict, on_answer=on_answer, on_purge=on_purge)

    def _let_go(self, turn: _Turn) -> None:
        federation, turn.federation = turn.federation, None
        if federation is not None:
            federation.close()

    def _tell(self, turn: _Turn, phase: str, done: int = 0, total: int = 0, detail: str = "") -> None:
        with contextlib.suppress(DisavowError), self.state.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?)",
                (turn.name, phase, done, total, detail, time.time()),
            )


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGINT end what is inside, at whatever step it is: every step is safe to interrupt."""

    def stop(*_: object) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except Stopped:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def yield_to_service() -> None:
    """Let the service go first where both want the processor: people wait for it, and nobody for a round."""
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def stop_with_parent() -> None:
    """Stop this process once standard input ends: whoever started it has died, however it died."""
    stdin = sys.stdin.fileno()

    def wait() -> None:
        # not by `sys.stdin`: this thread would hold its lock while the interpreter ends, which aborts the process
        while os.read(stdin, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
