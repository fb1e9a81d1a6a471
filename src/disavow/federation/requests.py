"""Erasure requests: placed, listed, approved, refused, paused, extended, cancelled; and the register.

Whoever holds the run is not disturbed: none of this takes its lock, its data or an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from disavow import runs
from disavow.domain import Approval, Decision, ErasureRequest, EventKind, RequestState
from disavow.erasure.dry_run import foresee
from disavow.errors import ForecastChanged
from disavow.federation.open_run import OpenRun
from disavow.ledger import Ledger
from disavow.ledger.requests import RESTORED, UNCHECKED, NewRequest
from disavow.request_register import Register


class Requests(OpenRun):
    """What is asked of a run, and what people have decided about it."""

    def requests(self, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
        """List erasure requests in the order in which they were placed: all, or those of these numbers.

        Args:
            numbers: Which requests; None for all.

        Returns:
            The requests, each with its state, verdict and cost.

        """
        return tuple(map(self._with_approval, self.ledger.requests(numbers)))

    def request(self, number: int) -> ErasureRequest:
        """Give the request of a number, with its history.

        Args:
            number: Its number.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none.

        """
        return self._with_approval(self.ledger.request(number))

    def request_page(
        self, *, states: Sequence[RequestState] | None = None, before: int | None = None, most: int
    ) -> tuple[ErasureRequest, ...]:
        """List some requests, the newest first, however many there are.

        Args:
            states: Only those in one of these states; None for all.
            before: Only those with lower numbers.
            most: How many at most.

        Returns:
            The requests.

        """
        found = self.ledger.request_page(states=states, before=before, most=most)
        return tuple(map(self._with_approval, found))

    def _with_approval(self, request: ErasureRequest) -> ErasureRequest:
        """Say of a request that it has to be approved, where the settings say so and it was not yet."""
        open_ones = (RequestState.WAITING, RequestState.PAUSED)
        needed = self.settings.requests.approval != "never" and request.remark != RESTORED
        if needed and request.state in open_ones and request.approval is Approval.NOT_NEEDED:
            return replace(request, approval=Approval.AWAITED)
        return request

    def register(self) -> Register:
        """Give the register of all requests: refused, cancelled and repeated ones too (GDPR Art. 30).

        Clients, actors and reasons are in it only where the keyring is.

        Returns:
            The register, which writes itself as JSON and CSV.

        """
        named = self.ledger.keyring.exists
        return Register(
            str(self.directory),
            self.ledger.run_id,
            self.clock(),
            self.requests(),
            named=named,
            readmissions=self.ledger.all_readmissions() if named else (),
        )

    def place(
        self,
        clients: Sequence[str],
        *,
        by: Sequence[str] | str = "",
        records: Sequence[Sequence[str] | None] | None = None,
    ) -> tuple[int, ...]:
        """Place requests of these clients to be forgotten, for whoever holds the run or next opens it to answer.

        Nothing is answered here, so that it takes neither the run's lock nor its signing key, nor the task. Asking
        twice gives the number of the first request. All are placed in one transaction, or none. Records are not
        looked up here: whoever answers does, and refuses a request for records that nobody has.

        Args:
            clients: Who asks.
            by: Who places the requests: one for all, or one for each.
            records: The records of each client, in the same order; None for a whole client.

        Returns:
            The numbers of their requests, in this order.

        Raises:
            UnknownClient: One of them is not in the run; nothing is placed.
            RecordErased: One of the records was erased before; nothing is placed.

        """
        actors = [by] * len(clients) if isinstance(by, str) else by
        named = [None] * len(clients) if records is None else records
        new = [NewRequest(*each) for each in zip(clients, named, actors, strict=True)]
        openings = None if self.openings is None else self.openings.expanduser().absolute()
        note = "" if runs.on_nodes(self.settings) else UNCHECKED  # nodes look for their own
        with self._beside() as ledger, ledger.transaction() as transaction:
            return transaction.place_requests(new, at=self.clock(), openings=openings, note=note)

    def approve(
        self, number: int, *, by: str, reason: str = "", forecast_digest: str | None = None
    ) -> ErasureRequest:
        """Approve a request, so that it is answered. Whoever holds the run is not disturbed, nor by those below.

        Args:
            number: The request.
            by: Who approves it.
            reason: Why, if there is anything to say.
            forecast_digest: The `Prospect.digest` of the forecast that was seen; None: whatever it comes to.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is judged, refused, cancelled or approved already.
            ForecastChanged: The present forecast is another than the one that was seen.
            TextNamesClient: Name or reason contain the id of a client.

        """
        decision = Decision(by, self.clock(), reason)
        with self._beside() as ledger:
            with ledger.transaction() as transaction:  # nobody else writes meanwhile: the forecast stays
                if forecast_digest is not None:
                    self._refuse_other_forecast(ledger, transaction.request(number), forecast_digest)
                transaction.approve_request(number, decision, forecast=forecast_digest)
            return self._with_approval(ledger.request(number))

    def _refuse_other_forecast(self, ledger: Ledger, request: ErasureRequest, seen: str) -> None:
        if request.judged or not request.pending or request.client is None:
            return  # it cannot be approved at all, which is said next
        leaving, staying = ([request.client], []) if request.records is None else ([], [request.client])
        present = foresee(ledger, leaving, self.options, self.mechanism, records_of=staying).digest
        if present != seen:
            raise ForecastChanged(
                f"what is forecast for request {request.number} has changed since it was seen: look at it again; "
                "nothing was approved",
                digest=present,
            )

    def refuse(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """Refuse a request: it is not answered, and stays in the register. Its client may ask again.

        Args:
            number: The request.
            by: Who refuses it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is judged, refused or cancelled already.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.REFUSED, by, reason)

    def pause(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """Pause a request while the identity of who asks is in doubt: its deadline moves by as long.

        Args:
            number: The request.
            by: Who pauses it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It does not wait: it is paused, judged, refused or cancelled.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.PAUSED, by, reason)

    def resume_request(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """End the pause of a request: the identity of who asks is verified.

        Args:
            number: The request.
            by: Who has verified it.
            reason: How.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is not paused.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.RESUMED, by, reason)

    def extend(self, number: int, *, by: str, reason: str, until: datetime | None = None) -> ErasureRequest:
        """Extend the deadline of a request, once and before it is due (GDPR Art. 12(3)).

        Where the settings promise a purge, also that of an answered request whose client is yet to be purged: the
        purge begins as much later.

        Args:
            number: The request.
            by: Who extends it.
            reason: Why, which is told to whoever asks.
            until: To when; by default as far as it may be, three months after receipt and any pause.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is closed, or paused.
            DeadlineRefused: It was extended before, is due already, or is to be extended too far or into the past.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.EXTENDED, by, reason, until=until)

    def _decide(
        self, number: int, kind: EventKind, by: str, reason: str, *, until: datetime | None = None
    ) -> ErasureRequest:
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            ledger.decide_request(
                number,
                kind,
                Decision(by, self.clock(), reason),
                until=until,
                interim=self.settings.deniability.purge == "deadline",
            )
            return self._with_approval(ledger.request(number))

    def cancel(self, client: str | int, *, by: str = "", reason: str = "") -> ErasureRequest:
        """Cancel a request that waits; whoever holds the run is not disturbed. Its client may ask again.

        Args:
            client: Whose request it is; or the number of the request.
            by: Who cancels it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownClient: It is not a client of the run.
            UnknownRequest: There is no request of this number.
            ConfigError: Several requests of the client wait.
            RunError: It has not asked, or has its verdict already.

        """
        if isinstance(client, int):
            request = self.request(client)
            if request.state is RequestState.CANCELLED:
                return request
            return self._decide(client, EventKind.CANCELLED, by, reason)
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            number = ledger.cancel_request(client, at=self.clock(), by=by, reason=reason)
            [request] = ledger.requests([number])
        return request

    def readmit(self, client: str, *, by: str, reason: str) -> None:
        """Let somebody who was erased be a client again, under a new key: it consents again.

        What it was forgotten for stays forgotten: its earlier slots are nobody's. Whoever holds the run is not
        disturbed, and takes it for a newcomer.

        Args:
            client: Who returns.
            by: Who decided it.
            reason: Why.

        Raises:
            NotForgotten: It is in the run.
            UnknownClient: It never was.
            TextNamesClient: Name or reason contain the id of a client.

        """
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            ledger.readmit(client, Decision(by, self.clock(), reason))
