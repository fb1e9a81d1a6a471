"""An erasure from the question to the answer.

    request -> open keys -> forecast -> place -> judge ─┬─ deniable ───────────────────────────┐
                                                        └─ load data, engine -> retrain ───────┴─ prove, delete

Whatever can refuse comes before a request is placed; what cannot be trained here undoes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from disavow import runs
from disavow.domain import ErasureRequest
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.mechanisms import WithoutRetraining, refuse_another
from disavow.erasure.proof_files import check_openings, default_openings
from disavow.errors import CannotRetrain, ConfigError, RequestNotOpen, RunInUse, UnknownClient
from disavow.federation.callbacks import NOBODY, Callbacks
from disavow.federation.proofs import Proofs
from disavow.federation.purges import POLL_SECONDS, Purges
from disavow.federation.requests import Requests
from disavow.ledger import Ledger
from disavow.ledger.requests import already_forgotten
from disavow.proof.keys import load_signer
from disavow.proof.notes import Signer
from disavow.record_requests import Clients, ErasureScope, checked, refuse_erased, scope_of, unknown_client
from disavow.results import Answer, Prospect

Confirm = Callable[[Prospect], None]
"""Sees what would happen before anything is placed; an exception from it ends the erasure with nothing changed."""


class Erasures(Requests, Purges, Proofs):
    """Forecasts, erasures, and answers to whoever has asked."""

    def forecast(
        self,
        clients: Clients | None = None,
        *,
        records: Sequence[str] | str | None = None,
        everywhere: Sequence[str] | str | None = None,
        unchecked: bool = False,
        retrain: bool = True,
        try_loading: bool = True,
    ) -> Prospect:
        """Tell what `erase` would do, also whether it could retrain here. Changes nothing.

        Args:
            clients: Who would ask.
            records: As for `erase`.
            everywhere: As for `erase`.
            unchecked: As for `erase`.
            retrain: As for `erase`.
            try_loading: Load the data, to see whether it is there; without it, somebody else is to retrain.

        Returns:
            The verdict and the cost that are to be expected, and why it would be refused here, if so.

        Raises:
            UnknownClient: One of them is not in the run, and has not asked before.
            UnknownRecord: A client does not hold one of the records.

        """
        scope = self._checked(scope_of(clients, records, everywhere), unchecked=unchecked)
        prospect = self._prospect(self.ledger, scope, retrain=retrain)
        trains = prospect.refusal is None and prospect.forecast is not None and _trains(prospect.forecast)
        if try_loading and self.own_engine is None and trains:
            try:
                with self.loading() as on_progress:
                    runs.find_again(self.ledger, self.settings, self.task, on_progress=on_progress)
            except (CannotRetrain, ConfigError) as error:
                return replace(prospect, refusal=CannotRetrain(str(error)))
        return prospect

    def forecast_of(self, number: int, *, retrain: bool = True) -> Prospect:
        """Tell what answering a request would do now; its digest is what `approve` takes. Changes nothing.

        Args:
            number: The request.
            retrain: As for `erase`.

        Returns:
            What is to be expected; without a forecast where it is judged already.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It was cancelled or refused.
            KeyringMissing: Without the keyring nobody knows whose it is.

        """
        request = self.request(number)
        if request.judged:
            return Prospect({} if request.client is None else {request.client: request}, None)
        if not request.pending:
            raise RequestNotOpen(f"request {number} is {request.state.value}: there is nothing to forecast")
        self.ledger.keyring.count()  # without a keyring, that is what is wrong
        if request.client is None:
            raise RequestNotOpen(
                f"request {number} is for clients who were forgotten: there is nothing to forecast"
            )
        scope = ErasureScope(clients=(request.client,))
        if request.records is not None:
            scope = ErasureScope(records={request.client: self.ledger.requested_records(number)})
        return self._prospect(self.ledger, scope, retrain=retrain)

    def _prospect(self, ledger: Ledger, scope: ErasureScope, *, retrain: bool) -> Prospect:
        try:
            return self._prospect_now(ledger, scope, retrain=retrain)
        except UnknownClient:
            # another process may have answered it between two reads: then it is found among the answered ones
            return self._prospect_now(ledger, scope, retrain=retrain)

    def _prospect_now(self, ledger: Ledger, scope: ErasureScope, *, retrain: bool) -> Prospect:
        with ledger.snapshot() as snapshot:
            found = {client: self._request_of(snapshot, client) for client in scope.clients}
            found |= {client: snapshot.find_record_request(client, keys) for client, keys in scope.records.items()}
        before = {c: r for c, r in found.items() if r is not None and r.judged}
        asking = [client for client in scope.ids if client not in before]
        if not asking:
            return Prospect(before, None, records=scope.records)
        for client in ledger.strangers(asking):
            if ledger.has_left(client):
                raise already_forgotten(client)
            raise unknown_client(client, ledger.clients())
        mechanism = self.mechanism if retrain else WithoutRetraining(self.mechanism)
        leaving, staying = ([c for c in asking if (c in scope.records) == kept] for kept in (False, True))
        forecast = foresee(ledger, leaving, self.options, mechanism, records_of=staying)
        if _trains(forecast) and self.own_engine is None:
            try:
                runs.refuse_other_trainer(ledger, self.settings, self.task)
            except (CannotRetrain, ConfigError) as error:
                return Prospect(before, forecast, CannotRetrain(str(error)), scope.records)
        return Prospect(before, forecast, records=scope.records)

    def erase(
        self,
        clients: Clients | None = None,
        *,
        records: Sequence[str] | str | None = None,
        everywhere: Sequence[str] | str | None = None,
        unchecked: bool = False,
        wait: float = 60.0,
        retrain: bool = True,
        confirm: Confirm | None = None,
        callbacks: Callbacks = NOBODY,
        by: str = "",
        reason: str = "",
    ) -> Answer:
        """Place requests of clients to be forgotten, or to have records erased; see to it that they are answered.

        Whatever can refuse comes before a request is placed. What is deniable takes neither data nor an engine; and
        what is not undoes nothing before both are there. Another process that holds the run answers the requests
        between its rounds; it is waited for.

        Of a client that has records erased, all updates so far are withdrawn; it goes on without the records, which
        no round sees again. Whether it holds them is looked up in the task.

        Example::

            federation.erase("client-07")
            federation.erase("hospital-3", records=["patient-17", "patient-40"])
            federation.erase({"hospital-1": ["patient-17"], "hospital-3": ["patient-40"]})
            federation.erase(everywhere=["patient-17"])

        Args:
            clients: Who asks; or the records, by client.
            records: The records of these clients; without them, the whole clients are forgotten.
            everywhere: Records to erase wherever they are, in the place of clients.
            unchecked: Place requests for records without looking whether the clients hold them: where the task is
                not to be had here, or the data is gone already. Of clients on nodes of their own it never is.
            wait: Seconds to wait for another process that holds the run.
            retrain: Without it, a rollback that these clients need is made here and nothing is trained after it:
                the model of before is served, and the rounds after it are dropped, those of an unfinished rebuild
                too.
            confirm: Sees what would happen before anything is placed, and may end it by an exception.
            callbacks: Who hears how far it is.
            by: Who places the requests.
            reason: What is said of that in their history.

        Returns:
            The request of each client, with its verdict and cost once it is answered; and why some wait, if so. One
            that has to be approved, or is paused, is placed and left waiting (`ErasureRequest.on_hold`).

        Raises:
            UnknownClient: One of them is not in the run, and has not asked before; nothing is placed.
            UnknownRecord: A client does not hold one of the records; nothing is placed.
            RecordErased: One of the records was erased before; nothing is placed.
            RecordsUnchecked: Records cannot be looked up here, or are all that a client holds; nothing is placed.
            RunInUse: Another process holds the run, and has not answered in time; the requests stay placed.

        """
        settings, scope = self.settings, scope_of(clients, records, everywhere)
        openings = None if self.openings is None else self.openings.expanduser().absolute()
        check_openings(openings or default_openings(self.directory), self.directory)
        # a wrong passphrase is refused here, before anything is placed
        signer = load_signer(self.keys, self.ask)
        if not self.ledger.writable:
            self.ledger.allow_short_writes()
        ledger = self.ledger
        for note in ledger.restored.notes:
            callbacks.on_note(note)
        runs.refuse_changed(ledger, settings)
        refuse_another(ledger, self.mechanism)
        ledger.refuse_signer(signer)
        self._refuse_unknown(scope.clients)
        scope = self._checked(scope, unchecked=unchecked)
        if confirm is not None:
            confirm(self._prospect(ledger, scope, retrain=retrain))
        if openings is not None:
            _make_openings(openings)
        placed = self._place(scope, openings, by=by, reason=reason)
        numbers = tuple(placed.values())
        callbacks.on_placed(numbers)
        callbacks = self._tracked(callbacks)
        deadline = time.monotonic() + wait
        refusal = self._see_to(numbers, signer, callbacks, retrain=retrain, deadline=deadline)
        found = {request.number: self._with_approval(request) for request in ledger.requests(numbers)}
        return Answer({client: found[number] for client, number in placed.items()}, refusal)

    def _refuse_unknown(self, clients: Sequence[str]) -> None:
        """Refuse an id that nobody has, and say whose it may have been meant to be."""
        for client in self.ledger.strangers(clients):
            if self._request_of(self.ledger, client) is None:
                if self.ledger.has_left(client):
                    raise already_forgotten(client)
                raise unknown_client(client, self.ledger.clients())

    def _checked(self, scope: ErasureScope, *, unchecked: bool) -> ErasureScope:
        """Refuse records that nobody has, or that cannot be erased; find who holds those to erase everywhere."""
        if not scope.names_records:
            return scope
        for client in self.ledger.strangers(list(scope.records)):
            if self.ledger.has_left(client) or self.ledger.find_request(client) is not None:
                raise already_forgotten(client)
            raise unknown_client(client, self.ledger.clients())
        # nodes hold records that only they can look for: each says what it does not have when it is to leave it out
        if not unchecked and not runs.on_nodes(self.settings):
            return checked(self.ledger, scope, self._load_task)
        if scope.everywhere:
            raise ConfigError(
                "records to erase everywhere must be looked for, which --unchecked does not, and nobody can for "
                "nodes; allowed: the clients that hold them, each with --record"
            )
        refuse_erased(self.ledger, scope)
        return scope

    def _place(self, scope: ErasureScope, openings: Path | None, *, by: str, reason: str) -> dict[str, int]:
        """Place the requests; whoever was answered before has its request already. Their numbers, by client."""
        ledger, at = self.ledger, self.clock()
        if scope.records:
            return ledger.place_record_requests(scope.records, at=at, openings=openings, by=by, reason=reason)
        before = {client: self._request_of(ledger, client) for client in scope.clients if ledger.has_left(client)}
        asking = [client for client in scope.clients if client not in before]
        numbers = ledger.place_requests(asking, at=at, openings=openings, by=by, reason=reason)
        placed = dict(zip(asking, numbers, strict=True))
        placed |= {client: request.number for client, request in before.items() if request is not None}
        return {client: placed[client] for client in scope.clients}

    def _see_to(
        self,
        numbers: tuple[int, ...],
        signer: Signer | None,
        callbacks: Callbacks,
        *,
        retrain: bool,
        deadline: float,
    ) -> CannotRetrain | None:
        """Answer the requests here, or wait for the process that holds the run to answer them between its rounds.

        Why some of them are left waiting; None once all are answered, or wait for somebody's decision.
        """
        ledger, announced = self.ledger, False
        while any(request.pending for request in ledger.requests(numbers)):
            if self._all_on_hold(numbers, looked_at=self.settings.requests.approval == "always"):
                return None
            try:
                with ledger.locked(signer):
                    refusal = self._answer_locked(numbers, callbacks, retrain=retrain)
                    if retrain:
                        self._purge_in_time(callbacks)
            except RunInUse as error:
                if time.monotonic() >= deadline:
                    raise RunInUse(
                        f"{error}. The request is placed and will be honoured between its rounds: "
                        f"`disavow requests {self.directory}` shows it"
                    ) from None
                if not announced:
                    callbacks.on_wait(f"{error}; the request is placed, waiting for it to be honoured")
                    announced = True
                time.sleep(POLL_SECONDS)
                continue
            if refusal is not None:
                return refusal if any(request.pending for request in ledger.requests(numbers)) else None
            if self._all_on_hold(numbers, looked_at=True):
                return None
        return None

    def _all_on_hold(self, numbers: tuple[int, ...], *, looked_at: bool) -> bool:
        """Whether every request that is still open waits for somebody's decision.

        One that only a rollback needs approval for does so once somebody has `looked_at` it and left it waiting.
        """
        open_ones = [request for request in self.requests(numbers) if request.pending]
        return all(request.on_hold if looked_at else request.paused for request in open_ones)

    def answer(self, callbacks: Callbacks = NOBODY) -> tuple[ErasureRequest, ...]:
        """Answer every request that waits, and complete what was interrupted.

        Data and engine are loaded only where something has to be trained.

        Args:
            callbacks: Who hears how far it is.

        Returns:
            The requests that are answered now.

        Raises:
            CannotRetrain: Rounds must be trained, and what trained the run is not to be had here.

        """
        self._take_lock()
        callbacks = self._tracked(callbacks)
        answered = self._answer(callbacks)
        self._purge_in_time(callbacks)
        return answered


def _trains(forecast: Forecast) -> bool:
    """Whether these clients' own answer needs training."""
    return forecast.verdict.undoes is not None and forecast.cost.rounds > 0


def _make_openings(folder: Path) -> None:
    """Make the folder that openings are asked for in, while somebody is there to be told that it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}; allowed: a folder for openings") from None
    if not usable:
        raise ConfigError(f"{folder} cannot be written; allowed: a folder for openings that can be")
