"""The leaves of a run's log: what was promised, each round, each withdrawal, each rollback, each change of key.

A leaf is a small record in canonical form. It names nobody: a round leaf holds the root over its clusters, the leaf
of a rebuilt round that over its slots, a withdrawal leaf the root over all slots that have been withdrawn so far.

The names of strategies are part of the format. Others are refused, unless what registered them is installed here:
a verifier does not guess by which rules rounds were made (docs/extending.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from disavow.domain import strategies
from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.merkle import leaf_hash, root_by_path, root_of
from disavow.proof.notes import PublicKey
from disavow.proof.record import (
    LEFT_OUT,
    AtMost,
    Boolean,
    Codec,
    Day,
    Decimal,
    Digest,
    Hash,
    Moment,
    Positive,
    Record,
    RunId,
    Whole,
    constant,
    word,
)
from disavow.proof.validation import digest, text

VERSION = 3

APPROXIMATE_MECHANISMS = ("federaser",)
"""What rebuilds rounds approximately."""

VERDICTS = ("never present", "deniable", "rollback")
MOST_REQUESTS = 10_000

_LARGEST = 1 << 24
_MOST_CLIENTS = (1 << 32) - 1
_ROUNDS_TAG = b"disavow/rounds/v1\x00"
_WITHDRAWN_TAG = b"disavow/withdrawn/v1\x00"


def _read_key(value: Any, where: str) -> PublicKey:
    return PublicKey.parse(text(value, where), where)


Key = Annotated[PublicKey, Codec(_read_key, str)]


def _rebuilds(mechanism: str) -> bool:
    """Tell whether a mechanism that somebody else registered rebuilds rounds approximately."""
    return strategies.MECHANISMS.added(mechanism) and not strategies.MECHANISMS[mechanism].exact


@dataclass(frozen=True, kw_only=True)
class LoggedPolicy(Record):
    """The policy as leaf 0 has it. Nobody has checked that its values go together."""

    k: Positive
    x: Positive
    representatives: Positive
    delta: Decimal | None
    relative_delta: Decimal | None
    odds: Decimal | None
    clustering: Annotated[str, word("mdav", "constrained-kmeans", "fixed", also=strategies.CLUSTERINGS.added)]
    sticky: Boolean
    metric: Annotated[str, word("l2", "cosine", "published")]
    noise: Annotated[str, word("paper", "calibrated", "none", also=strategies.NOISES.added)]
    distribution: Annotated[str, word("gaussian", "laplace", also=strategies.DISTRIBUTIONS.added)]
    sigma: Decimal
    statistics: Annotated[str, word("mean", "drawn")]
    clip: Decimal | None
    tau: Decimal | None
    draws: Annotated[str, word("fresh", "seeded")]
    mechanism: Annotated[
        str, word("retrain", "retrain-from-scratch", *APPROXIMATE_MECHANISMS, also=strategies.MECHANISMS.added)
    ]

    @property
    def adaptive(self) -> bool:
        """Whether Δ is each round's largest spread, which excludes nobody."""
        return self.delta is None and self.relative_delta is None

    @property
    def survivors_needed(self) -> int:
        """How many survivors a cluster must keep: x + s - 1."""
        return self.x + self.representatives - 1

    @property
    def cluster_sizes(self) -> tuple[int, int]:
        """The least and the most slots of a cluster: k and 2k - 1.

        Fixed clusters keep their borders when clients leave or join: then fewer may be left in one, or more.
        """
        return (1, _MOST_CLIENTS) if self.clustering == "fixed" else (self.k, 2 * self.k - 1)


@dataclass(frozen=True, kw_only=True)
class _Leaf(Record):
    @property
    def time(self) -> str:
        """When the leaf says that it was written: a moment, or a day."""
        return str(self.__dict__["at"])

    @property
    def hash(self) -> bytes:
        """The leaf's hash in the tree."""
        return leaf_hash(self.encode())


@dataclass(frozen=True, kw_only=True)
class RunLeaf(_Leaf):
    """Leaf 0: what is promised before the first round, and who signs.

    `frozen` is the SHA-256 of the model's frozen parameters, which are in no vector and no file of the run; it is
    left out where there are none.
    """

    type: Annotated[str, constant("run")] = "run"
    version: Annotated[int, constant(VERSION)] = VERSION
    run: RunId
    created_at: Moment
    initial_model: Digest
    policy: LoggedPolicy
    key: Key | None
    frozen: Annotated[str | None, Codec(digest), LEFT_OUT] = None

    @property
    def time(self) -> str:
        """When the run was created."""
        return self.created_at


@dataclass(frozen=True, kw_only=True)
class RoundLeaf(_Leaf):
    """A recorded round over its clusters."""

    type: Annotated[str, constant("round")] = "round"
    number: Positive
    attempt: Positive
    before: Digest
    after: Digest
    delta: Decimal
    update_norm: Decimal
    pairs_within: Decimal
    tau: Decimal
    participants: Positive
    clusters: Positive
    root: Hash
    at: Moment


@dataclass(frozen=True, kw_only=True)
class RebuiltLeaf(_Leaf):
    """A round that a mechanism rebuilt approximately, over the commitments of its slots; it has no clusters."""

    type: Annotated[str, constant("rebuilt")] = "rebuilt"
    number: Positive
    attempt: Positive
    before: Digest
    after: Digest
    mechanism: Annotated[str, word(*APPROXIMATE_MECHANISMS, also=_rebuilds)]
    participants: Positive
    root: Hash
    at: Moment


@dataclass(frozen=True, kw_only=True)
class LoggedRequest(Record):
    """A leaver as the log has it: when it asked, the verdict, and commitments to who it is and to its rounds."""

    asked_at: Day
    verdict: Annotated[str, word(*VERDICTS)]
    client: Hash
    rounds: Hash


@dataclass(frozen=True, kw_only=True)
class WithdrawalLeaf(_Leaf):
    """Clients who left together. Of the times it keeps the days: it is shown in the proofs of everybody else."""

    type: Annotated[str, constant("withdrawal")] = "withdrawal"
    requests: Annotated[tuple[LoggedRequest, ...], AtMost(MOST_REQUESTS)]
    rounds: Whole
    root: Hash
    at: Day


@dataclass(frozen=True, kw_only=True)
class RollbackLeaf(_Leaf):
    """The withdrawal in that leaf undid the standing rounds from `to` on."""

    type: Annotated[str, constant("rollback")] = "rollback"
    withdrawal: Positive
    to: Positive
    at: Day


@dataclass(frozen=True, kw_only=True)
class KeyLeaf(_Leaf):
    """From here on heads are signed with this key."""

    type: Annotated[str, constant("key")] = "key"
    key: Key
    at: Moment


Leaf = RunLeaf | RoundLeaf | RebuiltLeaf | WithdrawalLeaf | RollbackLeaf | KeyLeaf

_KINDS: dict[str, type[Leaf]] = {
    "run": RunLeaf,
    "round": RoundLeaf,
    "rebuilt": RebuiltLeaf,
    "withdrawal": WithdrawalLeaf,
    "rollback": RollbackLeaf,
    "key": KeyLeaf,
}


def parse_leaf(value: Any, where: str) -> Leaf:
    """Read a leaf of any kind from a JSON value.

    Args:
        value: What was decoded; it may be hostile.
        where: Where it stands, for the error.

    Raises:
        Unreadable: It is no leaf of a known kind.

    """
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Unreadable(f"{where} is not a leaf of a known type")
    return _KINDS[kind].parse(value, where)


def decode_leaf(data: bytes, where: str) -> Leaf:
    """Read a leaf from its canonical form.

    Args:
        data: The bytes that are hashed.
        where: Which leaf it is, for the error.

    Raises:
        Unreadable: It is not in canonical form, or no leaf of a known kind.

    """
    return parse_leaf(canonical.decode(data, what=where, most=_LARGEST), where)


def latest_time(leaves: Iterable[Leaf]) -> str:
    """Find the latest time in a log: a moment, or a day later than that of every moment. Compared as text.

    Args:
        leaves: At least one.

    """
    return max(leaf.time for leaf in leaves)


# -- inside a round ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClusterLeaf(Record):
    """A cluster in the tree of its round: its place, share and spread, and the digest of its slots' commitments."""

    position: Whole
    first: Whole
    size: Positive
    weight: Decimal
    spread: Decimal
    slots: Hash

    @property
    def hash(self) -> bytes:
        """Its hash in the round's tree."""
        return leaf_hash(self.encode())


class OpenCluster:
    """What the records of a cluster whose commitments are all shown have in common."""

    position: Whole
    first: Whole
    size: Positive
    weight: Decimal
    spread: Decimal
    path: Annotated[tuple[Hash, ...], AtMost(64)]
    slots: tuple[bytes, ...]

    def root(self, clusters: int) -> bytes:
        """Compute the root of the round to which the cluster leads.

        Args:
            clusters: How many clusters the round has.

        Raises:
            ValueError: No path can be that long, or no cluster have that position.

        """
        leaf = ClusterLeaf(
            position=self.position,
            first=self.first,
            size=self.size,
            weight=self.weight,
            spread=self.spread,
            slots=joined(self.slots),
        )
        return root_by_path(leaf.hash, self.position, clusters, self.path)


def joined(hashes: Iterable[bytes]) -> bytes:
    """Compute SHA-256 over hashes, one behind the other.

    Args:
        hashes: Of 32 bytes each.

    """
    return hashlib.sha256(b"".join(hashes)).digest()


def sized(size: int, root: bytes) -> bytes:
    """Hash a list's length and root together.

    Args:
        size: How many entries the list has.
        root: The root over them.

    """
    return hashlib.sha256(struct.pack(">I", size) + root).digest()


UNTOUCHED = sized(0, root_of([]))
"""The value of a round from which nobody was withdrawn."""


def commit_rounds(salt: bytes, leaves: Sequence[int]) -> bytes:
    """Commit to the round leaves in which a leaver took part.

    Args:
        salt: 32 random bytes.
        leaves: The places of the leaves in the log, in order.

    """
    return hashlib.sha256(_ROUNDS_TAG + salt + b"".join(struct.pack(">Q", leaf) for leaf in leaves)).digest()


# -- the map of withdrawals ----------------------------------------------------------------------------------------


def withdrawn_inner(salt: bytes, slot: int) -> bytes:
    """Hash a withdrawn slot, so that it is closed without its salt.

    Args:
        salt: 32 random bytes.
        slot: The slot's number in its round.

    """
    return hashlib.sha256(_WITHDRAWN_TAG + salt + struct.pack(">I", slot)).digest()


def withdrawn_entry(position: int, inner: bytes) -> bytes:
    """Compute the leaf hash of a withdrawn slot among those of its round: its cluster can be seen, the slot not.

    Args:
        position: The cluster's position in its round.
        inner: From `withdrawn_inner`.

    """
    return leaf_hash(struct.pack(">I", position) + inner)


def map_root(values: Iterable[bytes]) -> bytes:
    """Compute the root of the map of withdrawals.

    Args:
        values: For each round, in the order of the log, `sized` over the entries of its withdrawn slots, in the
            order in which they were withdrawn.

    """
    return root_of([leaf_hash(value) for value in values])
