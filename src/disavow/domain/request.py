"""A client's wish to be forgotten: how far it has come, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from disavow.domain.verdict import Verdict


@dataclass(frozen=True)
class Cost:
    """What rebuilding takes: rounds, client-epochs, bytes exchanged with clients, seconds."""

    rounds: int = 0
    client_epochs: int = 0
    exchanged_bytes: int = 0
    seconds: float = 0.0


class RequestState(StrEnum):
    """How far a request has come. Every step is journalled; a crash resumes at the step it interrupted."""

    WAITING = "waiting"
    REBUILDING = "rebuilding"
    DELETING = "deleting"
    PURGING = "purging"
    ANSWERED = "answered"


@dataclass(frozen=True)
class ErasureRequest:
    """A client's wish to be forgotten, and what became of it.

    `client` is None once the id has been deleted. `remark` says what the verdict alone does not, such as why
    a model could not be retrained. `approximate`: rounds were rebuilt for it by other means than retraining.
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
