"""The leaves of a run's log: what was promised, each round, each withdrawal, each rollback, each change of key.

A leaf is a small object in canonical form. It names nobody: a round leaf holds the root over its clusters, the leaf
of a rebuilt round that over its slots, a withdrawal leaf the root over all slots that have been withdrawn so far.

The names of strategies are part of the format. Others are refused, unless what registered them is installed here:
a verifier does not guess by which rules rounds were made (docs/extending.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from disavow.domain import strategies
from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.merkle import leaf_hash, root_of
from disavow.proof.notes import PublicKey
from disavow.proof.reading import (
    boolean,
    day,
    day_of,
    decimal,
    digest,
    exactly,
    fields,
    hashed,
    list_of,
    moment,
    one_of,
    optional,
    positive,
    record,
    run_id,
    text,
    to_base64,
    whole,
    write_decimal,
)

Leaf = dict[str, Any]

VERSION = 3

MECHANISMS = ("federaser",)
"""What rebuilds rounds approximately."""

VERDICTS = ("never present", "deniable", "rollback")
MOST_REQUESTS = 10_000

_ROUNDS_TAG = b"disavow/rounds/v1\x00"
_WITHDRAWN_TAG = b"disavow/withdrawn/v1\x00"

POLICY = {
    "k": positive,
    "x": positive,
    "representatives": positive,
    "delta": optional(decimal),
    "relative_delta": optional(decimal),
    "odds": optional(decimal),
    "clustering": one_of("mdav", "constrained-kmeans", "fixed", also=strategies.CLUSTERINGS.added),
    "sticky": boolean,
    "metric": one_of("l2", "cosine", "published"),
    "noise": one_of("paper", "calibrated", "none", also=strategies.NOISES.added),
    "distribution": one_of("gaussian", "laplace", also=strategies.DISTRIBUTIONS.added),
    "sigma": decimal,
    "statistics": one_of("mean", "drawn"),
    "clip": optional(decimal),
    "tau": optional(decimal),
    "draws": one_of("fresh", "seeded"),
    "mechanism": one_of("retrain", "retrain-from-scratch", *MECHANISMS, also=strategies.MECHANISMS.added),
}


def _rebuilds(mechanism: str) -> bool:
    """Whether a mechanism that somebody else registered rebuilds rounds approximately."""
    return strategies.MECHANISMS.added(mechanism) and not strategies.MECHANISMS[mechanism].exact


_MOST_CLIENTS = (1 << 32) - 1


def cluster_sizes(policy: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the most slots of a cluster: k and 2k - 1.

    Fixed clusters keep their borders when clients leave or join: then fewer may be left in one, or more.
    """
    return (1, _MOST_CLIENTS) if policy["clustering"] == "fixed" else (policy["k"], 2 * policy["k"] - 1)


_REQUEST = {"asked_at": day, "verdict": one_of(*VERDICTS), "client": hashed, "rounds": hashed}


def _key(value: Any, where: str) -> PublicKey:
    return PublicKey.parse(text(value, where), where)


KINDS: dict[str, dict[str, Any]] = {
    "run": {
        "type": exactly("run"),
        "version": exactly(VERSION),
        "run": run_id,
        "created_at": moment,
        "initial_model": digest,
        "policy": record(POLICY),
        "key": optional(_key),
    },
    "round": {
        "type": exactly("round"),
        "number": positive,
        "attempt": positive,
        "before": digest,
        "after": digest,
        "delta": decimal,
        "update_norm": decimal,
        "pairs_within": decimal,
        "tau": decimal,
        "participants": positive,
        "clusters": positive,
        "root": hashed,
        "at": moment,
    },
    "rebuilt": {
        "type": exactly("rebuilt"),
        "number": positive,
        "attempt": positive,
        "before": digest,
        "after": digest,
        "mechanism": one_of(*MECHANISMS, also=_rebuilds),
        "participants": positive,
        "root": hashed,
        "at": moment,
    },
    "withdrawal": {
        "type": exactly("withdrawal"),
        "requests": list_of(record(_REQUEST), most=MOST_REQUESTS),
        "rounds": whole,
        "root": hashed,
        "at": day,
    },
    "rollback": {"type": exactly("rollback"), "withdrawal": positive, "to": positive, "at": day},
    "key": {"type": exactly("key"), "key": _key, "at": moment},
}


def read_leaf(value: Any, where: str) -> Leaf:
    """A leaf of any kind, its fields turned into what they mean."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise Unreadable(f"{where} is not a leaf of a known type")
    return fields(value, where, KINDS[kind])


def time_of(leaf: Leaf) -> str:
    """When a leaf says that it was written: a moment, or a day."""
    return str(leaf["created_at" if leaf["type"] == "run" else "at"])


def latest_time(leaves: Iterable[Leaf]) -> str:
    """The latest time in a log: a moment, or a day later than that of every moment. Compared as text."""
    return max(map(time_of, leaves))


def hash_of(leaf: Leaf) -> bytes:
    """The leaf's place in the tree, from its plain form."""
    return leaf_hash(canonical.encode(leaf))


# -- writing leaves ------------------------------------------------------------------------------------------------


def run_leaf(
    *, run_id: str, created_at: str, initial_model: str, policy: Mapping[str, Any], key: PublicKey | None
) -> Leaf:
    """What is promised before the first round."""
    told = {name: write_decimal(value) if isinstance(value, float) else value for name, value in policy.items()}
    return {
        "type": "run",
        "version": VERSION,
        "run": run_id,
        "created_at": created_at,
        "initial_model": initial_model,
        "policy": told,
        "key": None if key is None else str(key),
    }


def round_leaf(
    *,
    number: int,
    attempt: int,
    before: str,
    after: str,
    delta: float,
    update_norm: float,
    pairs_within: float,
    tau: float,
    participants: int,
    clusters: Sequence[Leaf],
    at: str,
) -> Leaf:
    """A recorded round over its clusters, which `cluster_leaf` made."""
    return {
        "type": "round",
        "number": number,
        "attempt": attempt,
        "before": before,
        "after": after,
        "delta": write_decimal(delta),
        "update_norm": write_decimal(update_norm),
        "pairs_within": write_decimal(pairs_within),
        "tau": write_decimal(tau),
        "participants": participants,
        "clusters": len(clusters),
        "root": to_base64(root_of([hash_of(cluster) for cluster in clusters])),
        "at": at,
    }


def rebuilt_leaf(
    *, number: int, attempt: int, before: str, after: str, mechanism: str, commitments: Sequence[bytes], at: str
) -> Leaf:
    """A round that a mechanism rebuilt approximately, over the commitments of its slots; it has no clusters."""
    return {
        "type": "rebuilt",
        "number": number,
        "attempt": attempt,
        "before": before,
        "after": after,
        "mechanism": mechanism,
        "participants": len(commitments),
        "root": to_base64(root_of([leaf_hash(each) for each in commitments])),
        "at": at,
    }


def withdrawal_leaf(
    *, requests: Sequence[tuple[str, str, bytes, bytes]], rounds: int, root: bytes, at: str
) -> Leaf:
    """Clients who left together: when each asked, the verdict, and commitments to who it is and to its rounds.

    Of the times the leaf keeps the days: it is shown in the proofs of everybody else.
    """
    return {
        "type": "withdrawal",
        "requests": [
            {"asked_at": day_of(asked_at), "verdict": verdict, "client": to_base64(who), "rounds": to_base64(where)}
            for asked_at, verdict, who, where in requests
        ],
        "rounds": rounds,
        "root": to_base64(root),
        "at": day_of(at),
    }


def rollback_leaf(*, withdrawal: int, to: int, at: str) -> Leaf:
    """The withdrawal in that leaf undid the standing rounds from `to` on; of the time the leaf keeps the day."""
    return {"type": "rollback", "withdrawal": withdrawal, "to": to, "at": day_of(at)}


def key_leaf(*, key: PublicKey, at: str) -> Leaf:
    """From here on heads are signed with this key."""
    return {"type": "key", "key": str(key), "at": at}


# -- inside a round ------------------------------------------------------------------------------------------------


def cluster_leaf(*, position: int, first: int, size: int, weight: float, spread: float, slots: bytes) -> Leaf:
    """A cluster, with the digest of its slots' commitments."""
    return {
        "position": position,
        "first": first,
        "size": size,
        "weight": write_decimal(weight),
        "spread": write_decimal(spread),
        "slots": to_base64(slots),
    }


def joined(hashes: Iterable[bytes]) -> bytes:
    """SHA-256 over hashes, one behind the other."""
    return hashlib.sha256(b"".join(hashes)).digest()


def sized(size: int, root: bytes) -> bytes:
    """A list and its length in one hash."""
    return hashlib.sha256(struct.pack(">I", size) + root).digest()


UNTOUCHED = sized(0, root_of([]))
"""The value of a round from which nobody was withdrawn."""


def commit_rounds(salt: bytes, leaves: Sequence[int]) -> bytes:
    """The commitment to the round leaves in which a leaver took part."""
    return hashlib.sha256(_ROUNDS_TAG + salt + b"".join(struct.pack(">Q", leaf) for leaf in leaves)).digest()


# -- the map of withdrawals ----------------------------------------------------------------------------------------


def withdrawn_inner(salt: bytes, slot: int) -> bytes:
    """A withdrawn slot, closed."""
    return hashlib.sha256(_WITHDRAWN_TAG + salt + struct.pack(">I", slot)).digest()


def withdrawn_entry(position: int, inner: bytes) -> bytes:
    """The leaf hash of a withdrawn slot among those of its round: its cluster can be seen, the slot itself not."""
    return leaf_hash(struct.pack(">I", position) + inner)


def map_root(values: Iterable[bytes]) -> bytes:
    """The root of the map over the values of its rounds, in the order of the log.

    A round's value is `sized` over the entries of its withdrawn slots, in the order in which they were withdrawn.
    """
    return root_of([leaf_hash(value) for value in values])
