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
from disavow.ledger.members import UNKNOWN, Members, has_tokens, selected
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
        memberships.c.token,
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
    sa.select(memberships.c.token, rounds.c.number)
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
    connection: sa.Connection,
    members: Members,
    leavers: Sequence[int],
    policy: Policy,
    *,
    first: int | None = None,
) -> Iterator[ClusterEvidence | RebuiltEvidence]:
    """The clusters to judge once these clients (by their numbers) are withdrawn: those that held one. Reads only.

    And the first rebuilt rounds that leavers contributed to: they have no clusters. With `first`, only of so many
    rounds, the first that were recorded; of later ones there may be some, with fewer leavers than they have.
    """
    found = members.tokens_of(connection, sorted(leavers), first=first)
    leaver_of = {token: leaver for leaver, tokens in found.items() for token in tokens}
    rebuilt: dict[int, int] = {}
    for token, number in selected(connection, _REBUILT, list(leaver_of)):
        leaver = leaver_of[token]
        rebuilt[leaver] = min(number, rebuilt.get(leaver, number))
    yield from (RebuiltEvidence(rebuilt[leaver]) for leaver in sorted(rebuilt))
    held: defaultdict[_Place, dict[int, int]] = defaultdict(dict)  # the leavers in each cluster, by slot
    for token, slot, *place in selected(connection, _TOUCHED, list(leaver_of)):
        held[_Place(*place)][slot] = leaver_of[token]
    for where, leaving in held.items():
        gone = set(connection.execute(_WITHDRAWN_IN_CLUSTER, where.bounds).scalars()) | leaving.keys()
        bounds = bounds_of(
            weight=where.weight, spread=where.spread, tau=where.tau, representatives=policy.representatives
        )
        yield ClusterEvidence(
            round=where.number,
            delta=where.delta,
            spread=where.spread,
            survivors=where.size - len(gone),
            ratio=bounds.ratio,
            leavers=tuple(sorted(leaving.values())),
        )


_AT_FIRST = 20_000
"""Clients times rounds that are looked at first: some tens of milliseconds."""


@dataclass(frozen=True)
class PartialEvidence:
    """What the first rounds have to say about a departure.

    Args:
        evidence: The clusters and rebuilt rounds to judge.
        complete_before: The round before which nothing is missing; None where nothing is at all.

    """

    evidence: tuple[ClusterEvidence | RebuiltEvidence, ...]
    complete_before: int | None


def growing(
    connection: sa.Connection,
    members: Members,
    leavers: Sequence[int],
    policy: Policy,
    *,
    at_first: int = _AT_FIRST,
) -> Iterator[PartialEvidence]:
    """The evidence of ever more rounds, the first ones first, in the end of all.

    To look for many clients in many rounds takes long, one hash for each of both. Whoever finds a broken round
    among the first ones need not look at the others. `at_first` is how many hashes to begin with.
    """
    first = max(1, at_first // max(1, len(leavers)))
    beyond = None if UNKNOWN in leavers else members.standing_from(connection, first)
    while beyond is not None:
        yield PartialEvidence(tuple(evidence(connection, members, leavers, policy, first=first)), beyond)
        first *= 2
        beyond = members.standing_from(connection, first)
    yield PartialEvidence(tuple(evidence(connection, members, leavers, policy)), None)
