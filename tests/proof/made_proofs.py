"""Parts of a made-up history, and a proof about it that can be changed and signed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.proof import canonical
from disavow.proof.bounds import Bounds, bounds_of, chance_drawn, largest_displacement, total_ratio
from disavow.proof.envelope import Signature, seal, to_be_signed
from disavow.proof.leaves import (
    UNTOUCHED,
    ClusterLeaf,
    KeyLeaf,
    PurgeLeaf,
    RebuiltLeaf,
    RollbackLeaf,
    RoundLeaf,
    RunLeaf,
    WithdrawalLeaf,
    joined,
    open_log,
    parse_shown,
    sized,
    withdrawn_entry,
    withdrawn_inner,
)
from disavow.proof.merkle import leaf_hash, root_of
from disavow.proof.notes import Checkpoint, Signer, origin_of
from disavow.proof.opening import OpenedRecords, Opening
from disavow.proof.serving import PAYLOAD_TYPE as SERVING
from disavow.proof.serving import SignedServing
from disavow.proof.statement import ERASURE, MAPPED_ERASURE, MAPPED_WHAT_IF, MODEL, STATEMENT, WHAT_IF
from disavow.proof.validation import from_base64, to_base64, write_figure
from disavow.proof.verify import TrustedKey, VerificationInputs
from disavow.proof.word import PAYLOAD_TYPE, PrivateKey, SignedWord

LeafRecord = RunLeaf | RoundLeaf | RebuiltLeaf | WithdrawalLeaf | RollbackLeaf | PurgeLeaf | KeyLeaf
Leaf = dict[str, Any]
"""A leaf as JSON has it, so that tests can make it say anything."""

POLICY: dict[str, Any] = {
    "k": 3,
    "x": 2,
    "representatives": 1,
    "delta": None,
    "relative_delta": None,
    "odds": None,
    "clustering": "mdav",
    "sticky": True,
    "metric": "l2",
    "noise": "paper",
    "distribution": "gaussian",
    "sigma": 0.02,
    "statistics": "mean",
    "clip": None,
    "tau": None,
    "draws": "fresh",
    "mechanism": "retrain",
}

START = datetime(2026, 1, 1, tzinfo=UTC)


CLIENT = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"client").digest())
"""The key of a client that gives its word."""


def signed_word(payload: bytes, key: PrivateKey) -> SignedWord:
    """A word signed bit for bit the same each time."""
    message = to_be_signed(payload, PAYLOAD_TYPE)
    if isinstance(key, Ed25519PrivateKey):
        signature = key.sign(message)
    else:
        signature = key.sign(message, ECDSA(hashes.SHA256(), deterministic_signing=True))
    der, info = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return SignedWord(payload=payload, public_key=key.public_key().public_bytes(der, info), signature=signature)


def signed_serving(said: dict[str, Any], key: Signer) -> bytes:
    """A serving statement that says anything, signed."""
    payload = canonical.encode(said)
    signature = Signature(key_id=key.public.id, value=key.sign(to_be_signed(payload, SERVING)))
    return SignedServing(payload=payload, signatures=(signature,)).encode()


def digest_of(*parts: object) -> bytes:
    """32 bytes that look random."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


def hash_of(leaf: Leaf) -> bytes:
    """The hash of a leaf in the tree."""
    return leaf_hash(canonical.encode(leaf))


def write_statement(predicate: dict[str, Any], *, model: str, what_if: bool) -> bytes:
    """The payload of a proof, whatever its predicate says."""
    subject = [{"name": MODEL, "digest": {"sha256": model}}]
    erasure, other = (MAPPED_ERASURE, MAPPED_WHAT_IF) if "maps" in predicate else (ERASURE, WHAT_IF)
    kind = other if what_if else erasure
    return canonical.encode({"_type": STATEMENT, "predicateType": kind, "subject": subject, "predicate": predicate})


def signer_named(name: str) -> Signer:
    """A signer whose private key follows from its name."""
    return Signer(f"example.org/{name}", Ed25519PrivateKey.from_private_bytes(digest_of("test key", name)))


SERVER = signer_named("server")
NEXT = signer_named("next")
STRANGER = signer_named("stranger")


def moment(minute: int, *, seconds: int = 0) -> str:
    """So many minutes after the start."""
    return (START + timedelta(minutes=minute, seconds=seconds)).isoformat(timespec="microseconds")


def client(number: int) -> str:
    """The id of a client."""
    return f"client-{number:02d}"


@dataclass(frozen=True)
class Group:
    """A cluster of a round, with everything that opens it."""

    position: int
    first: int
    clients: tuple[str, ...]
    weight: float
    spread: float
    salts: tuple[bytes, ...]
    updates: tuple[bytes, ...]
    commitments: tuple[bytes, ...]

    @property
    def slots(self) -> range:
        """The numbers of its slots."""
        return range(self.first, self.first + len(self.clients))


@dataclass(frozen=True)
class Withdrawn:
    """A slot that was withdrawn, and by which leaf of the log."""

    leaf: int
    position: int
    slot: int
    salt: bytes

    @property
    def hash(self) -> bytes:
        """Its place among those of its round."""
        return withdrawn_entry(self.position, withdrawn_inner(self.salt, self.slot))

    def shown(self, *, opened: bool) -> Leaf:
        """As a proof has it: open in a cluster that is shown, and closed in any other."""
        return {
            "leaf": self.leaf,
            "position": self.position,
            "slot": self.slot if opened else None,
            "salt": to_base64(self.salt) if opened else None,
            "inner": None if opened else to_base64(withdrawn_inner(self.salt, self.slot)),
        }


@dataclass(frozen=True)
class Past:
    """A recorded round: its clusters by position, all of them or those that somebody watches."""

    leaf: int
    number: int
    delta: float
    tau: float
    participants: int
    groups: dict[int, Group]
    hashes: tuple[bytes, ...]
    withdrawn: list[Withdrawn] = field(default_factory=list)
    rebuilt: bool = False
    """All its slots are in one group then, and `hashes` are those of the slots."""

    @cached_property
    def slots(self) -> dict[str, int]:
        """Who filled which slot."""
        return {name: slot for g in self.groups.values() for name, slot in zip(g.clients, g.slots, strict=True)}

    def group_of(self, slot: int) -> Group:
        """The cluster that holds a slot."""
        return next(group for group in self.groups.values() if slot in group.slots)

    def plain(self, group: Group) -> Leaf:
        """A cluster as the round's root has it."""
        leaf = ClusterLeaf(
            position=group.position,
            first=group.first,
            size=len(group.clients),
            weight=group.weight,
            spread=group.spread,
            slots=joined(group.commitments),
        )
        return leaf.to_json()

    @property
    def gone(self) -> set[int]:
        """All slots that were withdrawn."""
        return {each.slot for each in self.withdrawn}

    def value(self, withdrawal: int) -> bytes:
        """The round's value in the map of a withdrawal."""
        hashes = [each.hash for each in self.withdrawn if each.leaf <= withdrawal]
        return sized(len(hashes), root_of(hashes)) if hashes else UNTOUCHED


@dataclass(frozen=True)
class Request:
    """What the log says about a leaver, and what opens it."""

    withdrawal: int
    index: int
    verdict: str
    to: int | None
    client_salt: bytes
    rounds_salt: bytes
    leaves: tuple[int, ...]
    asked_at: str
    judged_at: str
    records: OpenedRecords | None = None


@dataclass(frozen=True, eq=False)
class Made:
    """A proof with the opening that goes with it."""

    predicate: dict[str, Any]
    model: str
    what_if: bool
    opening: Opening
    signer: Signer
    word: SignedWord | None = None

    @cached_property
    def payload(self) -> bytes:
        """The statement as it is signed."""
        return write_statement(self.predicate, model=self.model, what_if=self.what_if)

    @cached_property
    def proof(self) -> bytes:
        """The sealed file."""
        return seal(self.payload, self.signer, packed="maps" not in self.predicate)

    def inputs(self, **changes: Any) -> VerificationInputs:
        """What a verifier with the right key and the opening asks."""
        files: dict[str, Any] = {
            "proof": self.proof,
            "trusted": [TrustedKey(self.signer.public)],
            "opening": self.opening.encode(),
            "what_if": self.what_if,
            "word": None if self.word is None else self.word.encode(),
        }
        if isinstance(changes.get("checkpoint"), str):
            changes["checkpoint"] = changes["checkpoint"].encode("utf-8", "surrogateescape")
        return VerificationInputs(**{**files, **changes})

    def forged(self, edit: Callable[[dict[str, Any]], object], *, relogged: bool = False) -> bytes:
        """The proof with its statement changed and signed again, on demand under a new checkpoint."""
        statement = json.loads(self.payload)
        edit(statement)
        if relogged:
            resign(statement["predicate"], self.signer)
        return seal(canonical.encode(statement), self.signer)


def resign(predicate: dict[str, Any], signer: Signer) -> None:
    """Put a signed checkpoint over whatever leaves a predicate now has."""
    if "maps" in predicate:
        hashes = [hash_of(leaf) for leaf in predicate["leaves"]]
    else:
        hashes = [leaf.hash for leaf in open_log([parse_shown(leaf, "leaf") for leaf in predicate["leaves"]])]
    origin = origin_of(predicate["leaves"][0]["run"])
    predicate["checkpoint"] = Checkpoint(origin, len(hashes), root_of(hashes)).signed(signer)


def leaf_at(predicate: dict[str, Any], place: int) -> Leaf:
    """What stands at a place in the log of a predicate; closed rounds stand there together."""
    for leaf in predicate["leaves"]:
        place -= len(from_base64(leaf["rounds"], "rounds")) // 64 if leaf["type"] == "closed rounds" else 1
        if place < 0:
            return dict(leaf)
    raise IndexError(place)


def tell_bounds(predicate: dict[str, Any]) -> None:
    """Make the bounds of a predicate those of its clusters."""
    each = []
    drawn = predicate["leaves"][0]["policy"]["representatives"]
    for cluster in predicate["clusters"]:
        bounds = bounds_of(
            weight=float(cluster["weight"]),
            spread=float(cluster["spread"]),
            tau=float(leaf_at(predicate, cluster["leaf"]).get("tau", "0.0")),
            representatives=drawn,
        )
        cluster.update(_as_written(bounds))
        each.append(bounds)
    chance = chance_drawn((cluster["size"] for cluster in predicate["clusters"]), drawn)
    predicate["bounds"] = {**_total(each), "drawn": write_figure(chance)}


def _as_written(bounds: Bounds) -> dict[str, Any]:
    odds = bounds.log10_odds
    return {
        "displacement": write_figure(bounds.displacement),
        "log10_odds": None if odds is None else write_figure(odds),
    }


def _total(each: Sequence[Bounds]) -> dict[str, Any]:
    ratio = total_ratio(each)
    return {
        "displacement": write_figure(largest_displacement(each)),
        "ratio": None if ratio is None else write_figure(ratio),
    }
