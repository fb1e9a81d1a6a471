"""The statement inside a proof: an in-toto Statement v1 whose predicate is the part of the log that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.envelope import LARGEST
from disavow.proof.leaves import VERDICTS, Leaf, OpenCluster, parse_leaf
from disavow.proof.record import (
    AtMost,
    Codec,
    Decimal,
    Digest,
    Figure,
    Hash,
    Key,
    Moment,
    Positive,
    Record,
    Text,
    Whole,
    constant,
    word,
)

STATEMENT = "https://in-toto.io/Statement/v1"
ERASURE = "urn:disavow:proof-of-deniability:v3"
WHAT_IF = "urn:disavow:what-if:v3"
MODEL = "model.safetensors"

_MOST_LEAVES = 1_000_000
_MOST_SLOTS = 1_000_000
_MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class WithdrawnSlot(Record):
    """A slot that was withdrawn, and by which leaf: open in the leaver's cluster, else closed (`inner`)."""

    leaf: Positive
    position: Whole
    slot: Whole | None
    salt: Hash | None
    inner: Hash | None


@dataclass(frozen=True, kw_only=True)
class ShownCluster(Record, OpenCluster):
    """The leaver's cluster in a standing round, all its slots open, and all who were withdrawn from the round."""

    leaf: Positive
    position: Whole
    first: Whole
    size: Positive
    weight: Decimal
    spread: Decimal
    path: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]
    slot: Whole
    slots: Annotated[tuple[Hash, ...], AtMost(_MOST_SLOTS)]
    withdrawn: Annotated[tuple[WithdrawnSlot, ...], AtMost(_MOST_SLOTS)]
    displacement: Figure
    log10_odds: Figure | None

    def holds(self, slot: int) -> bool:
        """Say whether a slot of the round lies in the cluster.

        Args:
            slot: Its number in the round.

        """
        return self.first <= slot < self.first + self.size


@dataclass(frozen=True, kw_only=True)
class LeaverRounds(Record):
    """What opens the commitment to the leaver's rounds: the salt, and those that no longer stand."""

    salt: Hash
    superseded: Annotated[tuple[Positive, ...], AtMost(_MOST_LEAVES)]


@dataclass(frozen=True, kw_only=True)
class TotalBounds(Record):
    """The bounds over all clusters shown, as text of six digits."""

    displacement: Figure
    ratio: Figure | None
    drawn: Figure


@dataclass(frozen=True, kw_only=True)
class StatedVerdict(Record):
    """The answer, and for a rollback the round from which on all were undone."""

    kind: Annotated[str, word(*VERDICTS)]
    start: Annotated[Positive | None, Key("from")]


@dataclass(frozen=True, kw_only=True)
class Times(Record):
    """When this request was asked, judged and answered, in the order in which these must come."""

    asked_at: Moment
    judged_at: Moment
    answered_at: Moment


@dataclass(frozen=True, kw_only=True)
class Predicate(Record):
    """What a statement says.

    `withdrawal` is the place of a leaf, `request` the index of a request in it; of a what-if, these,
    `rounds` and `times` are None. `maps` has, for each withdrawal, the values of the rounds that are not
    shown; None where one is as it was before.
    """

    checkpoint: Text
    leaves: Annotated[
        tuple[Annotated[Leaf, Codec(parse_leaf, lambda leaf: leaf.to_json())], ...], AtMost(_MOST_LEAVES)
    ]
    withdrawal: Positive | None
    request: Whole | None
    rounds: LeaverRounds | None
    maps: Annotated[tuple[Annotated[tuple[Hash | None, ...], AtMost(_MOST_LEAVES)], ...], AtMost(_MOST_LEAVES)]
    clusters: Annotated[tuple[ShownCluster, ...], AtMost(_MOST_LEAVES)]
    bounds: TotalBounds
    verdict: StatedVerdict
    times: Times | None


@dataclass(frozen=True, kw_only=True)
class _SHA256(Record):
    sha256: Digest


@dataclass(frozen=True, kw_only=True)
class _Subject(Record):
    name: Annotated[str, constant(MODEL)] = MODEL
    digest: _SHA256


@dataclass(frozen=True, kw_only=True)
class Statement(Record):
    """What an envelope holds: the predicate, and the model that it is about."""

    type: Annotated[str, constant(STATEMENT), Key("_type")] = STATEMENT
    kind: Annotated[str, word(ERASURE, WHAT_IF), Key("predicateType")]
    subject: Annotated[tuple[_Subject, ...], AtMost(1)]
    predicate: Predicate

    @property
    def what_if(self) -> bool:
        """Whether nobody has asked, and nothing was erased."""
        return self.kind == WHAT_IF

    @property
    def model(self) -> str:
        """The SHA-256 digest of the model served, in hexadecimal."""
        return self.subject[0].digest.sha256

    @classmethod
    def of(cls, predicate: Predicate, *, model: str, what_if: bool) -> Self:
        """Make a statement.

        Args:
            predicate: What it says.
            model: The SHA-256 digest of the model served, in hexadecimal.
            what_if: Whether nobody has asked.

        """
        subject = (_Subject(digest=_SHA256(sha256=model)),)
        return cls(kind=WHAT_IF if what_if else ERASURE, subject=subject, predicate=predicate)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a statement of the one version there is.

        Args:
            payload: What an envelope holds.

        Raises:
            Unreadable: It is no such statement.

        """
        value = canonical.decode(payload, what="the payload", most=LARGEST)
        kind = value.get("predicateType") if isinstance(value, dict) else None
        if kind not in (ERASURE, WHAT_IF):
            raise Unreadable("the payload is not a statement of this version")
        found = cls.parse(value, "the statement")
        if not found.subject:
            raise Unreadable("the statement has no subject")
        return found
