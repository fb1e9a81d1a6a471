"""What the methods of `Federation` return: frozen values, each with one JSON form where machines read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from disavow.config import Settings
from disavow.domain import EngineChoice, ErasureRequest, Policy, model_name
from disavow.erasure.dry_run import Forecast
from disavow.errors import CannotRetrain
from disavow.ledger import RoundSummary
from disavow.ledger.journal import Rebuilding
from disavow.ledger.odds import Odds
from disavow.ledger.restored import Restored
from disavow.register import DueRequest


@dataclass(frozen=True)
class Prospect:
    """What is known before requests are placed.

    Args:
        before: Clients who have been answered before, with their requests.
        forecast: What the others would get together; None where nobody else asks.
        refusal: Why what it takes to retrain is not to be had here: then they wait, and nothing is undone.

    """

    before: Mapping[str, ErasureRequest]
    forecast: Forecast | None
    refusal: CannotRetrain | None = None

    @property
    def digest(self) -> str | None:
        """The SHA-256 of what is forecast, which an approval can be bound to; None where nothing is.

        It covers the verdict, the work and the model that is served in the end; not the time, which is an estimate.
        """
        return None if self.forecast is None else self.forecast.digest


@dataclass(frozen=True)
class Answer:
    """Every client's request as it stands now; and why those that wait could not be answered here."""

    requests: Mapping[str, ErasureRequest]
    refusal: CannotRetrain | None = None


@dataclass(frozen=True)
class Unsettled:
    """What is still to be done before a run serves its model again; false when nothing is."""

    rebuild: Rebuilding | None
    restored: Restored
    next_round: int
    remedy: str = ""
    run: str = "RUN"

    def __bool__(self) -> bool:
        return self.rebuild is not None or self.restored.slots > 0

    @property
    def unfinished(self) -> str | None:
        """How far a rebuild is, in words."""
        if self.rebuild is None:
            return None
        left = max(self.rebuild.target - self.next_round + 1, 0)
        return (
            f"a rollback to round {self.rebuild.first} is unfinished: {left} of "
            f"{self.rebuild.target - self.rebuild.first + 1} rounds are still to be rebuilt, and "
            f"{model_name(self.next_round - 1)} is all there is meanwhile; {self.remedy}"
        )

    @property
    def reason(self) -> str | None:
        """Why the model that is served now is not the one that will be, in words."""
        return self.unfinished or (self.forgotten if self else None)

    @property
    def forgotten(self) -> str | None:
        """Whom a run that was restored from a backup has forgotten, in words."""
        text = str(self.restored)
        if not self.restored.accepted:
            text += f"; `disavow keyring accept {self.run}` goes on with it"
        elif self.restored.slots:
            text += f"; {self.remedy}, and withdraws them first"
        return text or None

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        rebuild = self.rebuild
        return {
            "rebuild": None
            if rebuild is None
            else {"first": rebuild.first, "last": rebuild.target, "next": self.next_round},
            "restored": {
                "older": self.restored.older,
                "accepted": self.restored.accepted,
                "slots": self.restored.slots,
            },
        }


@dataclass(frozen=True)
class KeptModels:
    """How many models of standing rounds are kept, the initial one among them, and within which budget of bytes."""

    retention: int | str
    kept: int
    thinned: int
    kept_bytes: int
    kept_rounds: list[int]
    url: str | None = None
    """Where they are, if not in the run directory."""


@dataclass(frozen=True)
class Spending:
    """What of the privacy budget is spent, by the claim that it is held to."""

    epsilon: float
    delta: float
    spent: float
    claim: str


@dataclass(frozen=True)
class Status:
    """What a run holds.

    `obstacle` says why no more rounds can be trained, where more are wanted; `engine` which engine trained last,
    and why no faster one did. `due` are the requests that are open, the one with the least time left first.
    """

    run: str
    run_id: str
    created_at: datetime
    created_by: str
    policy: Policy
    settings: Settings
    clients: int | None
    log: str
    unsettled: Unsettled
    stored_bytes: int
    models: KeptModels
    model: str
    budget: Spending | None
    odds: Odds | None
    rounds: tuple[RoundSummary, ...]
    obstacle: str | None
    engine: EngineChoice | None = None
    due: tuple[DueRequest, ...] = ()

    @property
    def standing(self) -> list[RoundSummary]:
        """The rounds that stand, in order."""
        return [summary for summary in self.rounds if summary.standing]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "run": self.run,
            "run_id": self.run_id,
            "created_at": self.created_at.isoformat(),
            "created_by": self.created_by,
            "policy": asdict(self.policy),
            "clients": self.clients,
            "log": self.log,
            "mechanism": self.settings.mechanism.model_dump(),
            "rounds_wanted": self.settings.rounds,
            "complete": len(self.standing) >= self.settings.rounds and not self.unsettled,
            **self.unsettled.to_json(),
            "stored_bytes": self.stored_bytes,
            "models": asdict(self.models),
            "model": self.model,
            "budget": asdict(self.budget) if self.budget else None,
            "engine": self.engine.to_json() if self.engine else None,
            "log10_odds": asdict(self.odds) if self.odds else None,
            "rounds": [summary.to_json() for summary in self.rounds],
            "open_requests": len(self.due),
            "next_due": None if not self.due else self.due[0].to_json(),
        }


@dataclass(frozen=True, eq=False)
class Proof:
    """A proof as a file, with what a caller tells of it.

    Args:
        data: The signed proof.
        request: The number of the request that it answers; None for a what-if.
        as_of: How many leaves of the log it covers.
        newest: How many leaves the log has.
        renewed: Whether it was made anew for the present head.

    """

    data: bytes
    request: int | None
    as_of: int
    newest: int
    renewed: bool


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A model as a safetensors file.

    Args:
        data: The file.
        digest: Its SHA-256.
        mean_of: The digests that it is the mean of; None for the model that is served.
        newest: The newest round that it holds.
        unsettled: What is still to be done before the run serves its model.
        release: The number under which it was recorded who receives it; None where nobody was named.

    """

    data: bytes
    digest: str
    mean_of: tuple[str, ...] | None
    newest: int
    unsettled: Unsettled
    release: int | None = None
