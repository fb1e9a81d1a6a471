"""The register of erasure requests (GDPR Art. 30), and what of it is due: for people, spreadsheets and machines."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from disavow.domain import Decision, ErasureRequest, EventKind, RequestEvent

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


@dataclass(frozen=True)
class DueRequest:
    """A request about which something is still to be done, and how long there is.

    Args:
        run: The run that it is in.
        request: The request.
        days_left: Whole days until it is due; negative once it is overdue.
        overdue: Whether it should have been answered already, or purged.
        to_purge: Whether it is answered, and its client is yet to be purged from the model.
        at_risk: Why it will not be purged in time, as far as is known; None where nothing speaks against it.

    """

    run: str
    request: ErasureRequest
    days_left: int
    overdue: bool
    to_purge: bool = False
    at_risk: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The same for machines; without the client."""
        return {
            "run": self.run,
            "days_left": self.days_left,
            "overdue": self.overdue,
            "to_purge": self.to_purge,
            "at_risk": self.at_risk,
            "request": self.request.to_json(),
        }


def due_first(
    run: str,
    requests: tuple[ErasureRequest, ...],
    now: datetime,
    to_purge: Mapping[int, str | None] | None = None,
) -> tuple[DueRequest, ...]:
    """Give requests that are open in the order of how long there is to answer or to purge them.

    Args:
        run: The run that they are in.
        requests: The requests; those that are closed are left out.
        now: The present moment.
        to_purge: The numbers of those whose answer is an interim one, and why one will not be purged in time.

    """
    risks = to_purge or {}
    open_ones = [request for request in requests if request.pending or request.number in risks]
    open_ones.sort(key=lambda request: (request.deadline.left(now), request.number))
    return tuple(
        DueRequest(
            run,
            each,
            each.days_left(now),
            each.deadline.left(now) < timedelta(),
            to_purge=not each.pending,
            at_risk=risks.get(each.number),
        )
        for each in open_ones
    )


@dataclass(frozen=True)
class Register:
    """All requests of a run, with what became of them: refused, cancelled and repeated ones too.

    Args:
        run: The run.
        run_id: Its id.
        made_at: When the register was read.
        requests: The requests, in the order in which they were placed.
        named: Whether the keyring was there: only then are clients and actors named.
        readmissions: Who decided that somebody who had left may return, when and why; none without the keyring.

    """

    run: str
    run_id: str
    made_at: datetime
    requests: tuple[ErasureRequest, ...]
    named: bool
    readmissions: tuple[Decision, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The register with the whole history of each request, for machines."""
        return {
            "run": self.run,
            "run_id": self.run_id,
            "made_at": self.made_at.isoformat(),
            "named": self.named,
            "requests": [{**request.to_json(), "client": request.client} for request in self.requests],
            "readmissions": [
                {"by": each.by, "at": each.at.isoformat(), "reason": each.reason} for each in self.readmissions
            ],
        }

    def to_csv(self) -> str:
        """One line for each request, for spreadsheets. A text that they would take for a formula begins with '."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(_line(None)), lineterminator="\n")
        writer.writeheader()
        for request in self.requests:
            writer.writerow({name: _cell(value) for name, value in _line(request).items()})
        return text.getvalue()


def _line(request: ErasureRequest | None) -> dict[str, Any]:
    """What a line says of a request; of none, its headings."""
    document: dict[str, Any] = {} if request is None else {**request.to_json(), "client": request.client}
    decided = _decisions(request, EventKind.APPROVED, EventKind.REFUSED, EventKind.CANCELLED)
    extended = _decisions(request, EventKind.EXTENDED)
    paused = _decisions(request, EventKind.PAUSED)
    again = () if request is None else request.asked_again_at
    return {
        "request": document.get("number"),
        "client": document.get("client"),
        "records": document.get("records"),
        "received_at": document.get("asked_at"),
        "received_by": _names(_decisions(request, EventKind.RECEIVED)),
        "state": document.get("state"),
        "due": document.get("due"),
        "extended_until": document.get("extended_until"),
        "extended_by": _names(extended),
        "extended_why": _reasons(extended),
        "paused_at": _times(paused),
        "resumed_at": _times(_decisions(request, EventKind.RESUMED)),
        "paused_by": _names(paused),
        "paused_why": _reasons(paused),
        "approval": document.get("approval"),
        "decided_by": _names(decided),
        "decided_why": _reasons(decided),
        "verdict": document.get("verdict"),
        "rollback_to_round": document.get("rollback_to_round"),
        "answered_at": document.get("answered_at"),
        "in_time": document.get("in_time"),
        "purged_at": document.get("purged_at"),
        "refused_at": document.get("refused_at"),
        "cancelled_at": document.get("cancelled_at"),
        "asked_again": len(again),
        "asked_again_at": "; ".join(moment.isoformat() for moment in again),
        "remark": document.get("remark"),
    }


def _decisions(request: ErasureRequest | None, *kinds: EventKind) -> list[RequestEvent]:
    return [] if request is None else [event for event in request.history if event.kind in kinds]


def _times(events: list[RequestEvent]) -> str:
    return "; ".join(event.at.isoformat() for event in events)


def _names(events: list[RequestEvent]) -> str:
    return "; ".join(event.actor for event in events if event.actor)


def _reasons(events: list[RequestEvent]) -> str:
    return "; ".join(event.reason for event in events if event.reason)


def _cell(value: Any) -> Any:
    """A value as a spreadsheet may read it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
