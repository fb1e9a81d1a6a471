"""What is asked of a verification, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disavow.errors import OtherModel, VerificationError
from disavow.proof.bounds import Bounds
from disavow.proof.history import History
from disavow.proof.notes import Checkpoint
from disavow.proof.opening import Opening
from disavow.proof.statement import Statement
from disavow.proof.trust import TrustedKey

CHECKS = (
    "readable",
    "signature",
    "statement",
    "checkpoint",
    "log",
    "history",
    "policy",
    "rounds",
    "clusters",
    "survivors",
    "spread",
    "bounds",
    "verdict",
    "opening",
    "receipts",
    "model",
)
"""The names of the checks, which are numbered from 1."""


def delta_in_words(policy: Mapping[str, Any]) -> str:
    """How near counts as alike, by the policy of leaf 0.

    >>> delta_in_words({"delta": None, "relative_delta": 0.5})
    '0.5x the median update norm'
    """
    if policy["relative_delta"] is not None:
        return f"{policy['relative_delta']:g}x the median update norm"
    return "adaptive" if policy["delta"] is None else f"{policy['delta']:g}"


def rebuilt_in_words(rounds: int) -> str:
    """What must be said of standing rounds that were rebuilt.

    >>> rebuilt_in_words(1)
    '1 round was rebuilt approximately (not exact retraining)'
    """
    return f"{rounds} {'round was' if rounds == 1 else 'rounds were'} rebuilt approximately (not exact retraining)"


def unchanged_in_words(rounds: int, *, served: bool) -> str:
    """What must be said of rounds after a rollback that end in models which were undone, in place of "retrained".

    >>> unchanged_in_words(2, served=True)
    '2 rounds since the rollback end in the very models that were undone, the one served among them'
    """
    ends = "1 round since the rollback ends in the very model that was undone"
    if rounds > 1:
        ends = f"{rounds} rounds since the rollback end in the very models that were undone"
    return ends + (", the one served among them" if served else "")


@dataclass(frozen=True)
class Asked:
    """What is to be verified, and against what."""

    proof: bytes
    trusted: Sequence[TrustedKey]
    opening: bytes | None = None
    receipts: Sequence[bytes] = ()
    model: str | None = None
    """The SHA-256 digest of a model file, in hexadecimal."""
    checkpoint: bytes | None = None
    """A checkpoint that somebody kept."""
    what_if: bool = False
    """Whether a what-if is asked for, and not an erasure."""
    client: str | None = None
    """Whom the opening must be about, compared by bytes."""
    now: str | None = None
    """The present time, as leaves have it; with None, leaves in the future are not warned of."""


@dataclass(frozen=True)
class Result:
    """What became of one check: `passed` is None where there was nothing to check."""

    number: int
    name: str
    passed: bool | None
    detail: str


@dataclass
class Report:
    """All checks up to the first that failed, and what was read on the way."""

    results: list[Result] = field(default_factory=list)
    failure: VerificationError | None = None
    statement: Statement | None = None
    head: Checkpoint | None = None
    history: History | None = None
    opening: Opening | None = None
    survivors: list[int] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What decides nothing, and yet should be seen."""

    @property
    def valid(self) -> bool:
        """Whether every check passed."""
        return self.failure is None

    @property
    def holds(self) -> bool:
        """Whether the proof holds, be it of the model that was given or of another."""
        return self.failure is None or isinstance(self.failure, OtherModel)

    @property
    def named(self) -> bool:
        """Whether it is known whom the proof is about."""
        return self.opening is not None

    @property
    def failed(self) -> Result | None:
        """The check that failed."""
        return self.results[-1] if self.failure is not None else None
