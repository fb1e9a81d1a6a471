"""The log in the ledger: leaves are appended in the transaction that writes what they log.

The log is append-only and names nobody. What opens it (salts, ids) lies in other tables and can be deleted.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.errors import ConfigError, IntegrityError
from disavow.ledger import rows
from disavow.ledger.leaves import cluster_hashes, cluster_leaves, leaf_of_rebuilt, leaf_of_round, promises
from disavow.ledger.members import UNKNOWN, Members, RequestSalts, batches, has_tokens, selected
from disavow.ledger.run_state import count_commits
from disavow.ledger.schema import erasures, log, memberships, requests, rounds, run
from disavow.ledger.withdrawals import withdrawn_by
from disavow.proof.commitment import SALT_BYTES, close_records, commit_client, commit_records
from disavow.proof.leaves import (
    ClosedRound,
    ClosedWithdrawal,
    KeyLeaf,
    Leaf,
    LoggedRequest,
    LogLeaf,
    PurgeLeaf,
    RebuiltLeaf,
    RollbackLeaf,
    RoundLeaf,
    RunLeaf,
    WithdrawalLeaf,
    commit_rounds,
    decode_leaf,
    latest_time,
)
from disavow.proof.merkle import HASH_BYTES, appended, root_of_frontier
from disavow.proof.notes import Checkpoint, PublicKey, Signer, origin_of
from disavow.proof.validation import day_of, from_base64
from disavow.proof.withdrawal_slots import slots_root, write_slots


@dataclass(frozen=True)
class LoggedSlot:
    """A slot that a client filled in a standing round, which is the one numbered `number`.

    `place` is that of the round's leaf in the log, `round_id` the round's row.
    """

    place: int
    round_id: int
    number: int
    slot: int
    salt: bytes
    update_digest: bytes


@dataclass(frozen=True)
class LoggedRound:
    """The leaf of a round, and the leaf hashes of its clusters; none where it was rebuilt."""

    leaf: RoundLeaf | RebuiltLeaf
    cluster_hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class LogSize:
    """What the size of proofs depends on.

    Args:
        rounds: How many round leaves there are.
        shown: How many of them every proof may have to show, rather too many than too few: rounds that were
            rebuilt, and those that end in the same model as one that was undone.
        events: How many other leaves there are.
        event_bytes: Bytes of the other leaves.

    """

    rounds: int
    shown: int
    events: int
    event_bytes: int


@dataclass(frozen=True)
class LoggedLeaf:
    """A leaf of the log as a list shows it.

    Args:
        place: From 0.
        leaf: What it says, as it is hashed: canonical JSON.
        hash: Its leaf hash (RFC 6962).
        head: The checkpoint that was signed when it was the last leaf; None if none was.

    """

    place: int
    leaf: str
    hash: bytes
    head: str | None


# -- appending -----------------------------------------------------------------------------------------------------


def begin(connection: sa.Connection, key: PublicKey | None) -> None:
    """Leaf 0: what the run promises."""
    append(connection, promises(connection.execute(sa.select(run)).one(), key))


def log_round(
    connection: sa.Connection,
    round_id: int,
    header: rows.Row,
    parts: Mapping[str, Sequence[rows.Row]],
) -> None:
    """The leaf of a round that was just stored."""
    made = cluster_leaves(parts["clusters"], parts["slots"])
    hashes = b"".join(cluster.hash for cluster in made)
    append(connection, leaf_of_round(header, made), round_id=round_id, clusters=hashes)


def log_rebuilt(
    connection: sa.Connection, round_id: int, header: rows.Row, mechanism: str, slot_rows: Sequence[rows.Row]
) -> None:
    """The leaf of a rebuilt round that was just stored."""
    append(connection, leaf_of_rebuilt(header, mechanism, slot_rows), round_id=round_id)


def log_erasure(connection: sa.Connection, members: Members, erasure: int) -> None:
    """The leaf of an erasure's withdrawals, and of its rollback if there is one."""
    row = connection.execute(sa.select(erasures).where(erasures.c.id == erasure)).one()
    logged, times = [], [row.opened_at]
    run_id: str = connection.execute(sa.select(run.c.run_id)).scalar_one()
    answered = sa.select(requests).where(requests.c.erasure == erasure).order_by(requests.c.id)
    for request in connection.execute(answered).all():
        salts = _request_salts(members, request)
        client = members.ids_of([request.client]).get(request.client, "")
        logged.append(
            LoggedRequest(
                asked_at=day_of(request.asked_at),
                verdict=request.verdict,
                client=commit_client(run_id=run_id, salt=salts.client, client=client),
                rounds=commit_rounds(salts.rounds, rounds_of(connection, members, request.client)),
                records=commit_requested_records(members, request, salts),
            )
        )
        times.append(request.asked_at)  # whoever asked may have another clock
    gone, place = withdrawn_by(connection, erasure), head_size(connection)
    leaf = WithdrawalLeaf(
        requests=tuple(logged),
        rounds=_rounds_logged(connection),
        root=slots_root([each.inner for each in gone]),
        at=day_of(max(times)),
        slots=write_slots(gone, place),
    )
    append(connection, leaf, erasure=erasure)
    if row.rollback_to is not None:
        back = RollbackLeaf(withdrawal=place, to=row.rollback_to, at=day_of(row.opened_at))
        append(connection, back, erasure=erasure)


def log_purge(connection: sa.Connection, erasure: int) -> None:
    """The leaf of a purge."""
    row = connection.execute(sa.select(erasures).where(erasures.c.id == erasure)).one()
    append(connection, PurgeLeaf(to=row.rollback_to, at=day_of(row.opened_at)), erasure=erasure)


def _request_salts(members: Members, request: sa.Row[Any]) -> RequestSalts:
    """What closes the commitments to a request; for clients unknown, that nobody can ever open."""
    if request.client == UNKNOWN:
        return RequestSalts(*(secrets.token_bytes(SALT_BYTES) for _ in range(3)))
    return members.request_salts(request.client, request.nonce)


def commit_requested_records(members: Members, request: sa.Row[Any], salts: RequestSalts) -> bytes | None:
    """The commitment to the records that a request names; None of a whole client."""
    if request.records is None:
        return None
    records = members.keyring.requested_records(request.client, request.nonce)
    if len(records) != request.records:
        raise IntegrityError(
            f"request {request.id} names {request.records} records, and the keyring has {len(records)} of them; "
            "nothing was changed: restore the keyring, or cancel the request"
        )
    closed = close_records(salt=salts.records, records=records)
    return commit_records(run_id=members.run_id, count=request.records, closed=closed)


def records_commitment(connection: sa.Connection, members: Members, number: int) -> bytes | None:
    """The commitment to the records of a request: in the log, or as it will be there; None of a whole client.

    Nor is there one of a request that was cancelled or refused.
    """
    row = connection.execute(sa.select(requests).where(requests.c.id == number)).one_or_none()
    if row is None or row.records is None or row.cancelled_at is not None or row.refused_at is not None:
        return None
    if row.erasure is not None:
        return _logged_request(connection, row.erasure, number).records
    return commit_requested_records(members, row, _request_salts(members, row))


def append(connection: sa.Connection, leaf: Leaf, **values: Any) -> int:
    """Append a leaf; its place. `values` are what else its row holds."""
    place = head_size(connection)
    latest = latest_before(connection, place)
    if latest is not None and not isinstance(leaf, RunLeaf):
        leaf = replace(leaf, at=not_before(leaf.at, latest))
    frontier = b"".join(appended(_frontier(connection, place), place, leaf.hash))
    row = {"position": place, "leaf": leaf.encode().decode(), "hash": leaf.hash, "frontier": frontier, **values}
    connection.execute(log.insert().values(row))
    count_commits(connection)
    return place


def sign_head(connection: sa.Connection, run_id: str, signer: Signer) -> None:
    """Sign the head as it is now."""
    head = head_of(connection, run_id)
    last = log.update().where(log.c.position == head.size - 1)
    connection.execute(last.values(head=head.signed(signer)))


# -- reading -------------------------------------------------------------------------------------------------------


def key_of(connection: sa.Connection) -> PublicKey | None:
    """The key with which heads are signed now."""
    keys = keys_of(connection)
    return keys[-1] if keys else None


def keys_of(connection: sa.Connection) -> list[PublicKey]:
    """All keys with which heads were signed, the newest last."""
    query = sa.select(log.c.leaf).where(log.c.round_id.is_(None), log.c.erasure.is_(None)).order_by(log.c.position)
    leaves = [_decoded(text) for text in connection.execute(query).scalars()]
    return [leaf.key for leaf in leaves if isinstance(leaf, RunLeaf | KeyLeaf) and leaf.key is not None]


def _decoded(text: str) -> Leaf:
    return decode_leaf(text.encode(), "a leaf of the log")


def head_size(connection: sa.Connection) -> int:
    """How many leaves there are."""
    last = connection.execute(sa.select(sa.func.max(log.c.position))).scalar()
    return 0 if last is None else int(last) + 1


def _frontier(connection: sa.Connection, size: int) -> list[bytes]:
    """The roots of the perfect subtrees of the first leaves."""
    if size == 0:
        return []
    found: bytes = connection.execute(sa.select(log.c.frontier).where(log.c.position == size - 1)).scalar_one()
    return [found[start : start + HASH_BYTES] for start in range(0, len(found), HASH_BYTES)]


def hashes_of(connection: sa.Connection) -> list[bytes]:
    """The leaf hashes of the whole log."""
    return list(connection.execute(sa.select(log.c.hash).order_by(log.c.position)).scalars())


def head_of(connection: sa.Connection, run_id: str) -> Checkpoint:
    """The head as it is now, not yet signed. Its cost does not grow with the log."""
    size = head_size(connection)
    return Checkpoint(origin_of(run_id), size, root_of_frontier(_frontier(connection, size)))


def signed_head(connection: sa.Connection) -> str | None:
    """The newest checkpoint, if it was signed."""
    query = sa.select(log.c.head).order_by(log.c.position.desc()).limit(1)
    return connection.execute(query).scalar()


def leaves_of(connection: sa.Connection) -> list[Leaf]:
    """Read all leaves."""
    return [_decoded(text) for text in connection.execute(sa.select(log.c.leaf).order_by(log.c.position)).scalars()]


def page(connection: sa.Connection, *, before: int | None = None, most: int) -> tuple[LoggedLeaf, ...]:
    """List leaves, the newest first.

    Args:
        connection: To read through.
        before: Only those at lower places.
        most: How many at most.

    """
    query = (
        sa.select(log.c.position, log.c.leaf, log.c.hash, log.c.head).order_by(log.c.position.desc()).limit(most)
    )
    if before is not None:
        query = query.where(log.c.position < before)
    return tuple(LoggedLeaf(*row) for row in connection.execute(query))


def _rounds_logged(connection: sa.Connection) -> int:
    """How many round leaves there are."""
    query = sa.select(sa.func.count()).select_from(log).where(log.c.round_id.is_not(None))
    found: int = connection.execute(query).scalar_one()
    return found


def closed_leaves(connection: sa.Connection, shown: Collection[int]) -> list[LogLeaf]:
    """All leaves as a proof has them: rounds and withdrawals at other places than these are closed.

    But for rounds that end in a model that was undone, the last leaf and the last round, which every proof shows.
    """
    rows = connection.execute(sa.select(log.c.leaf, log.c.round_id).order_by(log.c.position)).all()
    needed = {*shown, len(rows) - 1, *[at for at, row in enumerate(rows) if row.round_id is not None][-1:]}
    found: list[LogLeaf] = []
    models: list[str] = []
    undone: set[str] = set()
    for place, row in enumerate(rows):
        value = json.loads(row.leaf)
        kind = value["type"]
        if kind in ("round", "rebuilt"):
            models.append(value["after"])
        elif kind in ("rollback", "purge"):
            undone.update(models[value["to"] - 1 :])
            del models[value["to"] - 1 :]
        found.append(
            _decoded(row.leaf) if place in needed or not _may_be_closed(value, undone) else _closed(value, row.leaf)
        )
    return found


def _may_be_closed(value: Mapping[str, Any], undone: Collection[str]) -> bool:
    if value["type"] == "round":
        return value["after"] not in undone or value["after"] == value["before"]
    return bool(value["type"] == "withdrawal")


def _closed(value: Mapping[str, Any], leaf: str) -> ClosedRound | ClosedWithdrawal:
    """Close a leaf of ours: it was checked when it was written, and whoever proves verifies the proof."""
    digest = hashlib.sha256(leaf.encode()).digest()
    if value["type"] == "round":
        return ClosedRound(value["number"], value["attempt"], value["before"], value["after"], digest)
    rolls_back = any(request["verdict"] == "rollback" for request in value["requests"])
    return ClosedWithdrawal(value["rounds"], rolls_back, from_base64(value["slots"], "slots"), digest)


def logged_round(connection: sa.Connection, place: int) -> LoggedRound:
    """The leaf of a round, with the leaf hashes of its clusters."""
    row = connection.execute(sa.select(log.c.leaf, log.c.clusters).where(log.c.position == place)).one()
    leaf = _decoded(row.leaf)
    if not isinstance(leaf, RoundLeaf | RebuiltLeaf):
        raise IntegrityError(f"leaf {place} of the log is not a round's")
    return LoggedRound(leaf, tuple(cluster_hashes(row.clusters or b"")))


def standing_positions(connection: sa.Connection) -> dict[int, int]:
    """The rows of the rounds that stand, by the places of their leaves."""
    query = (
        sa.select(log.c.position, rounds.c.id).join(rounds, rounds.c.id == log.c.round_id).where(rounds.c.standing)
    )
    return {row.position: row.id for row in connection.execute(query)}


def withdrawal_positions(connection: sa.Connection) -> dict[int, int]:
    """The place of each erasure's withdrawal in the log, in order."""
    query = (
        sa.select(log.c.erasure, sa.func.min(log.c.position).label("place"))
        .join(erasures, erasures.c.id == log.c.erasure)
        .where(~erasures.c.purge)
        .group_by(log.c.erasure)
        .order_by(sa.text("place"))
    )
    return {row.erasure: row.place for row in connection.execute(query)}


def undone_at(connection: sa.Connection, positions: Collection[int]) -> int | None:
    """The place of the rollback or purge that undid the last of the rounds at these places; None where one stands.

    Of an erasure that undid rounds, the last leaf is the one that says so.
    """
    found: set[int] = set()
    for some in batches(sorted(positions)):
        query = sa.select(rounds.c.standing, rounds.c.superseded_by).join(log, log.c.round_id == rounds.c.id)
        for row in connection.execute(query.where(log.c.position.in_(some)).distinct()):
            if row.standing:
                return None
            found.add(row.superseded_by)
    last = [
        connection.execute(sa.select(sa.func.max(log.c.position)).where(log.c.erasure == erasure)).scalar_one()
        for erasure in found
    ]
    return max(last, default=None)


_SLOTS = (
    sa.select(
        log.c.position.label("place"),
        rounds.c.id,
        rounds.c.number,
        rounds.c.attempt,
        rounds.c.epoch,
        rounds.c.nonce,
    )
    .add_columns(memberships.c.slot, memberships.c.sealed)
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .join(log, log.c.round_id == rounds.c.id)
    .where(rounds.c.standing, has_tokens())
)


def logged_slots(connection: sa.Connection, members: Members, client: int) -> tuple[LoggedSlot, ...]:
    """The slots that a client (by its number) filled in standing rounds, in the order of the log."""
    key = members.keyring.by_number([client]).get(client)
    if key is None:
        return ()
    found = []
    for row in selected(connection, _SLOTS, members.tokens(connection, client)):
        filled = members.opened(key, row, row)
        found.append(LoggedSlot(row.place, row.id, row.number, row.slot, filled.salt, filled.update_digest))
    return tuple(sorted(found, key=lambda each: (each.place, each.slot)))


def logged_slots_of_round(connection: sa.Connection, members: Members, number: int) -> dict[str, LoggedSlot]:
    """The slots of a standing round by the ids of their members who are in the keyring, in order."""
    header = connection.execute(sa.select(rounds).where(rounds.c.standing, rounds.c.number == number)).one_or_none()
    if header is None:
        return {}
    place: int = connection.execute(sa.select(log.c.position).where(log.c.round_id == header.id)).scalar_one()
    return {
        filled.client.id: LoggedSlot(place, header.id, number, slot, filled.salt, filled.update_digest)
        for slot, filled in members.of_round(connection, header).items()
    }


def log_size(connection: sa.Connection) -> LogSize:
    """Count what the size of proofs depends on."""
    events = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(log.c.leaf)), 0))
    count, size = connection.execute(events.where(log.c.round_id.is_(None))).one()
    undone = rounds.alias()
    again = rounds.c.after.in_(sa.select(undone.c.after).where(~undone.c.standing))
    shown = sa.select(sa.func.count()).select_from(rounds).where((rounds.c.clusters == 0) | again)
    anyone = connection.execute(sa.select(rounds.c.id).where(~rounds.c.standing).limit(1)).first()
    return LogSize(
        rounds=_rounds_logged(connection),
        shown=0 if anyone is None else connection.execute(shown).scalar_one(),
        events=count,
        event_bytes=size,
    )


def opens_request(connection: sa.Connection, run_id: str, number: int, *, client: str, salt: bytes) -> bool:
    """Say whether a salt opens the log's commitment to who asked, for this client.

    Args:
        connection: The ledger.
        run_id: The run.
        number: The request.
        client: Who is said to have asked.
        salt: That of its opening.

    """
    erasure = connection.execute(sa.select(requests.c.erasure).where(requests.c.id == number)).scalar()
    if erasure is None:
        return False
    found = _logged_request(connection, erasure, number)
    return found.client == commit_client(run_id=run_id, salt=salt, client=client)


def _logged_request(connection: sa.Connection, erasure: int, number: int) -> LoggedRequest:
    """A request as the leaf of its withdrawal has it."""
    earlier = sa.select(sa.func.count()).where(requests.c.erasure == erasure, requests.c.id < number)
    index = connection.execute(earlier).scalar_one()
    first = sa.select(log.c.leaf).where(log.c.erasure == erasure).order_by(log.c.position).limit(1)
    leaf = _decoded(connection.execute(first).scalar_one())
    if not isinstance(leaf, WithdrawalLeaf) or index >= len(leaf.requests):
        raise IntegrityError(f"request {number} is not in the leaf of its withdrawal")
    return leaf.requests[index]


_POSITIONS = (
    sa.select(log.c.position)
    .join(memberships, memberships.c.round_id == log.c.round_id)
    .where(has_tokens())
    .order_by(log.c.position)
)


def rounds_of(connection: sa.Connection, members: Members, client: int | None) -> list[int]:
    """The places in the log of the rounds, standing or not, in which a client (by its number) took part."""
    tokens = () if client is None else members.tokens(connection, client)
    return sorted({row.position for row in selected(connection, _POSITIONS, tokens)})


def not_before(time: str, latest: str) -> str:
    """The time of a leaf behind others, of which `latest` is the latest: a clock may have been set back.

    Each is a moment or a day. A day that is the latest begins at midnight.

    >>> not_before("2026-01-31T11:00:00.000000+00:00", "2026-01-31T12:00:00.000000+00:00")
    '2026-01-31T12:00:00.000000+00:00'
    >>> not_before("2026-01-30T11:00:00.000000+00:00", "2026-01-31")
    '2026-01-31T00:00:00.000000+00:00'
    >>> not_before("2026-01-30", "2026-01-31T12:00:00.000000+00:00")
    '2026-01-31'
    """
    return max(time, midnight(latest)[: len(time)])


def midnight(time: str) -> str:
    """A moment as it is; of a day, its first moment."""
    return time if time != day_of(time) else f"{time}T00:00:00.000000+00:00"


def latest_before(connection: sa.Connection, place: int) -> str | None:
    """The latest time in the log before a leaf: that of the leaf before it, or of the last one with a moment."""
    newest = sa.select(log.c.leaf).where(log.c.position < place).order_by(log.c.position.desc()).limit(1)
    exact = newest.where(log.c.erasure.is_(None))
    found = [connection.execute(query).scalar() for query in (newest, exact)]
    return None if None in found else latest_time(_decoded(leaf) for leaf in found if leaf is not None)


def day_at(connection: sa.Connection, place: int) -> str:
    """The day in the leaf of a withdrawal."""
    leaf = connection.execute(sa.select(log.c.leaf).where(log.c.position == place)).scalar_one()
    return day_of(_decoded(leaf).time)


def time_of(moment: datetime) -> str:
    """A moment as leaves have it."""
    return rows.time_to_text(moment)


# -- the key that signs it ----------------------------------------------------------------------------------------


def note_signer(connection: sa.Connection, signer: Signer | None, *, at: str) -> None:
    """Note a new signing key as a leaf of the log."""
    refuse_signer(connection, signer)
    if signer is not None and signer.public != key_of(connection):
        append(connection, KeyLeaf(key=signer.public, at=at))
        sign_head(connection, connection.execute(sa.select(run.c.run_id)).scalar_one(), signer)


def refuse_signer(connection: sa.Connection, signer: Signer | None) -> None:
    """Refuse a key that may not sign this run's log, and none where the log is signed."""
    current = key_of(connection)
    if signer is None and current is not None:
        raise ConfigError(
            f"this run's log is signed with key {current.id[:16]} of {current.name}, which is not here; "
            "point DISAVOW_KEYS to the folder that holds it"
        )
    if signer is not None and signer.public != current and signer.public in keys_of(connection):
        raise ConfigError(
            f"key {signer.public.id[:16]} signed this run's log before and was replaced; "
            f"use the key that replaced it, {current.id[:16] if current else ''}"
        )
