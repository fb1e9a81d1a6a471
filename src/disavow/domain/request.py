"""A client's wish to be forgotten: how far it has come, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

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

    Only a request that waits can be cancelled: its client stays as it is, and may ask again.
    """

    WAITING = "waiting"
    REBUILDING = "rebuilding"
    DELETING = "deleting"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ErasureRequest:
    """A client's wish to be forgotten, and what became of it.

    `client` is None once the id has been deleted. `remark` says what the verdict alone does not, such as why
    a model could not be retrained. `approximate`: rounds were rebuilt for it by other means than retraining.
    `cancelled_at` is set where it was cancelled.

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

    @property
    def pending(self) -> bool:
        """Whether something is still to be done about it."""
        return self.state not in (RequestState.ANSWERED, RequestState.CANCELLED)

    @property
    def judged(self) -> bool:
        """Whether it has a verdict: from then on its client is withdrawn from the run."""
        return self.state not in (RequestState.WAITING, RequestState.CANCELLED)

    def to_json(self) -> dict[str, Any]:
        """What became of it, for machines; without the client.

        Returns:
            Values that `json.dumps` takes; times in ISO 8601.
        """
        taken = self.answered_at - self.asked_at if self.answered_at else None
        return {
            "number": self.number,
            "state": self.state.value,
            "verdict": self.verdict.kind.value if self.verdict else None,
            "first_broken_round": self.verdict.round if self.verdict else None,
            "rollback_to_round": self.verdict.undoes if self.verdict else None,
            "criterion": self.verdict.criterion if self.verdict else None,
            "cost": asdict(self.cost) if self.cost else None,
            "asked_at": self.asked_at.isoformat(),
            "answered_at": self.answered_at.isoformat() if self.answered_at else None,
            "cancelled_at": self.cancelled_at.isoformat() if self.cancelled_at else None,
            "seconds_taken": taken.total_seconds() if taken is not None else None,
            "remark": self.remark,
            "approximate": self.approximate,
        }
