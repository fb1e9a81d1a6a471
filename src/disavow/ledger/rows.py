"""Between the domain's values and the rows that store them, and the digest that binds a round's rows."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from disavow.domain import Member, Policy, Round, Slot
from disavow.ledger import pseudonyms
from disavow.ledger.members import RoundKeys
from disavow.privacy.events import Event, event_of
from disavow.proof.commitment import commit

Row = dict[str, Any]


def members_of(slots: Iterable[Slot]) -> list[Member]:
    """Who fills these slots; all of them are filled in a round that is recorded."""
    found = []
    for slot in slots:
        if slot.member is None:
            raise ValueError("a round is recorded with all its members")
        found.append(slot.member)
    return found


def slot_rows(groups: Iterable[Iterable[Slot]], by: RoundKeys) -> tuple[list[Member], dict[str, list[Row]]]:
    """Make the rows of a round's slots and of their members. What names a client derives from its key.

    Members of a group are in the order of their pseudonyms, one group behind the other. Any other order would
    repeat from round to round, and so link the slots of a client.

    Args:
        groups: The slots of each cluster; or of a whole round that has none.
        by: The round's name, and the keys of its participants.

    Returns:
        The members in slot order, and the rows by table, likewise.

    """
    filled: list[Member] = []
    slots: list[Row] = []
    memberships: list[Row] = []
    where = by.where
    context = pseudonyms.token_context(where)
    for group in groups:
        named = [(by.keys[member.client], member) for member in members_of(group)]
        ordered = sorted(
            ((pseudonyms.token_in(context, key), key, member) for key, member in named), key=lambda each: each[0]
        )
        for token, key, member in ordered:
            slot, digest = len(filled), member.update_digest
            commitment = commit(
                run_id=where.run_id,
                round_number=where.number,
                salt=pseudonyms.salt(key, where),
                client=member.client,
                update_digest=digest,
            )
            sealed = pseudonyms.seal_member(key, where, slot, samples=member.samples, update_digest=digest)
            filled.append(member)
            slots.append({"slot": slot, "commitment": commitment})
            memberships.append({"slot": slot, "token": token, "sealed": sealed})
    return filled, {"slots": slots, "memberships": memberships}


def cluster_rows(record: Round) -> list[Row]:
    """The rows of a round's clusters."""
    sizes = [len(cluster.slots) for cluster in record.clusters]
    starts = accumulate([0, *sizes[:-1]])
    return [
        {
            "position": i,
            "first_slot": start,
            "size": size,
            "capacity": cluster.capacity,
            "weight": cluster.weight,
            "spread": cluster.spread,
        }
        for i, (cluster, size, start) in enumerate(zip(record.clusters, sizes, starts, strict=True))
    ]


def round_digest(run_id: str, header: Row, clusters: Iterable[Row], slots: Iterable[Row]) -> bytes:
    """SHA-256 over everything of a round that must never change.

    What a withdrawal deletes is bound through the slots' commitments, so the digest outlives it.
    """
    hashed = hashlib.sha256(b"disavow/round/v2\x00")
    hashed.update(json.dumps([*_head(run_id, header), header["participants"], header["clusters"]]).encode())
    hashed.update(struct.pack(">dddd", *(header[c] for c in ("delta", "update_norm", "pairs_within", "tau"))))
    for row in clusters:
        hashed.update(
            struct.pack(
                ">QQQQdd", *(row[c] for c in ("position", "first_slot", "size", "capacity", "weight", "spread"))
            )
        )
    for row in slots:
        hashed.update(row["commitment"])
    return hashed.digest()


def rebuilt_digest(run_id: str, header: Row, made: Row, slots: Iterable[Row]) -> bytes:
    """The same for a rebuilt round; `made` is its row in `rebuilt`."""
    hashed = hashlib.sha256(b"disavow/rebuilt/v1\x00")
    values = [*_head(run_id, header), header["participants"], *(made[c] for c in ("mechanism", "source", "epochs"))]
    hashed.update(json.dumps(values).encode())
    for row in slots:
        hashed.update(row["commitment"])
    return hashed.digest()


def _head(run_id: str, header: Row) -> list[Any]:
    return [run_id, *(header[c] for c in ("number", "attempt", "before", "after", "recorded_at"))]


EVENT = ("mode", "clip", "tau", "rate", "weight", "squares", "clusters", "representatives", "fixed", "predictable")
"""The columns of an event, which are the fields of `privacy.events.Event` of the same names."""


def event_row(event: Event, round_id: int) -> Row:
    """The row of an event."""
    row: Row = {"round_id": round_id, **{name: getattr(event, name) for name in EVENT}}
    return {**row, "checksum": event_checksum(row)}


def event_of_round(header: Row, clusters: Sequence[Row], policy: Policy) -> Event:
    """What a recorded round released, from its own row, its clusters' and the policy."""
    return event_of(
        policy,
        number=header["number"],
        attempt=header["attempt"],
        capacities=[row["capacity"] for row in clusters],
        weights=[row["weight"] for row in clusters],
    )


def event_checksum(row: Row) -> bytes:
    """Eight bytes that notice a changed event. JSON keeps every bit of a number."""
    values = [row["round_id"], *(row[name] for name in EVENT)]
    return hashlib.sha256(b"disavow/event/v1\x00" + json.dumps(values).encode()).digest()[:8]


def anchor_checksum(row: Row) -> bytes:
    """Eight bytes that notice a changed anchor."""
    values = [
        row["number"],
        row["until"].hex() if row["until"] is not None else None,
        row["capacity"],
        row["share"],
    ]
    return hashlib.sha256(b"disavow/anchor/v1\x00" + json.dumps(values).encode()).digest()[:8]


def request_checksum(row: Row) -> bytes:
    """Eight bytes that notice a changed request: its times, its place in a stream, its note, how many records."""
    return _checksum("request", row, REQUEST)


def request_event_checksum(row: Row) -> bytes:
    """Eight bytes that notice a changed event of a request."""
    return _checksum("request-event", row, ("request", "kind", "at", "until", "forecast", "sealed"))


def release_checksum(row: Row) -> bytes:
    """Eight bytes that notice a changed release."""
    return _checksum("release", row, ("digest", "round_id", "averaged", "released_at", "sealed"))


def _checksum(what: str, row: Row, names: Iterable[str]) -> bytes:
    values = [row[name].hex() if isinstance(row[name], bytes) else row[name] for name in names]
    return hashlib.sha256(f"disavow/{what}/v1\x00".encode() + json.dumps(values).encode()).digest()[:8]


REQUEST = (
    *("asked_at", "stream_round", "note", "records"),
    *("cancelled_at", "refused_at", "paused_at", "approved_at", "purged_at"),
)
"""The columns of a request that its checksum binds."""


RUN = (
    "run_id",
    "created_at",
    "created_by",
    "policy",
    "layout",
    "initial_model",
    "settings_digest",
    "trainer",
)
"""The columns of a run that never change."""


def run_digest(row: Row) -> bytes:
    """SHA-256 over what a run promised when it was created."""
    values = [row[c] for c in RUN]
    return hashlib.sha256(b"disavow/run/v1\x00" + json.dumps(values).encode()).digest()


def policy_to_json(policy: Policy) -> str:
    """A policy as the ledger stores it."""
    return json.dumps(asdict(policy), sort_keys=True)


def policy_from_json(text: str) -> Policy:
    """Read back what `policy_to_json` wrote, every field of it: no default may take the place of a promise."""
    found = json.loads(text)
    if not isinstance(found, dict) or found.keys() != {field.name for field in fields(Policy)}:
        raise ValueError("the policy lacks a field, or has one that is unknown")
    return Policy(**found)


def time_to_text(moment: datetime) -> str:
    """A moment as UTC in ISO 8601."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
