"""Recorded rounds: rows in, rounds out."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import Anchors, Cluster, Evaluation, Member, Policy, Round, Slot
from disavow.errors import LedgerError
from disavow.ledger import log, rows, updates
from disavow.ledger.backend import backend_of
from disavow.ledger.members import Members, RoundKeys, has_tokens, selected
from disavow.ledger.models import Vector
from disavow.ledger.schema import (
    clusters,
    evaluations,
    events,
    memberships,
    models,
    rounds,
    slots,
    withdrawals,
)
from disavow.ledger.updates import KeptFile
from disavow.privacy.events import Event
from disavow.proof.noise import logged_tau

_RECENT = 10


@dataclass(frozen=True, eq=False)
class NewRound:
    """A round that is to be recorded.

    Args:
        number: Its number.
        attempt: Which attempt at this number it is.
        before: The digest of the model it started from.
        after: The model it produced.
        delta: How near counted as alike.
        update_norm: The median L2 norm of the updates.
        pairs_within: The share of all pairs of updates within delta.
        clusters: Its clusters, their slots filled.
        at: When it is recorded.
        seconds: What it took, from broadcast to now.
        trainer: What trained its clients.
        repeats: Whether its clusters are those of the round before, less leavers: then it never breaks first.
        kept: The updates to keep, by their digests.
        compress: Whether these are compressed.
        anchors: Fixed clusters in which the size classes of newcomers are counted, to be kept with it.

    """

    number: int
    attempt: int
    before: str
    after: Vector
    delta: float
    update_norm: float
    pairs_within: float
    clusters: tuple[Cluster, ...]
    at: datetime
    seconds: float | None = None
    trainer: str | None = None
    repeats: bool = False
    kept: Mapping[bytes, Vector] = field(default_factory=dict)
    compress: bool = True
    anchors: Anchors | None = None

    def recorded(self, after: str) -> Round:
        """The round as it is recorded, with the digest of its model."""
        return Round(
            self.number,
            self.attempt,
            self.before,
            after,
            self.delta,
            self.update_norm,
            self.pairs_within,
            self.clusters,
            self.at,
        )

    @property
    def noted(self) -> dict[str, float | bool | str | None]:
        """What its row holds beside the record."""
        return {"seconds": self.seconds, "trainer": self.trainer, "repeats": self.repeats}


@dataclass(frozen=True)
class StoredCluster:
    """A cluster as it is stored, with the commitments of its slots, whether or not their members still are in."""

    position: int
    first_slot: int
    size: int
    weight: float
    spread: float
    commitments: tuple[bytes, ...]


@dataclass(frozen=True)
class ClientRound:
    """A round in which a client took part.

    Args:
        round_id: The row of the round.
        number: Its number.
        standing: Whether it stands.
        clusters: How many clusters it has; 0 where it was rebuilt.
        size: How many slots the client's cluster has; None where there are no clusters.

    """

    round_id: int
    number: int
    standing: bool
    clusters: int
    size: int | None


@dataclass(frozen=True)
class RoundSummary:
    """A recorded round in one line: what a table of rounds shows."""

    number: int
    attempt: int
    standing: bool
    participants: int
    clusters: int
    delta: float
    update_norm: float
    pairs_within: float
    spread: float | None
    after: str
    recorded_at: datetime
    evaluation: Evaluation | None
    trainer: str | None = None

    @property
    def rebuilt(self) -> bool:
        """Whether it was rebuilt approximately; then it has no clusters, and no spread."""
        return self.clusters == 0

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "number": self.number,
            "attempt": self.attempt,
            "standing": self.standing,
            "participants": self.participants,
            "clusters": self.clusters,
            "delta": self.delta,
            "update_norm": self.update_norm,
            "pairs_within_delta": self.pairs_within,
            "spread": self.spread,
            "rebuilt": self.rebuilt,
            "trainer": self.trainer,
            "model": self.after,
            "recorded_at": self.recorded_at.isoformat(),
            "metrics": self.evaluation.metrics if self.evaluation else None,
        }


@dataclass(frozen=True)
class WeakestCluster:
    """The cluster of a round that has the fewest members left: the one that breaks first.

    Args:
        size: How many slots it has.
        left: How many of their members have not left.
        spread: How far two members' updates lie apart at most.

    """

    size: int
    left: int
    spread: float


_SUMMARIES = (
    sa.select(rounds, evaluations.c.metrics)
    .outerjoin(evaluations, evaluations.c.round_id == rounds.c.id)
    .order_by(rounds.c.id)
)


def _summary(row: sa.Row[Any]) -> RoundSummary:
    return RoundSummary(
        number=row.number,
        attempt=row.attempt,
        standing=row.standing,
        participants=row.participants,
        clusters=row.clusters,
        delta=row.delta,
        update_norm=row.update_norm,
        pairs_within=row.pairs_within,
        spread=row.spread,
        after=row.after,
        recorded_at=datetime.fromisoformat(row.recorded_at),
        evaluation=None if row.metrics is None else _evaluation(row.metrics),
        trainer=row.trainer,
    )


def _evaluation(metrics: str) -> Evaluation:
    found: dict[str, float | None] = json.loads(metrics)
    return Evaluation(**{name: math.nan if value is None else value for name, value in found.items()})


def last_round(connection: sa.Connection) -> int:
    """The number of the newest standing round; 0 before the first."""
    return connection.execute(sa.select(sa.func.max(rounds.c.number)).where(rounds.c.standing)).scalar() or 0


def next_round(connection: sa.Connection) -> tuple[int, int]:
    """The number and the attempt of the round that comes next."""
    last = last_round(connection)
    attempts = sa.select(sa.func.count()).select_from(rounds).where(rounds.c.number == last + 1)
    return last + 1, connection.execute(attempts).scalar_one() + 1


def standing_round(connection: sa.Connection, number: int) -> sa.Row[Any]:
    """The row of a standing round."""
    query = sa.select(rounds).where(rounds.c.number == number, rounds.c.standing)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise LedgerError(f"the ledger holds no standing round {number}")
    return found


def insert(
    connection: sa.Connection,
    record: Round,
    *,
    run_id: str,
    policy: Policy,
    by: RoundKeys,
    noted: Mapping[str, float | bool | str | None],
    kept: Mapping[str, KeptFile],
) -> None:
    """Store the rows of a round, its event, what is kept of its updates, and its leaf in the log.

    `by` is the round's name, with the keys of its participants.
    `noted` is what its row holds beside the record: its `seconds`, its `trainer`, whether it `repeats` clusters.
    """
    groups = (cluster.slots for cluster in record.clusters)
    filled, of_slots = rows.slot_rows(groups, by)
    parts = {"clusters": rows.cluster_rows(record), **of_slots}
    header: rows.Row = {
        "number": record.number,
        "attempt": record.attempt,
        "before": record.before,
        "after": record.after,
        "delta": record.delta,
        "update_norm": record.update_norm,
        "pairs_within": record.pairs_within,
        "tau": logged_tau(policy, [(cluster.weight, cluster.spread) for cluster in record.clusters]),
        "participants": len(record.slots),
        "clusters": len(record.clusters),
        "spread": max(cluster.spread for cluster in record.clusters),
        "recorded_at": rows.time_to_text(record.recorded_at),
        "epoch": by.epoch,
        "nonce": by.where.nonce,
        "standing": True,
        **noted,
    }
    header["digest"] = rows.round_digest(run_id, header, parts["clusters"], parts["slots"])
    round_id = connection.execute(rounds.insert().values(header).returning(rounds.c.id)).scalar_one()
    for table in (clusters, slots, memberships):
        backend_of(connection).insert_many(connection, table, parts[table.name], round_id=round_id)
    updates.insert(connection, round_id, filled, kept)
    event = rows.event_of_round(header, parts["clusters"], policy)
    connection.execute(events.insert().values(rows.event_row(event, round_id)))
    log.log_round(connection, round_id, header, parts)


def load(connection: sa.Connection, members: Members, number: int) -> Round:
    """A standing round with clusters, whole; withdrawn slots are nameless."""
    header = standing_round(connection, number)
    if header.clusters == 0:
        raise LedgerError(f"round {number} was rebuilt: it has no clusters")
    gone = _withdrawn_slots(connection, header.id)
    filled = members.of_round(connection, header)
    loaded = [Slot(None)] * header.participants
    for slot, found in filled.items():
        if slot not in gone:
            loaded[slot] = Slot(Member(found.client.id, found.samples, found.update_digest))
    groups = sa.select(clusters).where(clusters.c.round_id == header.id).order_by(clusters.c.position)
    return Round(
        number=header.number,
        attempt=header.attempt,
        before=header.before,
        after=header.after,
        delta=header.delta,
        update_norm=header.update_norm,
        pairs_within=header.pairs_within,
        clusters=tuple(
            Cluster(row.weight, row.spread, tuple(loaded[row.first_slot : row.first_slot + row.size]), row.capacity)
            for row in connection.execute(groups)
        ),
        recorded_at=datetime.fromisoformat(header.recorded_at),
    )


def cluster_at(connection: sa.Connection, round_id: int, slot: int) -> StoredCluster:
    """The cluster that holds a slot."""
    holder = (
        sa.select(clusters)
        .where(clusters.c.round_id == round_id, clusters.c.first_slot <= slot)
        .order_by(clusters.c.first_slot.desc())
        .limit(1)
    )
    row = connection.execute(holder).one()
    mine = sa.select(slots.c.commitment).where(
        slots.c.round_id == round_id,
        slots.c.slot >= row.first_slot,
        slots.c.slot < row.first_slot + row.size,
    )
    return StoredCluster(
        position=row.position,
        first_slot=row.first_slot,
        size=row.size,
        weight=row.weight,
        spread=row.spread,
        commitments=tuple(connection.execute(mine.order_by(slots.c.slot)).scalars()),
    )


def weakest_clusters(connection: sa.Connection, numbers: Sequence[int]) -> dict[int, WeakestCluster]:
    """Find the weakest cluster of standing rounds, by their numbers; of the alike, the one of the largest spread.

    Args:
        connection: To read through.
        numbers: Which rounds; a rebuilt one has no clusters.

    """
    withdrawn = (
        sa.select(sa.func.count())
        .where(
            withdrawals.c.round_id == clusters.c.round_id,
            withdrawals.c.slot >= clusters.c.first_slot,
            withdrawals.c.slot < clusters.c.first_slot + clusters.c.size,
        )
        .scalar_subquery()
    )
    left = (clusters.c.size - withdrawn).label("left")
    query = (
        sa.select(rounds.c.number, clusters.c.size, left, clusters.c.spread)
        .join(clusters, clusters.c.round_id == rounds.c.id)
        .where(rounds.c.standing, rounds.c.number.in_(numbers))
        .order_by(sa.desc("left"), clusters.c.spread)
    )
    return {row.number: WeakestCluster(row.size, row.left, row.spread) for row in connection.execute(query)}


def commitments(connection: sa.Connection, round_id: int) -> list[bytes]:
    """The commitments of all slots of a round, in order."""
    query = sa.select(slots.c.commitment).where(slots.c.round_id == round_id).order_by(slots.c.slot)
    return list(connection.execute(query).scalars())


def membership(connection: sa.Connection, members: Members, number: int) -> tuple[tuple[str, ...], ...]:
    """Who is in which cluster of a standing round, in id order, leavers left out; a rebuilt round has none."""
    header = standing_round(connection, number)
    if header.clusters == 0:
        return ()
    gone = _withdrawn_slots(connection, header.id)
    groups = sa.select(clusters.c.first_slot).where(clusters.c.round_id == header.id).order_by(clusters.c.position)
    starts = list(connection.execute(groups).scalars())
    found: list[list[str]] = [[] for _ in starts]
    for slot, filled in members.of_round(connection, header).items():
        if slot not in gone:
            found[bisect_right(starts, slot) - 1].append(filled.client.id)
    return tuple(tuple(sorted(group)) for group in found)


def _withdrawn_slots(connection: sa.Connection, round_id: int) -> set[int]:
    return set(
        connection.execute(sa.select(withdrawals.c.slot).where(withdrawals.c.round_id == round_id)).scalars()
    )


def newest_membership(connection: sa.Connection, members: Members) -> tuple[tuple[str, ...], ...]:
    """That of the newest standing round that has clusters; nobody's where there is none."""
    newest = sa.select(sa.func.max(rounds.c.number)).where(rounds.c.standing, rounds.c.clusters > 0)
    number = connection.execute(newest).scalar()
    return () if number is None else membership(connection, members, number)


def summaries(connection: sa.Connection) -> tuple[RoundSummary, ...]:
    """All recorded rounds, superseded ones too, in the order in which they were recorded."""
    return tuple(_summary(row) for row in connection.execute(_SUMMARIES))


def summary(connection: sa.Connection, number: int) -> RoundSummary:
    """A standing round in one line."""
    round_id = standing_round(connection, number).id
    return _summary(connection.execute(_SUMMARIES.where(rounds.c.id == round_id)).one())


def note_evaluation(connection: sa.Connection, number: int, evaluation: Evaluation) -> None:
    """Remember how well a standing round's model does."""
    round_id = standing_round(connection, number).id
    finite = {name: value if math.isfinite(value) else None for name, value in evaluation.metrics.items()}
    connection.execute(evaluations.delete().where(evaluations.c.round_id == round_id))
    connection.execute(evaluations.insert().values(round_id=round_id, metrics=json.dumps(finite)))


def unevaluated(connection: sa.Connection) -> tuple[int, ...]:
    """The numbers of the standing rounds whose model is kept and has not been evaluated."""
    query = (
        sa.select(rounds.c.number)
        .outerjoin(evaluations, evaluations.c.round_id == rounds.c.id)
        .join(models, models.c.digest == rounds.c.after)
        .where(rounds.c.standing, models.c.present, evaluations.c.round_id.is_(None))
        .order_by(rounds.c.number)
    )
    return tuple(connection.execute(query).scalars())


_OF_CLIENT = (
    sa.select(rounds.c.id, rounds.c.number, rounds.c.standing, rounds.c.clusters, clusters.c.size)
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .outerjoin(
        clusters,
        (clusters.c.round_id == rounds.c.id)
        & (clusters.c.first_slot <= memberships.c.slot)
        & (memberships.c.slot < clusters.c.first_slot + clusters.c.size),
    )
    .where(has_tokens())
    .order_by(rounds.c.id)
)


def rounds_with(connection: sa.Connection, members: Members, client: str) -> tuple[int, ...]:
    """The numbers of the standing rounds in which a client took part: one look-up for each round."""
    found = members.keyring.find(client)
    if found is None:
        return ()
    return tuple(
        sorted(each.number for each in rounds_of_client(connection, members, found.number) if each.standing)
    )


def rounds_of_client(connection: sa.Connection, members: Members, client: int) -> tuple[ClientRound, ...]:
    """The rounds, standing or not, in which a client (by its number) took part, in the order of their records."""
    tokens = members.tokens(connection, client)
    return tuple(ClientRound(*row) for row in selected(connection, _OF_CLIENT, tokens))


def executed(connection: sa.Connection) -> tuple[Event, ...]:
    """What every recorded round released, superseded ones too, in the order in which they were recorded."""
    query = (
        sa.select(rounds.c.number, rounds.c.attempt, events)
        .outerjoin(events, events.c.round_id == rounds.c.id)
        .order_by(rounds.c.id)
    )
    found = []
    for row in connection.execute(query):
        if row.round_id is None:
            raise LedgerError(f"the event of round {row.number} is missing; `disavow fsck` says more")
        columns = row._mapping
        found.append(Event(number=row.number, attempt=row.attempt, **{name: columns[name] for name in rows.EVENT}))
    return tuple(found)


def latest_samples(connection: sa.Connection, members: Members) -> dict[str, int]:
    """How many samples each participant of the round recorded last, superseded or not, held; none before it."""
    newest = connection.execute(sa.select(rounds).order_by(rounds.c.id.desc()).limit(1)).one_or_none()
    if newest is None:
        return {}
    return {filled.client.id: filled.samples for filled in members.of_round(connection, newest).values()}


def seconds_per_round(connection: sa.Connection) -> float | None:
    """What a round took lately: the mean over the last ten that were measured. Rebuilt rounds take less."""
    measured = rounds.c.seconds.is_not(None) & (rounds.c.clusters > 0)
    last = sa.select(rounds.c.seconds).where(measured).order_by(rounds.c.id.desc())
    found = list(connection.execute(last.limit(_RECENT)).scalars())
    return sum(found) / len(found) if found else None
