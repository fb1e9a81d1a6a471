"""A client's wish to be forgotten: how far it has come, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from disavow.domain.history import Deadline, EventKind, RequestEvent
from disavow.domain.verdict import Verdict


@dataclass(frozen=True)
class Cost:
    """What rebuilding takes: rounds, client-epochs, bytes exchanged with clients, seconds."""

    rounds: int = 0
    client_epochs: int = 0
    exchanged_bytes: int = 0
    seconds: float = 0.0


class RequestState(StrEnum):
    """How far a request has come. Every step is journalled; a crash resumes at the step it interrupted.

    Only a request that waits or is paused can be cancelled or refused: its client stays, and may ask again.
    """

    WAITING = "waiting"
    PAUSED = "paused"
    REBUILDING = "rebuilding"
    DELETING = "deleting"
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class Approval(StrEnum):
    """Whether somebody has to approve a request before it is answered, and has."""

    NOT_NEEDED = "not needed"
    AWAITED = "awaited"
    APPROVED = "approved"
    REFUSED = "refused"


_CLOSED = frozenset({RequestState.ANSWERED, RequestState.CANCELLED, RequestState.REFUSED})
_UNJUDGED = frozenset({RequestState.WAITING, RequestState.PAUSED, RequestState.CANCELLED, RequestState.REFUSED})


@dataclass(frozen=True)
class ErasureRequest:
    """A client's wish to be forgotten, and what became of it.

    `client` is None once the id has been deleted. `remark` says what the verdict alone does not, such as why
    a model could not be retrained. `approximate`: rounds were rebuilt for it by other means than retraining.
    `cancelled_at` is set where it was cancelled. `records`: how many records it names, of a client that stays; None
    where the whole client is to be forgotten. `history` is what happened to it, in order; deadline and pauses
    follow from it.

    Attributes:
        number: Its number in the run, from 1 on.
        client: Who asked, or None.
        asked_at: When it was placed.
        state: How far it is.
        verdict: What it was judged to be, once it was.
        cost: What answering it took, once it was answered.
        answered_at: When it was answered.
        remark: In words, or empty.
        approximate: Whether rounds were rebuilt approximately.
        cancelled_at: When it was cancelled.
        records: How many records it names; None for a whole client.
        approval: Whether somebody has to approve it, and has.
        history: What happened to it, in order.
    """

    number: int
    client: str | None
    asked_at: datetime
    state: RequestState
    verdict: Verdict | None = None
    cost: Cost | None = None
    answered_at: datetime | None = None
    remark: str = ""
    approximate: bool = False
    cancelled_at: datetime | None = None
    records: int | None = None
    approval: Approval = Approval.NOT_NEEDED
    history: tuple[RequestEvent, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether something is still to be done about it."""
        return self.state not in _CLOSED

    @property
    def judged(self) -> bool:
        """Whether it has a verdict: from then on its client is withdrawn from the run."""
        return self.state not in _UNJUDGED

    @property
    def on_hold(self) -> bool:
        """Whether it is left waiting until somebody decides: it is paused, or has to be approved."""
        unapproved = self.state is RequestState.WAITING and self.approval is Approval.AWAITED
        return unapproved or self.state is RequestState.PAUSED

    @cached_property
    def deadline(self) -> Deadline:
        """When it is due, and why then."""
        return Deadline.after(self.asked_at, self.history)

    @property
    def due(self) -> datetime:
        """When it must be answered; during a pause, as if that ended now."""
        return self.deadline.due

    @property
    def extended_until(self) -> datetime | None:
        """To when the deadline was extended; None where it was not."""
        return self.deadline.extended_until

    @property
    def paused(self) -> bool:
        """Whether it is paused: its deadline stands still, and nobody answers it."""
        return self.state is RequestState.PAUSED

    @property
    def paused_since(self) -> datetime | None:
        """Since when it is paused; None where it is not."""
        return self.deadline.paused_since if self.state is RequestState.PAUSED else None

    @property
    def refused_at(self) -> datetime | None:
        """When it was refused; None where it was not."""
        return self._last(EventKind.REFUSED)

    @property
    def purged_at(self) -> datetime | None:
        """When the last of its client's updates was out of the model; None where some may be in it."""
        return self._last(EventKind.PURGED)

    @property
    def asked_again_at(self) -> tuple[datetime, ...]:
        """When the same was asked again."""
        return tuple(event.at for event in self.history if event.kind is EventKind.DUPLICATE)

    def days_left(self, now: datetime) -> int:
        """Count whole days until it is due. They stand still during a pause.

        Args:
            now: The moment to count from.

        Returns:
            The days; negative once it is overdue.

        """
        return self.deadline.left(now) // timedelta(days=1)

    def overdue(self, now: datetime) -> bool:
        """Say whether it should have been answered, and is not.

        Args:
            now: The moment to look at it.

        Returns:
            Whether its deadline has passed while it is pending.

        """
        return self.pending and self.deadline.left(now) < timedelta()

    @property
    def in_time(self) -> bool | None:
        """Whether it was answered in time; None where it is not answered."""
        return None if self.answered_at is None else self.answered_at <= self.due

    def _last(self, kind: EventKind) -> datetime | None:
        return next((event.at for event in reversed(self.history) if event.kind is kind), None)

    def to_json(self) -> dict[str, Any]:
        """What became of it, for machines; without the client.

        Returns:
            Values that `json.dumps` takes; times in ISO 8601.
        """
        taken = self.answered_at - self.asked_at if self.answered_at else None
        return {
            "number": self.number,
            "records": self.records,
            "state": self.state.value,
            "verdict": self.verdict.kind.value if self.verdict else None,
            "first_broken_round": self.verdict.round if self.verdict else None,
            "rollback_to_round": self.verdict.undoes if self.verdict else None,
            "criterion": self.verdict.criterion if self.verdict else None,
            "cost": asdict(self.cost) if self.cost else None,
            "asked_at": self.asked_at.isoformat(),
            "answered_at": _text(self.answered_at),
            "cancelled_at": _text(self.cancelled_at),
            "due": _text(self.due),
            "extended_until": _text(self.extended_until),
            "paused_since": _text(self.paused_since),
            "approval": self.approval.value,
            "refused_at": _text(self.refused_at),
            "purged_at": _text(self.purged_at),
            "in_time": self.in_time,
            "history": [event.to_json() for event in self.history],
            "seconds_taken": taken.total_seconds() if taken is not None else None,
            "remark": self.remark,
            "approximate": self.approximate,
        }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
