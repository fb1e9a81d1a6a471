"""The leaves of a run's log: what was promised, each round, withdrawal, rollback and purge, each change of key.

A leaf is a small record in canonical form. It names nobody: a round leaf holds the root over its clusters, the leaf
of a rebuilt round that over its slots, a withdrawal leaf the root over the slots that it withdraws.

Logs of version 3 are read, and no longer written: there a withdrawal leaf holds the root over all slots that have
been withdrawn so far. Since version 4, most leaves of a proof are closed: of a round it gives the model and a
digest (`ClosedRound`), of a withdrawal the rounds it touches and a digest (`ClosedWithdrawal`); `open_log` derives
the rest.

The names of strategies are part of the format. Others are refused, unless what registered them is installed here:
a verifier does not guess by which rules rounds were made (docs/extending.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from disavow.domain import strategies
from disavow.errors import Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.merkle import HASH_BYTES, leaf_hash, root_by_path, root_of
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
from disavow.proof.validation import digest, from_base64, hashed, text, to_base64

VERSION = 4
"""What is written."""

MAPPED = 3
"""What is read as well: logs whose withdrawals have maps."""

APPROXIMATE_MECHANISMS = ("federaser",)
"""What rebuilds rounds approximately."""

VERDICTS = ("never present", "deniable", "rollback")
MOST_REQUESTS = 10_000

_LARGEST = 1 << 24
_MOST_CLIENTS = (1 << 32) - 1
_ROUNDS_TAG = b"disavow/rounds/v1\x00"
_ROUND_TAG = b"disavow/round/v4\x00"
_WITHDRAWAL_TAG = b"disavow/withdrawal/v4\x00"
_WITHDRAWN_TAG = b"disavow/withdrawn/v1\x00"


def _read_key(value: Any, where: str) -> PublicKey:
    return PublicKey.parse(text(value, where), where)


Key = Annotated[PublicKey, Codec(_read_key, str)]


def _read_version(value: Any, where: str) -> int:
    if type(value) is not int or value not in (MAPPED, VERSION):
        raise Unreadable(f"{where} is neither {MAPPED} nor {VERSION}")
    return value


def _rebuilds(mechanism: str) -> bool:
    """Tell whether a mechanism that somebody else registered rebuilds rounds approximately."""
    return strategies.MECHANISMS.added(mechanism) and not strategies.MECHANISMS[mechanism].exact


def is_exact(mechanism: str) -> bool:
    """Tell whether a mechanism retrains undone rounds exactly.

    Args:
        mechanism: Its name, as a log has it.

    """
    return mechanism not in APPROXIMATE_MECHANISMS and not _rebuilds(mechanism)


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
    noise: Annotated[str, word("paper", "sensitivity", "calibrated", "none", also=strategies.NOISES.added)]
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
    version: Annotated[int, Codec(_read_version)] = VERSION
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
    """A recorded round over its clusters; `version` is None in a log of version 3."""

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
    version: Annotated[int | None, constant(VERSION), LEFT_OUT] = VERSION

    @property
    def hash(self) -> bytes:
        """The leaf's hash in the tree: without a version, that of its canonical form."""
        return super().hash if self.version is None else self.closed.hash

    @property
    def closed(self) -> ClosedRound:
        """The leaf as a proof has it that need not show it."""
        digest = hashlib.sha256(self.encode()).digest()
        return ClosedRound(self.number, self.attempt, self.before, self.after, digest)


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
    """A leaver as the log has it: when it asked, the verdict, and commitments to who it is and to its rounds.

    `records` commits to the records that were to be erased (`commitment.commit_records`); it is left out where the
    whole client was.
    """

    asked_at: Day
    verdict: Annotated[str, word(*VERDICTS)]
    client: Hash
    rounds: Hash
    records: Annotated[bytes | None, Codec(hashed, to_base64), LEFT_OUT] = None


@dataclass(frozen=True, kw_only=True)
class WithdrawalLeaf(_Leaf):
    """Clients who left together. Of the times it keeps the days: it is shown in the proof of each of them.

    `slots` says from which rounds slots were withdrawn (`disavow.proof.withdrawal_slots`), and `root` commits to
    which; in a log of version 3, `slots` is None and `root` that of the map of all withdrawals so far.
    """

    type: Annotated[str, constant("withdrawal")] = "withdrawal"
    requests: Annotated[tuple[LoggedRequest, ...], AtMost(MOST_REQUESTS)]
    rounds: Whole
    root: Hash
    at: Day
    slots: Annotated[bytes | None, Codec(from_base64, to_base64), LEFT_OUT] = None

    @property
    def rolls_back(self) -> bool:
        """Whether a rollback follows."""
        return any(request.verdict == "rollback" for request in self.requests)

    @property
    def hash(self) -> bytes:
        """The leaf's hash in the tree: without slots, that of its canonical form."""
        if self.slots is None:
            return super().hash
        return ClosedWithdrawal(self.rounds, self.rolls_back, self.slots, self.digest).hash

    @property
    def digest(self) -> bytes:
        """SHA-256 of its canonical form."""
        return hashlib.sha256(self.encode()).digest()


@dataclass(frozen=True, kw_only=True)
class RollbackLeaf(_Leaf):
    """The withdrawal in that leaf undid the standing rounds from `to` on."""

    type: Annotated[str, constant("rollback")] = "rollback"
    withdrawal: Positive
    to: Positive
    at: Day


@dataclass(frozen=True, kw_only=True)
class PurgeLeaf(_Leaf):
    """The standing rounds from `to` on were undone, so that no withdrawn slot is left in a standing round."""

    type: Annotated[str, constant("purge")] = "purge"
    to: Positive
    at: Day


@dataclass(frozen=True, kw_only=True)
class KeyLeaf(_Leaf):
    """From here on heads are signed with this key."""

    type: Annotated[str, constant("key")] = "key"
    key: Key
    at: Moment


@dataclass(frozen=True)
class ClosedRound:
    """The leaf of a round as its hash binds it: what must follow from the leaves before it, its model, a digest."""

    number: int
    attempt: int
    before: str
    after: str
    digest: bytes

    @property
    def time(self) -> str:
        """No time that could be the latest: the leaf is closed."""
        return ""

    @property
    def hash(self) -> bytes:
        """Its hash in the tree, which is that of the leaf when it is shown."""
        data = struct.pack(">II", self.number, self.attempt) + bytes.fromhex(self.before + self.after)
        return leaf_hash(_ROUND_TAG + data + self.digest)


@dataclass(frozen=True)
class ClosedWithdrawal:
    """The leaf of a withdrawal as its hash binds it: rounds before it, whether a rollback follows, its slots."""

    rounds: int
    rolls_back: bool
    slots: bytes
    digest: bytes

    @property
    def time(self) -> str:
        """No time that could be the latest: the leaf is closed."""
        return ""

    @property
    def hash(self) -> bytes:
        """Its hash in the tree, which is that of the leaf when it is shown."""
        data = struct.pack(">IB", self.rounds, self.rolls_back)
        return leaf_hash(_WITHDRAWAL_TAG + data + self.digest + self.slots)


Leaf = RunLeaf | RoundLeaf | RebuiltLeaf | WithdrawalLeaf | RollbackLeaf | PurgeLeaf | KeyLeaf

LogLeaf = Leaf | ClosedRound | ClosedWithdrawal
"""A leaf of a log that was read from a proof."""

_KINDS: dict[str, type[Leaf]] = {
    "run": RunLeaf,
    "round": RoundLeaf,
    "rebuilt": RebuiltLeaf,
    "withdrawal": WithdrawalLeaf,
    "rollback": RollbackLeaf,
    "purge": PurgeLeaf,
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


def latest_time(leaves: Iterable[LogLeaf]) -> str:
    """Find the latest time in a log: a moment, or a day later than that of every moment. Compared as text.

    Closed leaves do not count: a proof never closes the last one.

    Args:
        leaves: At least one.

    """
    return max(leaf.time for leaf in leaves)


# -- the leaves of a proof -----------------------------------------------------------------------------------------

_CLOSED_BYTES = 2 * HASH_BYTES


@dataclass(frozen=True, kw_only=True)
class ShownRounds(Record):
    """Closed rounds, one behind the other in the log: of each the model that it ended in, and the digest."""

    type: Annotated[str, constant("closed rounds")] = "closed rounds"
    rounds: Annotated[bytes, Codec(from_base64, to_base64)]


@dataclass(frozen=True, kw_only=True)
class ShownWithdrawal(Record):
    """A closed withdrawal."""

    type: Annotated[str, constant("closed withdrawal")] = "closed withdrawal"
    digest: Hash
    slots: Annotated[bytes, Codec(from_base64, to_base64)]


ShownLeaf = Leaf | ShownRounds | ShownWithdrawal


def parse_shown(value: Any, where: str) -> ShownLeaf:
    """Read what stands for leaves in a proof: a leaf, rounds that are closed, or a withdrawal that is.

    Args:
        value: What was decoded; it may be hostile.
        where: Where it stands, for the error.

    Raises:
        Unreadable: It is none of them, or holds no whole number of closed rounds.

    """
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "closed withdrawal":
        return ShownWithdrawal.parse(value, where)
    if kind != "closed rounds":
        return parse_leaf(value, where)
    found = ShownRounds.parse(value, where)
    if not found.rounds or len(found.rounds) % _CLOSED_BYTES:
        raise Unreadable(f"{where} does not have {_CLOSED_BYTES} bytes for each closed round")
    return found


def show_leaves(leaves: Iterable[LogLeaf]) -> tuple[ShownLeaf, ...]:
    """Write the leaves of a log as a proof has them: what stands together is closed together.

    Args:
        leaves: Those that are to be shown, and closed ones in the place of the others.

    """
    shown: list[ShownLeaf] = []
    closed: list[bytes] = []
    for leaf in leaves:
        if isinstance(leaf, ClosedRound):
            closed += [bytes.fromhex(leaf.after), leaf.digest]
            continue
        if closed:
            shown.append(ShownRounds(rounds=b"".join(closed)))
            closed = []
        shown.append(
            ShownWithdrawal(digest=leaf.digest, slots=leaf.slots) if isinstance(leaf, ClosedWithdrawal) else leaf
        )
    return (*shown, ShownRounds(rounds=b"".join(closed))) if closed else tuple(shown)


def log_size(shown: Sequence[ShownLeaf]) -> int:
    """Count the leaves of a log.

    Args:
        shown: What a proof has.

    """
    return sum(len(each.rounds) // _CLOSED_BYTES if isinstance(each, ShownRounds) else 1 for each in shown)


def rounds_by_place(shown: Sequence[ShownLeaf]) -> dict[int, RoundLeaf]:
    """Find the places of the rounds whose leaves are shown.

    Args:
        shown: What a proof has.

    """
    found, place = {}, 0
    for each in shown:
        if isinstance(each, RoundLeaf):
            found[place] = each
        place += len(each.rounds) // _CLOSED_BYTES if isinstance(each, ShownRounds) else 1
    return found


def open_log(shown: Sequence[ShownLeaf]) -> list[LogLeaf]:
    """Give each leaf of a proof its place; of closed ones, derive what must follow from the leaves before them.

    What is derived goes into the leaf's hash, and so into the root: nothing else is checked here.

    Args:
        shown: What a proof has.

    Returns:
        The whole log.

    Raises:
        VerificationError: It does not begin with leaf 0, or closed rounds are not closed together.

    """
    if not shown or not isinstance(shown[0], RunLeaf):
        raise VerificationError("the log does not begin with the run's promises")
    leaves: list[LogLeaf] = []
    models = [shown[0].initial_model]  # and then those of the rounds that stand
    attempts: Counter[int] = Counter()
    rounds = 0
    for at, item in enumerate(shown):
        if isinstance(item, ShownRounds):
            if isinstance(shown[at - 1], ShownRounds):
                raise VerificationError("closed rounds that follow each other are not closed together")
            for start in range(0, len(item.rounds), _CLOSED_BYTES):
                number, after = len(models), item.rounds[start : start + HASH_BYTES].hex()
                attempts[number] += 1
                digest = item.rounds[start + HASH_BYTES : start + _CLOSED_BYTES]
                leaves.append(ClosedRound(number, attempts[number], models[-1], after, digest))
                models.append(after)
            rounds += len(item.rounds) // _CLOSED_BYTES
        elif isinstance(item, ShownWithdrawal):
            rolls_back = at + 1 < len(shown) and isinstance(shown[at + 1], RollbackLeaf)
            leaves.append(ClosedWithdrawal(rounds, rolls_back, item.slots, item.digest))
        else:
            leaves.append(item)
            if isinstance(item, RoundLeaf | RebuiltLeaf):
                attempts[len(models)] += 1
                models.append(item.after)
                rounds += 1
            elif isinstance(item, RollbackLeaf | PurgeLeaf):
                del models[item.to :]
    return leaves


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
