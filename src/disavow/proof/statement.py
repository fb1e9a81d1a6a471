"""The statement inside a proof: an in-toto Statement v1 whose predicate is the part of the log that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.cosignatures import MOST_WITNESSES
from disavow.proof.envelope import LARGEST
from disavow.proof.leaves import VERDICTS, Leaf, OpenCluster, ShownLeaf, open_log, parse_leaf, parse_shown
from disavow.proof.record import (
    LEFT_OUT,
    AtMost,
    Base64,
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
from disavow.proof.validation import hashed, list_of, positive, text, to_base64

STATEMENT = "https://in-toto.io/Statement/v1"
ERASURE = "urn:disavow:proof-of-deniability:v4"
WHAT_IF = "urn:disavow:what-if:v4"
MAPPED_ERASURE = "urn:disavow:proof-of-deniability:v3"
MAPPED_WHAT_IF = "urn:disavow:what-if:v3"
MODEL = "model.safetensors"

_MOST_LEAVES = 1_000_000
_MOST_SLOTS = 1_000_000
_MOST_STEPS = 64


_read_lines = list_of(text, most=MOST_WITNESSES)
_COSIGNATURES = Codec(lambda value, where: tuple(_read_lines(value, where)), list)


class _Shown(OpenCluster):
    """What the clusters of all versions have in common."""

    leaf: Positive
    slot: Whole
    displacement: Figure
    log10_odds: Figure | None

    def holds(self, slot: int) -> bool:
        """Say whether a slot of the round lies in the cluster.

        Args:
            slot: Its number in the round.

        """
        return self.first <= slot < self.first + self.size


@dataclass(frozen=True, kw_only=True)
class ShownCluster(Record, _Shown):
    """The leaver's cluster in a standing round, all its slots open, and what opens the leaver's withdrawal from it.

    `entry` is its number among the entries of the withdrawal's leaf; of a what-if, it and `salt` are None.
    """

    leaf: Positive
    position: Whole
    first: Whole
    size: Positive
    weight: Decimal
    spread: Decimal
    path: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]
    slot: Whole
    slots: Annotated[tuple[Hash, ...], AtMost(_MOST_SLOTS)]
    entry: Whole | None
    salt: Hash | None
    displacement: Figure
    log10_odds: Figure | None


@dataclass(frozen=True, kw_only=True)
class WithdrawnSlot(Record):
    """A slot that was withdrawn, and by which leaf: open in the leaver's cluster, else closed (`inner`)."""

    leaf: Positive
    position: Whole
    slot: Whole | None
    salt: Hash | None
    inner: Hash | None


@dataclass(frozen=True, kw_only=True)
class MappedCluster(Record, _Shown):
    """The same in version 3: with all who were withdrawn from the round."""

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
class ErasedRecords(Record):
    """The records that were to be erased of a client that stays: how many, their list, closed, and its word.

    Together the first two are what the log committed to. `word` is the digest of the client's signed word that it
    removed them (`disavow.proof.word`); it is left out where the client has given none.
    """

    count: Positive
    closed: Hash
    word: Annotated[bytes | None, Codec(hashed, to_base64), LEFT_OUT] = None


@dataclass(frozen=True, kw_only=True)
class Predicate(Record):
    """What a statement says.

    `withdrawal` is the place of a leaf, `request` the index of a request in it; of a what-if, these,
    `rounds` and `times` are None. `purge` is the place of the purge or rollback that undid the last round with the
    leaver in it; left out while one stands, and where the leaver was in none. `cover` are the subtrees over the
    other entries of the leaver's withdrawal, one root behind the other. `records` is left out where the whole
    client was to be erased. `cosignatures` are what witnesses have cosigned of the head, a line each; left out
    where none has.
    """

    checkpoint: Text
    leaves: Annotated[
        tuple[Annotated[ShownLeaf, Codec(parse_shown, lambda leaf: leaf.to_json())], ...], AtMost(_MOST_LEAVES)
    ]
    withdrawal: Positive | None
    request: Whole | None
    rounds: LeaverRounds | None
    cover: Base64
    clusters: Annotated[tuple[ShownCluster, ...], AtMost(_MOST_LEAVES)]
    bounds: TotalBounds
    verdict: StatedVerdict
    times: Times | None
    records: Annotated[ErasedRecords | None, Codec(ErasedRecords.parse, ErasedRecords.to_json), LEFT_OUT] = None
    purge: Annotated[int | None, Codec(positive), LEFT_OUT] = None
    cosignatures: Annotated[tuple[str, ...] | None, _COSIGNATURES, LEFT_OUT] = None


@dataclass(frozen=True, kw_only=True)
class MappedPredicate(Record):
    """The same in version 3, where all leaves are shown.

    `maps` has, for each withdrawal, the values of the rounds that are not shown; None where one is as it was
    before.
    """

    checkpoint: Text
    leaves: Annotated[
        tuple[Annotated[Leaf, Codec(parse_leaf, lambda leaf: leaf.to_json())], ...], AtMost(_MOST_LEAVES)
    ]
    withdrawal: Positive | None
    request: Whole | None
    rounds: LeaverRounds | None
    maps: Annotated[tuple[Annotated[tuple[Hash | None, ...], AtMost(_MOST_LEAVES)], ...], AtMost(_MOST_LEAVES)]
    clusters: Annotated[tuple[MappedCluster, ...], AtMost(_MOST_LEAVES)]
    bounds: TotalBounds
    verdict: StatedVerdict
    times: Times | None


AnyCluster = ShownCluster | MappedCluster
AnyPredicate = Predicate | MappedPredicate


@dataclass(frozen=True, kw_only=True)
class _SHA256(Record):
    sha256: Digest


@dataclass(frozen=True, kw_only=True)
class _Subject(Record):
    name: Annotated[str, constant(MODEL)] = MODEL
    digest: _SHA256


@dataclass(frozen=True, kw_only=True)
class _Statement(Record):
    type: Annotated[str, constant(STATEMENT), Key("_type")] = STATEMENT
    kind: Annotated[str, word(ERASURE, WHAT_IF, MAPPED_ERASURE, MAPPED_WHAT_IF), Key("predicateType")]
    subject: Annotated[tuple[_Subject, ...], AtMost(1)]

    @property
    def what_if(self) -> bool:
        """Whether nobody has asked, and nothing was erased."""
        return self.kind in (WHAT_IF, MAPPED_WHAT_IF)

    @property
    def model(self) -> str:
        """The SHA-256 digest of the model served, in hexadecimal."""
        return self.subject[0].digest.sha256


@dataclass(frozen=True, kw_only=True)
class Statement(_Statement):
    """What an envelope holds: the predicate, and the model that it is about."""

    kind: Annotated[str, word(ERASURE, WHAT_IF), Key("predicateType")]
    predicate: Predicate

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


@dataclass(frozen=True, kw_only=True)
class MappedStatement(_Statement):
    """The same in version 3."""

    kind: Annotated[str, word(MAPPED_ERASURE, MAPPED_WHAT_IF), Key("predicateType")]
    predicate: MappedPredicate


AnyStatement = Statement | MappedStatement


def decode_statement(payload: bytes) -> AnyStatement:
    """Read a statement of one of the versions that are read.

    Args:
        payload: What an envelope holds.

    Raises:
        Unreadable: It is no such statement.

    """
    value = canonical.decode(payload, what="the payload", most=LARGEST)
    kind = value.get("predicateType") if isinstance(value, dict) else None
    found: AnyStatement
    if kind in (ERASURE, WHAT_IF):
        found = Statement.parse(value, "the statement")
    elif kind in (MAPPED_ERASURE, MAPPED_WHAT_IF):
        found = MappedStatement.parse(value, "the statement")
    else:
        raise Unreadable("the payload is not a statement of a version that is read here")
    if not found.subject:
        raise Unreadable("the statement has no subject")
    return found


def leaf_hashes(statement: AnyStatement) -> list[bytes]:
    """Compute the hashes of all leaves of a statement's log; none where it does not begin with leaf 0.

    Args:
        statement: One that was read.

    """
    try:
        return [leaf.hash for leaf in open_log(statement.predicate.leaves)]
    except VerificationError:
        return []
