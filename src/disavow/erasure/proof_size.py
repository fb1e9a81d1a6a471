"""How large a proof will be, from counts alone: before it is made, and rather too large than too small."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.domain import Policy
from disavow.ledger.schema import clusters, log, memberships, rounds, withdrawals

ROUND_LEAF = 512
"""Bytes of a round's leaf, and more."""

_HASH = len('"",') + 44
_SUPERSEDED = len("1000000,")
_CLUSTER, _WITHDRAWN = 400, 120
_STATEMENT, _ENVELOPE = 2_000, 400


def sealed_bytes(payload: int) -> int:
    """The size of an envelope around so many bytes."""
    return 4 * (payload + 2) // 3 + _ENVELOPE


@dataclass(frozen=True)
class ProofSizes:
    """What the proofs of one log have in common."""

    policy: Policy
    leaves: int
    """Bytes of the leaves."""
    maps: int
    """Bytes of the maps of withdrawals."""
    withdrawn: dict[int, int]
    """How many slots were withdrawn from a round, by its row."""

    @classmethod
    def read(cls, connection: sa.Connection, policy: Policy) -> ProofSizes:
        """Count what is in the log as it is now."""
        leaves = connection.execute(sa.select(sa.func.sum(sa.func.length(log.c.leaf) + 1))).scalar_one()
        places = sa.select(log.c.position).where(log.c.round_id.is_not(None)).order_by(log.c.position)
        logged = list(connection.execute(places).scalars())
        by_erasure = sa.select(sa.func.min(log.c.position)).where(log.c.erasure.is_not(None))
        covered = [
            bisect_left(logged, place) for place in connection.execute(by_erasure.group_by(log.c.erasure)).scalars()
        ]
        changed = sa.select(withdrawals.c.erasure, withdrawals.c.round_id).distinct().subquery()
        values = connection.execute(sa.select(sa.func.count()).select_from(changed)).scalar_one()
        gone = sa.select(withdrawals.c.round_id, sa.func.count()).group_by(withdrawals.c.round_id)
        maps = sum(len("null,") * each + len("[],") for each in covered) + values * _HASH
        return cls(policy, leaves, maps, {row[0]: row[1] for row in connection.execute(gone)})

    def of(self, connection: sa.Connection, client: int, *, before: int | None = None, leavers: int = 0) -> int:
        """Bytes of the sealed proof of a client.

        `before`: only rounds with smaller numbers stand then. `leavers` are about to leave together, and are not in
        the log yet.
        """
        mine = (
            sa.select(rounds.c.id, rounds.c.clusters, rounds.c.standing, rounds.c.number, clusters.c.size)
            .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
            .outerjoin(
                clusters,
                (clusters.c.round_id == rounds.c.id)
                & (clusters.c.first_slot <= memberships.c.slot)
                & (memberships.c.slot < clusters.c.first_slot + clusters.c.size),
            )
            .where(memberships.c.client == client)
        )
        payload = _STATEMENT + self.leaves + self.maps + leavers * ROUND_LEAF
        for row in connection.execute(mine):
            if not row.standing or not row.clusters or (before is not None and row.number >= before):
                payload += _SUPERSEDED + _HASH
            else:
                gone = self.withdrawn.get(row.id, 0) + leavers
                payload += _HASH + self._cluster(row.size, row.clusters) + gone * _WITHDRAWN
        return sealed_bytes(payload)

    def _cluster(self, size: int, count: int) -> int:
        path = (count - 1).bit_length() * _HASH
        return _CLUSTER + path + size * _HASH
