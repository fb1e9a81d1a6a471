"""The inputs of a verification, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from disavow.errors import OtherModel, VerificationError
from disavow.proof.bounds import Bounds
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.history import History
from disavow.proof.notes import Checkpoint, TrustedKey
from disavow.proof.opening import Opening
from disavow.proof.statement import AnyStatement


@dataclass(frozen=True)
class VerificationInputs:
    """What is to be verified, and against what.

    Args:
        proof: The file.
        trusted: The keys of which one must have signed it.
        opening: The leaver's file, which says whom the proof is about.
        receipts: What the client kept.
        model: The SHA-256 digest of a model file, in hexadecimal.
        checkpoint: A checkpoint that somebody kept.
        what_if: Whether a what-if is asked for, and not an erasure.
        client: Whom the opening must be about, compared by bytes.
        word: A client's signed word that it removed the records.
        serving: The server's statement of the model that it serves.
        now: The present time, as leaves have it; with None, leaves in the future are not warned of.
        witnesses: The witnesses who must have cosigned the head.
        quorum: How many of them must have; None: all.

    """

    proof: bytes
    trusted: Sequence[TrustedKey]
    opening: bytes | None = None
    receipts: Sequence[bytes] = ()
    model: str | None = None
    checkpoint: bytes | None = None
    what_if: bool = False
    client: str | None = None
    word: bytes | None = None
    serving: bytes | None = None
    now: str | None = None
    witnesses: Sequence[WitnessKey] = ()
    quorum: int | None = None


@dataclass(frozen=True)
class Result:
    """What became of one check: `passed` is None where there was nothing to check."""

    number: int
    name: str
    passed: bool | None
    detail: str


@dataclass
class Report:
    """All checks up to the first that failed, and what was read on the way. Another model ends nothing.

    `warnings` decide nothing, and yet should be seen.
    """

    results: list[Result] = field(default_factory=list)
    failure: VerificationError | None = None
    statement: AnyStatement | None = None
    head: Checkpoint | None = None
    history: History | None = None
    opening: Opening | None = None
    withdrawn: list[int] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

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
        """The check that failed; of two, where the model is another one as well, the one that decides."""
        return next((result for result in reversed(self.results) if result.passed is False), None)
