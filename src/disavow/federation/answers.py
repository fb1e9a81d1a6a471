"""Answering whoever waits: without data and engine what needs none, then what has to be retrained.

The lock is held by whoever calls this.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from disavow import runs
from disavow.domain import Decision, ErasureRequest
from disavow.erasure.mechanisms import WithoutRetraining
from disavow.erasure.reporting import Remark, Reporting
from disavow.errors import CannotRetrain, ConfigError, RecordsUnchecked
from disavow.federation.callbacks import Callbacks, report_answered
from disavow.federation.open_run import OpenRun
from disavow.record_requests import looking, why_not

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine

_LOOKED_UP_BY = "the worker"
"""Who refuses a request for records that nobody has: whichever process has the task."""


class Answers(OpenRun):
    """How requests that wait are answered, for training, erasures and purges alike."""

    def _answer(self, callbacks: Callbacks) -> tuple[ErasureRequest, ...]:
        """Answer all who wait, and complete what was interrupted; an error where that cannot be trained here."""
        from disavow.erasure.erase import answer_requests, answer_without_training, training_due

        ledger, options, mechanism = self.ledger, self.options, self.mechanism
        reporting = self._reporting(callbacks)
        self._look_up_records(callbacks)
        answered: tuple[ErasureRequest, ...] = ()
        loaded = self._prepared is not None or self.own_engine is not None
        if not loaded:
            answered = answer_without_training(ledger, options, mechanism, reporting)
        if not loaded and training_due(ledger, options):
            self._note_engine(callbacks)
            loaded = True
        if loaded:
            answered += answer_requests(ledger, self.engine, options, mechanism, reporting)
        report_answered(callbacks, answered)
        return answered

    def _answer_locked(
        self, numbers: tuple[int, ...], callbacks: Callbacks, *, retrain: bool
    ) -> CannotRetrain | None:
        """Answer all who wait, and complete what was interrupted; why the rest cannot be trained here, if so."""
        from disavow.erasure.erase import answer_requests, answer_without_training, training_due

        ledger, mechanism, options = self.ledger, self.mechanism, self.options
        # requests that were placed here have their folder for openings with them
        reporting = Reporting(callbacks.on_verdict, callbacks.on_round, remark=self._remark)
        without_training = partial(answer_without_training, ledger, options, reporting=reporting)
        unchecked = self._look_up_records(callbacks)
        waits = None if unchecked is None else CannotRetrain(str(unchecked))
        report_answered(callbacks, without_training(mechanism))
        if not training_due(ledger, options):
            return waits
        if not retrain:
            if any(request.pending for request in ledger.requests(numbers)):
                report_answered(callbacks, without_training(WithoutRetraining(mechanism), among=numbers))
            return waits
        try:
            engine = self._engine_to_retrain()
            self._note_engine(callbacks)
            answered = answer_requests(ledger, engine, options, mechanism, reporting)
        except CannotRetrain as refusal:
            report_answered(callbacks, without_training(mechanism, apart=True))
            return refusal
        report_answered(callbacks, answered)
        return waits

    def _look_up_records(self, callbacks: Callbacks) -> RecordsUnchecked | None:
        """Look up the records of requests that were placed where the task is not, and refuse those that nobody has.

        Why they could not be looked up, if so: then these requests wait, and no others.
        """
        ledger, waiting = self.ledger, self.ledger.unchecked_requests()
        if not waiting:
            return None
        try:
            with looking():
                task = self._load_task()
        except RecordsUnchecked as refusal:
            callbacks.on_note(f"requests {', '.join(map(str, waiting))} for records wait: {refusal}")
            return refusal
        for number in reversed(waiting):  # of two that leave a client nothing, the later one is refused
            with ledger.transaction() as transaction:
                client = transaction.request(number).client
                if client is not None and number in transaction.unchecked_requests():
                    reason = why_not(transaction, number, client, task.record_keys(client))
                    refusal_of = None if reason is None else Decision(_LOOKED_UP_BY, self.clock(), reason)
                    transaction.note_checked(number, refusal_of)
            ledger.delete_request_details(number)  # of one that is refused now
        return None

    def _engine_to_retrain(self) -> Engine:
        """What trained the run, with its data; or why it cannot be had."""
        try:
            return self.engine
        except ConfigError as error:
            raise CannotRetrain(str(error)) from error

    def _reporting(self, callbacks: Callbacks) -> Reporting:
        return Reporting(
            callbacks.on_verdict, callbacks.on_round, self.openings, callbacks.on_opening, self._remark
        )

    @property
    def _remark(self) -> Remark:
        """What the report of a rebuild says beyond its cost: whether nodes, or a user's code, trained as before."""
        from disavow.erasure.reproducibility import repetition

        own_task = self.ledger.trainer.kind == "task" and self.mechanism.exact
        return repetition if own_task or runs.on_nodes(self.settings) else lambda ledger: ""
