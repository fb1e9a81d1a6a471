"""What the methods of `Federation` return: frozen values, each with one JSON form where machines read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from disavow.config import Settings
from disavow.cosigning import Cosignatures
from disavow.domain import EngineChoice, ErasureRequest, Policy, model_name
from disavow.erasure.dry_run import Forecast
from disavow.erasure.purge import PurgeForecast
from disavow.errors import CannotRetrain
from disavow.ledger import RoundSummary
from disavow.ledger.journal import Purge, Rebuilding
from disavow.ledger.odds import Odds
from disavow.ledger.restored import Restored
from disavow.request_register import DueRequest


@dataclass(frozen=True)
class Prospect:
    """What is known before requests are placed.

    Args:
        before: Clients who have been answered before, with their requests.
        forecast: What the others would get together; None where nobody else asks.
        refusal: Why what it takes to retrain is not to be had here: then they wait, and nothing is undone.
        records: The records of clients that stay, by client; none where whole clients are to be forgotten.

    """

    before: Mapping[str, ErasureRequest]
    forecast: Forecast | None
    refusal: CannotRetrain | None = None
    records: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def digest(self) -> str | None:
        """The SHA-256 of what is forecast, which an approval can be bound to; None where nothing is.

        It covers the verdict and the work, to a power of two; not the time, which is an estimate.
        """
        return None if self.forecast is None else self.forecast.digest


@dataclass(frozen=True)
class Answer:
    """Every client's request as it stands now; and why those that wait could not be answered here.

    Attributes:
        requests: Each client's request, by its id.
        refusal: Why those that wait could not be answered; None where none waits for that reason.
    """

    requests: Mapping[str, ErasureRequest]
    refusal: CannotRetrain | None = None


@dataclass(frozen=True)
class Purged:
    """What a purge came to.

    Args:
        run: The run.
        requests: The requests whose clients are out of the model now, each with `purged_at`.
        purge: The purge with its cost; None where there was nothing to purge, or a rollback of whoever
            waited did it.
        left: How many requests there are whose clients' updates may be in the model: they came meanwhile.

    """

    run: str
    requests: tuple[ErasureRequest, ...]
    purge: Purge | None
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """The same for machines.

        Returns:
            Values that `json.dumps` takes.
        """
        purge = self.purge
        return {
            "run": self.run,
            "requests": [request.to_json() for request in self.requests],
            "undone_from": purge.first if purge else None,
            "last_round": purge.last if purge else None,
            "cost": asdict(purge.cost) if purge else None,
            "remark": purge.remark if purge else "",
            "unpurged": self.left,
        }


_BETWEEN_CALLS = timedelta(days=1)
"""How long nobody may look at a run: a timer that calls once a day still purges in time."""


@dataclass(frozen=True)
class PurgeOutlook:
    """Who may still be in the model that is served, and whether they can be out of it in time.

    Args:
        deadlines: When each request that is to be purged is due, by its number; empty where the settings promise no
            purge.
        unpurged: How many requests there are whose clients' updates may be in the model.
        forecast: What a purge would do now.
        now: The moment of all this.

    """

    deadlines: Mapping[int, datetime]
    unpurged: int
    forecast: PurgeForecast
    now: datetime

    @property
    def due(self) -> datetime | None:
        """By when the next purge must be complete; None where none is promised or needed."""
        return min(self.deadlines.values(), default=None)

    @property
    def begins_at(self) -> datetime | None:
        """When it begins by itself: a day earlier than twice the time that it is estimated to take is left."""
        if self.due is None:
            return None
        return self.due - 2 * timedelta(seconds=self.forecast.cost.seconds) - _BETWEEN_CALLS

    @property
    def begins(self) -> bool:
        """Whether it is to begin now."""
        return self.begins_at is not None and self.now >= self.begins_at

    def at_risk(self, request: int) -> str | None:
        """Say why a request will not be purged in time, as far as is known; None where nothing speaks against it.

        Args:
            request: The number of the request.

        Returns:
            The reason, in words.

        """
        due = self.deadlines.get(request)
        if due is None:
            return None
        if self.forecast.obstacle is not None:
            return f"it cannot be purged: {self.forecast.obstacle}"
        if self.now + timedelta(seconds=self.forecast.cost.seconds) > due:
            return f"a purge takes about {self.forecast.cost.seconds:.0f} s, and there is less time left"
        return None

    def to_json(self) -> dict[str, Any]:
        """The same for machines.

        Returns:
            Values that `json.dumps` takes.
        """
        return {
            "unpurged": self.unpurged,
            "due": self.due.isoformat() if self.due else None,
            "begins_at": self.begins_at.isoformat() if self.begins_at else None,
            "at_risk": {str(number): why for number in self.deadlines if (why := self.at_risk(number))},
            "forecast": self.forecast.to_json() if self.forecast else None,
        }


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
        """The same for machines.

        Returns:
            Values that `json.dumps` takes.
        """
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

    Attributes:
        run: Where it lies, as a command would name it.
        run_id: Its id.
        created_at: When it was started.
        created_by: The version of disavow that started it.
        policy: What it promises.
        settings: What its config.toml says.
        clients: How many are in it; None where its keyring is not at hand.
        log: How long its log is, and who signs it, in words.
        unsettled: What is still to be done before it serves its model.
        stored_bytes: What it takes on disk.
        models: Which models are kept.
        model: The digest of the model that it serves.
        budget: What is spent of the privacy budget, where there is one.
        odds: What a leaver would have to expect, where that can be told.
        rounds: All rounds, superseded ones too.
        purge: Who may still be in the model that is served; None where the keyring is not at hand.
        cosigned: Which witnesses have cosigned the newest head; None where the log is not signed or none is set.
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
    purge: PurgeOutlook | None = None
    cosigned: Cosignatures | None = None

    @property
    def standing(self) -> list[RoundSummary]:
        """The rounds that stand, in order."""
        return [summary for summary in self.rounds if summary.standing]

    def to_json(self, *, rounds: bool = True) -> dict[str, Any]:
        """The same for machines.

        Args:
            rounds: With every round, however many there are.

        Returns:
            Values that `json.dumps` takes.

        """
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
            **({"rounds": [summary.to_json() for summary in self.rounds]} if rounds else {}),
            "open_requests": len(self.due),
            "next_due": None if not self.due else self.due[0].to_json(),
            "purge": None if self.purge is None else self.purge.to_json(),
            "cosigned": None if self.cosigned is None else self.cosigned.to_json(),
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
