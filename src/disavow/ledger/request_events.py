"""What happened to requests: one row for each change, written with it, in the same transaction.

Kinds and times are in clear; who did it and why is sealed under the keyring's secret (`sealed_texts`). Whether a
request is paused, approved, refused or cancelled also stands in its own row, for queries; fsck compares both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import EventKind, RequestEvent
from disavow.ledger.keyring import Keyring
from disavow.ledger.members import batches
from disavow.ledger.rows import request_checksum, request_event_checksum, time_to_text
from disavow.ledger.run_state import count_commits
from disavow.ledger.schema import request_events, requests
from disavow.ledger.sealed_texts import open_texts, seal_texts

SET_BY = {
    EventKind.CANCELLED: "cancelled_at",
    EventKind.REFUSED: "refused_at",
    EventKind.PAUSED: "paused_at",
    EventKind.APPROVED: "approved_at",
    EventKind.PURGED: "purged_at",
}
"""The column of a request that has the time of such an event; the end of a pause empties its column again."""


@dataclass(frozen=True)
class NewEvent:
    """Something that happened to a request, and changes nothing in its row.

    Args:
        request: The number of the request.
        kind: What happened.
        at: When.
        by: Who did it; "" for disavow itself.
        reason: Why.

    """

    request: int
    kind: EventKind
    at: datetime
    by: str = ""
    reason: str = ""


_INSERT = request_events.insert()


def note_events(connection: sa.Connection, keyring: Keyring, events: Sequence[NewEvent]) -> None:
    """Write events of many requests by one statement. Each counts as a commit of the run.

    Args:
        connection: The ledger, for writing.
        keyring: The run's keyring.
        events: What happened, in order.

    """
    rows = [_row(keyring, each.request, each.kind, at=each.at, by=each.by, reason=each.reason) for each in events]
    if rows:
        connection.execute(_INSERT, rows)
        count_commits(connection, len(rows))


def _row(
    keyring: Keyring,
    request: int,
    kind: EventKind,
    *,
    at: datetime,
    by: str,
    reason: str,
    until: datetime | None = None,
    forecast: str | None = None,
) -> dict[str, Any]:
    """The row of an event, sealed and with its checksum."""
    row: dict[str, Any] = {
        "request": request,
        "kind": kind.value,
        "at": time_to_text(at),
        "until": None if until is None else time_to_text(until),
        "forecast": forecast,
        "sealed": None,
    }
    if by or reason:
        row["sealed"] = seal_texts(keyring, _place(row), by, reason)
    return {**row, "checksum": request_event_checksum(row)}


def note_event(
    connection: sa.Connection,
    keyring: Keyring,
    request: int,
    kind: EventKind,
    *,
    at: datetime,
    by: str = "",
    reason: str = "",
    until: datetime | None = None,
    forecast: str | None = None,
    **changed: Any,
) -> None:
    """Write an event, and what it changes in the row of its request. It counts as a commit of the run.

    Args:
        connection: The ledger, for writing.
        keyring: The run's keyring.
        request: The number of the request.
        kind: What happened.
        at: When.
        by: Who did it; "" for disavow itself.
        reason: Why.
        until: Where an extension extends the deadline to.
        forecast: The digest of the forecast that was approved.
        changed: Further columns of the request to change.

    """
    row = _row(keyring, request, kind, at=at, by=by, reason=reason, until=until, forecast=forecast)
    connection.execute(_INSERT, row)
    if kind in SET_BY:
        changed[SET_BY[kind]] = row["at"]
    elif kind is EventKind.RESUMED:
        changed["paused_at"] = None
    if changed:
        before = connection.execute(sa.select(requests).where(requests.c.id == request)).one()
        checksum = request_checksum({**before._mapping, **changed})
        connection.execute(requests.update().where(requests.c.id == request).values(**changed, checksum=checksum))
    count_commits(connection)


def events_of(
    connection: sa.Connection, keyring: Keyring, numbers: Sequence[int] | None = None
) -> dict[int, tuple[RequestEvent, ...]]:
    """Read what happened to requests, in order: to all, or to those of these numbers.

    Without the keyring nobody is named, and no reason.
    """
    query = sa.select(request_events).order_by(request_events.c.id)
    if numbers is None:
        found = list(connection.execute(query))
    else:
        found = [
            row
            for some in batches(numbers)
            for row in connection.execute(query.where(request_events.c.request.in_(some)))
        ]
    by_request: defaultdict[int, list[RequestEvent]] = defaultdict(list)
    readable = keyring.exists
    for row in found:
        by_request[row.request].append(read_event(row, keyring if readable else None))
    return {request: tuple(events) for request, events in by_request.items()}


def read_event(row: sa.Row[Any], keyring: Keyring | None) -> RequestEvent:
    """Read an event from its row; without a keyring, who did it and why stays sealed.

    Raises:
        IntegrityError: What is sealed is not what was recorded.

    """
    actor: str | None = ""
    reason: str | None = ""
    if row.sealed is not None:
        actor, reason = (None, None) if keyring is None else open_texts(keyring, _place(row._mapping), row.sealed)
    return RequestEvent(
        EventKind(row.kind),
        datetime.fromisoformat(row.at),
        actor,
        reason,
        None if row.until is None else datetime.fromisoformat(row.until),
        row.forecast,
    )


def _place(row: Any) -> str:
    return f"request {row['request']}, {row['kind']} {row['at']}"
