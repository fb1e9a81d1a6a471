"""What happened to a request, and the deadline that follows from it (GDPR Art. 12(3))."""

from __future__ import annotations

import calendar
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

MONTHS, MOST_MONTHS = 1, 3
"""A request is due so many calendar months after it was received; an extension may end so many after it."""


class EventKind(StrEnum):
    """What changed a request, or was said about it: that it was asked again, or that a client's node does not hold
    a record that it names.
    """

    RECEIVED = "received"
    PAUSED = "paused"
    RESUMED = "resumed"
    EXTENDED = "extended"
    APPROVED = "approved"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    DUPLICATE = "duplicate"
    NOT_HELD = "not held"
    JUDGED = "judged"
    ANSWERED = "answered"
    PURGED = "purged"


@dataclass(frozen=True)
class RequestEvent:
    """One change of a request.

    Args:
        kind: What changed.
        at: When.
        actor: Who did it; "" for nobody but disavow itself, None where there is no keyring to say so.
        reason: Why; likewise.
        until: To when an extension extends the deadline.
        forecast: The digest of the forecast that an approval was given for.

    """

    kind: EventKind
    at: datetime
    actor: str | None = ""
    reason: str | None = ""
    until: datetime | None = None
    forecast: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "kind": self.kind.value,
            "at": self.at.isoformat(),
            "actor": self.actor,
            "reason": self.reason,
            "until": self.until.isoformat() if self.until else None,
            "forecast": self.forecast,
        }


@dataclass(frozen=True)
class Decision:
    """Who decided something about a request, when and why."""

    by: str
    at: datetime
    reason: str = ""


@dataclass(frozen=True)
class Deadline:
    """When a request is due.

    Args:
        received: When it was received.
        due: When it must be answered. While it is paused, as if it went on now: the pause is added once it ends.
        extended_until: To when the deadline was extended, before any pause after that.
        paused_since: Since when it is paused; None where it is not.
        paused: How long it was paused in all, the present pause left out.

    """

    received: datetime
    due: datetime
    extended_until: datetime | None = None
    paused_since: datetime | None = None
    paused: timedelta = timedelta()

    @classmethod
    def after(cls, received: datetime, events: Iterable[RequestEvent]) -> Deadline:
        """Derive it from what happened.

        Args:
            received: When the request was received.
            events: What happened to it, in order.

        """
        due, extended, since, paused = months_after(received, MONTHS), None, None, timedelta()
        for event in events:
            if event.kind is EventKind.PAUSED:
                since = event.at
            elif event.kind is EventKind.RESUMED and since is not None:
                length = max(event.at - since, timedelta())  # a clock may have been set back
                due, paused, since = due + length, paused + length, None
            elif event.kind is EventKind.EXTENDED and event.until is not None:
                due = extended = event.until
        return cls(received, due, extended, since, paused)

    @property
    def latest(self) -> datetime:
        """To when it may be extended at most."""
        return months_after(self.received, MOST_MONTHS) + self.paused

    def left(self, now: datetime) -> timedelta:
        """How long there is until it is due, negative once it is overdue; it stands still during a pause."""
        return self.due - (now if self.paused_since is None else self.paused_since)


def months_after(moment: datetime, months: int) -> datetime:
    """Give the same time of day so many calendar months later, in UTC: on the same day, or the month's last.

    Args:
        moment: A moment.
        months: How many.

    >>> months_after(datetime(2027, 1, 31, 9, tzinfo=UTC), 1).isoformat()
    '2027-02-28T09:00:00+00:00'
    """
    start = moment.astimezone(UTC)
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    return start.replace(year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1]))
