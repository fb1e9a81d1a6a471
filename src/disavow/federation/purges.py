"""Removing all leavers so far from the model by one exact retraining: on request, or by itself in time."""

from __future__ import annotations

import time
from collections.abc import Callable

from disavow.erasure.purge import PurgeForecast, foresee_purge, refuse_approximate
from disavow.errors import CannotRetrain, PurgeRefused, RunInUse
from disavow.federation.answers import Answers
from disavow.federation.callbacks import NOBODY, Callbacks, report_answered
from disavow.results import Purged, PurgeOutlook

POLL_SECONDS = 0.2
"""How often to look whether another process has let go of the run."""


class Purges(Answers):
    """What a purge would do, when it is due, and the purge itself; whoever waits is answered first."""

    def forecast_purge(self) -> PurgeForecast:
        """Tell what `purge` would do now. Changes nothing.

        Returns:
            Whom it would remove from the model, the rounds to retrain, what that takes, and what stands in the way.

        Raises:
            ConfigError: The run's mechanism does not retrain exactly.

        """
        return foresee_purge(self.ledger, self.options, self.mechanism)

    def purge_outlook(self) -> PurgeOutlook:
        """Tell who may still be in the model that is served, until when they must be out, and whether they can.

        Returns:
            The deadlines, and what a purge would do now.

        """
        unpurged = self.ledger.requests(list(self.ledger.unpurged().rounds))
        promised = self.settings.deniability.purge == "deadline"
        return PurgeOutlook(
            {request.number: request.due for request in unpurged} if promised else {},
            len(unpurged),
            self.forecast_purge() if unpurged and self.mechanism.exact else PurgeForecast(),
            self.clock(),
        )

    def _outlook(self) -> PurgeOutlook | None:
        """As `purge_outlook`; None where the keyring is not here that says who could retrain."""
        return self.purge_outlook() if self.ledger.keyring.exists else None

    def purge(
        self,
        *,
        wait: float = 60.0,
        confirm: Callable[[PurgeForecast], None] | None = None,
        callbacks: Callbacks = NOBODY,
    ) -> Purged:
        """Remove all leavers so far from the model, by one exact retraining of the rounds that they were in.

        Requests that wait are judged first, and purged with the others. Killed at any instant, whoever opens the
        run for training completes it. Each leaver gets a second proof. Another process that holds the run is waited
        for; where the settings promise a purge, that process purges by itself in time.

        Args:
            wait: Seconds to wait for another process that holds the run.
            confirm: Sees what would happen before anything is undone, and may end it by an exception.
            callbacks: Who hears how far it is.

        Returns:
            What it came to; nothing where nobody is to be purged.

        Raises:
            ConfigError: The run's mechanism does not retrain exactly.
            PurgeRefused: Not all rounds could be retrained; nothing was undone.
            CannotRetrain: What trained the run is not to be had here; nothing was undone.
            RunInUse: Another process holds the run, and has neither let go of it nor purged in time.

        """
        refuse_approximate(self.mechanism)
        forecast, before = self.forecast_purge(), self.ledger.purged()
        if confirm is not None and forecast:
            confirm(forecast)
        if self._waits_to_purge(callbacks, needed=bool(forecast), wait=wait):
            return self._purge(self._tracked(callbacks), before)
        return Purged(str(self.directory), self.ledger.requests(sorted(self.ledger.purged() - before)), None, 0)

    def _waits_to_purge(self, callbacks: Callbacks, *, needed: bool, wait: float) -> bool:
        """Take the run's lock as soon as whoever holds it lets go of it; False once that has purged where it is
        `needed`, and nothing is left to purge.
        """
        announced, deadline = False, time.monotonic() + wait
        while True:
            try:
                self._take_lock()
            except RunInUse as error:
                if needed and not self.forecast_purge():
                    return False
                if wait > 0 and not announced:
                    callbacks.on_wait(f"{error}; waiting for it, {self._who_purges()}")
                    announced = True
                if time.monotonic() >= deadline:
                    raise RunInUse(f"{error}. Nothing was purged here: {self._who_purges()}") from None
                time.sleep(POLL_SECONDS)
            else:
                return True

    def _who_purges(self) -> str:
        """Say whether the process that holds the run purges by itself."""
        due = self.purge_outlook().due
        if due is not None:
            return f"that process does it by itself between its rounds, by {due:%Y-%m-%d %H:%M} UTC"
        return 'that process does it by itself only with deniability.purge = "deadline"'

    def _purge(self, callbacks: Callbacks, before: frozenset[int] | None = None) -> Purged:
        """Purge, holding the lock; `before` are the requests that were purged when it was asked for."""
        from disavow.erasure.purge import purge

        ledger, before = self.ledger, self.ledger.purged() if before is None else before
        begun = len(ledger.purges())
        forecast = self.forecast_purge()
        if not forecast or forecast.obstacle is not None:
            self._answer(callbacks)  # and whatever was interrupted, an earlier purge too
        if forecast.obstacle is not None:
            raise PurgeRefused(f"nothing was purged, and the model that is served stays: {forecast.obstacle}")
        if forecast:
            engine = self._engine_to_retrain()
            self._note_engine(callbacks)
            callbacks.on_purge(forecast)
            answered = purge(ledger, engine, self.options, self.mechanism, self._reporting(callbacks))
            report_answered(callbacks, answered)
        purged = ledger.requests(sorted(ledger.purged() - before))
        done = ledger.purges()[begun:]  # none where a rollback of whoever waited has undone all that there was
        return Purged(str(self.directory), purged, done[-1] if done else None, len(ledger.unpurged().rounds))

    def _purge_in_time(self, callbacks: Callbacks) -> None:
        """Purge where the settings ask for it and the first request that it is for is due soon.

        What stands in the way is no reason not to train or to answer: it is noted.
        """
        if self.settings.deniability.purge != "deadline" or not self.ledger.unpurged():
            return
        outlook = self.purge_outlook()
        if not outlook.begins:
            return
        try:
            self._purge(callbacks)
        except (PurgeRefused, CannotRetrain) as refusal:
            if str(refusal) != self._not_purged:
                callbacks.on_note(f"a purge is due by {outlook.due:%Y-%m-%d %H:%M} UTC: {refusal}")
                self._not_purged = str(refusal)
