"""What the judge gets to see: the clusters of standing rounds that a withdrawal touches.

The cost is proportional to the rounds in which the leavers took part, not to the size of the ledger: everything
is found through indexes that start from the leavers' own memberships.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from disavow.domain import ClusterEvidence, RebuiltEvidence, SlotEvidence
from disavow.ledger.rows import unpack_slots
from disavow.ledger.schema import clusters, memberships, rounds, slots, withdrawals

_BATCH = 500


def _start_of(table: sa.Table) -> sa.ScalarSelect[int]:
    """Where the cluster of a slot starts: the last start that is not beyond it."""
    inner = clusters.alias()
    return (
        sa.select(sa.func.max(inner.c.first_slot))
        .where(inner.c.round_id == table.c.round_id, inner.c.first_slot <= table.c.slot)
        .scalar_subquery()
    )


def _in_cluster(table: sa.Table) -> sa.ColumnElement[bool]:
    """Slots from `first` up to `end`, without it."""
    first: sa.BindParameter[int] = sa.bindparam("first")
    end: sa.BindParameter[int] = sa.bindparam("end")
    return (table.c.round_id == sa.bindparam("round_id")) & (table.c.slot >= first) & (table.c.slot < end)


def _among(table: sa.Table) -> sa.ColumnElement[bool]:
    """Slots of a round that are among `numbers`."""
    numbers: sa.BindParameter[int] = sa.bindparam("numbers", expanding=True)
    return (table.c.round_id == sa.bindparam("round_id")) & table.c.slot.in_(numbers)


# Built once: building a statement takes longer than SQLite takes to answer it.
_TOUCHED = (
    sa.select(
        memberships.c.slot,
        rounds.c.id,
        rounds.c.number,
        rounds.c.delta,
        rounds.c.participants,
        clusters.c.first_slot,
        clusters.c.size,
        clusters.c.spread,
    )
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .join(
        clusters,
        (clusters.c.round_id == memberships.c.round_id) & (clusters.c.first_slot == _start_of(memberships)),
    )
    .where(rounds.c.standing, memberships.c.client.in_(sa.bindparam("leavers", expanding=True)))
)
_REBUILT = (
    sa.select(sa.func.min(rounds.c.number))
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .where(
        rounds.c.standing,
        rounds.c.clusters == 0,
        memberships.c.client.in_(sa.bindparam("leavers", expanding=True)),
    )
)
_WITHDRAWN_IN_CLUSTER = sa.select(withdrawals.c.slot).where(_in_cluster(withdrawals))
_WITHDRAWN_AMONG = sa.select(withdrawals.c.slot).where(_among(withdrawals))
_NEIGHBOURS = sa.select(slots.c.slot, slots.c.neighbours).where(_in_cluster(slots)).order_by(slots.c.slot)
_LISTED_BY = sa.select(slots.c.listed_by).where(_among(slots))
_CLUSTERS_THAT_LOST = (
    sa.select(clusters.c.first_slot, clusters.c.size, clusters.c.spread)
    .distinct()
    .join_from(
        slots, clusters, (clusters.c.round_id == slots.c.round_id) & (clusters.c.first_slot == _start_of(slots))
    )
    .where(
        _among(slots),
        sa.exists().where(
            withdrawals.c.round_id == clusters.c.round_id,
            withdrawals.c.slot >= clusters.c.first_slot,
            withdrawals.c.slot < clusters.c.first_slot + clusters.c.size,
        ),
    )
)


@dataclass(frozen=True)
class _Place:
    """A cluster of a standing round."""

    round_id: int
    number: int
    delta: float
    participants: int
    first_slot: int
    size: int
    spread: float

    @property
    def numbers(self) -> range:
        return range(self.first_slot, self.first_slot + self.size)

    @property
    def bounds(self) -> dict[str, int]:
        return {"round_id": self.round_id, "first": self.first_slot, "end": self.first_slot + self.size}


@dataclass
class _Touched:
    """The clusters that held leavers, and the slots the leavers filled, by round."""

    places: set[_Place] = field(default_factory=set)
    slots: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


def evidence(
    connection: sa.Connection, leavers: Sequence[int], *, criterion: str
) -> Iterator[ClusterEvidence | RebuiltEvidence]:
    """The clusters to judge once these clients (by their numbers) are withdrawn. Reads only.

    For `cluster`: those that held a leaver. For `neighbourhood` also those that have lost a member, now or
    before, and list a leaver. And the first rebuilt rounds that leavers contributed to: they have no clusters.
    """
    for some in _batches(leavers):
        first = connection.execute(_REBUILT, {"leavers": some}).scalar()
        if first is not None:
            yield RebuiltEvidence(first)
    touched = _touched(connection, leavers)
    if criterion == "cluster":
        for place in touched.places:
            left = touched.slots[place.round_id].union(
                connection.execute(_WITHDRAWN_IN_CLUSTER, place.bounds).scalars()
            )
            states = tuple(SlotEvidence(number not in left) for number in place.numbers)
            yield ClusterEvidence(place.number, place.delta, place.spread, states)
        return
    by_round: defaultdict[int, list[_Place]] = defaultdict(list)
    for place in touched.places:
        by_round[place.round_id].append(place)
    for round_id, places in by_round.items():
        yield from _neighbourhoods(connection, round_id, places, touched.slots[round_id])


def _touched(connection: sa.Connection, leavers: Sequence[int]) -> _Touched:
    touched = _Touched()
    for some in _batches(leavers):
        for slot, round_id, *rest in connection.execute(_TOUCHED, {"leavers": some}):
            touched.places.add(_Place(round_id, *rest))
            touched.slots[round_id].add(slot)
    return touched


def _neighbourhoods(
    connection: sa.Connection, round_id: int, held: list[_Place], leaving: set[int]
) -> Iterator[ClusterEvidence]:
    """The clusters of one round that held a leaver, or have lost a member before and list one."""
    participants = held[0].participants
    places = set(held)
    listing = {
        number
        for data in connection.execute(_LISTED_BY, {"round_id": round_id, "numbers": list(leaving)}).scalars()
        for number in unpack_slots(data, participants)
    }
    for some in _batches(listing):
        for row in connection.execute(_CLUSTERS_THAT_LOST, {"round_id": round_id, "numbers": some}):
            places.add(replace(held[0], first_slot=row.first_slot, size=row.size, spread=row.spread))
    lists = {
        place: {
            slot: unpack_slots(data, participants) for slot, data in connection.execute(_NEIGHBOURS, place.bounds)
        }
        for place in places
    }
    gone = set(leaving)
    for some in _batches(
        {n for listed in lists.values() for slot, others in listed.items() for n in (slot, *others)}
    ):
        gone.update(connection.execute(_WITHDRAWN_AMONG, {"round_id": round_id, "numbers": some}).scalars())
    for place, listed in lists.items():
        states = tuple(
            SlotEvidence(slot not in gone, sum(other not in gone for other in others))
            for slot, others in listed.items()
        )
        yield ClusterEvidence(place.number, place.delta, place.spread, states)


def _batches(numbers: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(numbers)
    return (ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH))
