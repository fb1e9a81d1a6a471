"""What the judge gets to see: the clusters of standing rounds that a withdrawal touches.

The cost is one look-up for each recorded round; beyond that it is proportional to the rounds in which the leavers
took part, not to the size of the ledger: all is found through indexes, from the leavers' own memberships on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.domain import ClusterEvidence, Policy, RebuiltEvidence
from disavow.ledger.members import Members, has_tokens, selected
from disavow.ledger.schema import clusters, memberships, rounds, withdrawals
from disavow.proof.bounds import bounds_of


def start_of(table: sa.Table) -> sa.ScalarSelect[int]:
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


# Built once: building a statement takes longer than SQLite takes to answer it.
_TOUCHED = (
    sa.select(
        memberships.c.slot,
        rounds.c.id,
        rounds.c.number,
        rounds.c.delta,
        rounds.c.tau,
        clusters.c.first_slot,
        clusters.c.size,
        clusters.c.weight,
        clusters.c.spread,
    )
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .join(
        clusters,
        (clusters.c.round_id == memberships.c.round_id) & (clusters.c.first_slot == start_of(memberships)),
    )
    .where(rounds.c.standing, has_tokens())
)
_REBUILT = (
    sa.select(sa.func.min(rounds.c.number))
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .where(rounds.c.standing, rounds.c.clusters == 0, has_tokens())
)
_WITHDRAWN_IN_CLUSTER = sa.select(withdrawals.c.slot).where(_in_cluster(withdrawals))


@dataclass(frozen=True)
class _Place:
    """A cluster of a standing round."""

    round_id: int
    number: int
    delta: float
    tau: float
    first_slot: int
    size: int
    weight: float
    spread: float

    @property
    def bounds(self) -> dict[str, int]:
        return {"round_id": self.round_id, "first": self.first_slot, "end": self.first_slot + self.size}


def evidence(
    connection: sa.Connection, members: Members, leavers: Sequence[int], policy: Policy
) -> Iterator[ClusterEvidence | RebuiltEvidence]:
    """The clusters to judge once these clients (by their numbers) are withdrawn: those that held one. Reads only.

    And the first rebuilt rounds that leavers contributed to: they have no clusters.
    """
    held: defaultdict[_Place, dict[int, int]] = defaultdict(dict)  # the leavers in each cluster, by slot
    for leaver in sorted(leavers):
        tokens = members.tokens(connection, leaver)
        rebuilt = [first for (first,) in selected(connection, _REBUILT, tokens) if first is not None]
        if rebuilt:
            yield RebuiltEvidence(min(rebuilt))
        for row in selected(connection, _TOUCHED, tokens):
            held[_Place(*row[1:])][row.slot] = leaver
    for place, leaving in held.items():
        gone = set(connection.execute(_WITHDRAWN_IN_CLUSTER, place.bounds).scalars()) | leaving.keys()
        bounds = bounds_of(
            weight=place.weight, spread=place.spread, tau=place.tau, representatives=policy.representatives
        )
        yield ClusterEvidence(
            round=place.number,
            delta=place.delta,
            spread=place.spread,
            survivors=place.size - len(gone),
            ratio=bounds.ratio,
            leavers=tuple(leaving.values()),
        )
