"""What withdrawals took out: which slots of which rounds, by which erasure, in the order of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.schema import clusters, log, withdrawals
from disavow.proof.leaves import withdrawn_inner
from disavow.proof.validation import from_base64
from disavow.proof.withdrawal_slots import WithdrawnFrom


@dataclass(frozen=True)
class Withdrawn(WithdrawnFrom):
    """A slot that was withdrawn; a rebuilt round counts as one cluster."""

    slot: int
    salt: bytes

    @property
    def inner(self) -> bytes:
        """The slot, closed."""
        return withdrawn_inner(self.salt, self.slot)


_POSITION = (
    sa.select(clusters.c.position)
    .where(clusters.c.round_id == withdrawals.c.round_id, clusters.c.first_slot <= withdrawals.c.slot)
    .order_by(clusters.c.first_slot.desc())
    .limit(1)
    .scalar_subquery()
)
_WITHDRAWN_BY = (
    sa.select(log.c.position.label("place"), log.c.leaf, withdrawals.c.slot, withdrawals.c.salt)
    .add_columns(sa.func.coalesce(_POSITION, 0).label("cluster"))
    .join_from(withdrawals, log, log.c.round_id == withdrawals.c.round_id)
    .where(withdrawals.c.erasure == sa.bindparam("erasure"), withdrawals.c.salt.is_not(None))
    .order_by(log.c.position, withdrawals.c.slot)
)


def withdrawn_by(connection: sa.Connection, erasure: int) -> list[Withdrawn]:
    """The slots that an erasure withdrew, in the order in which its leaf has them."""
    return [
        Withdrawn(row.place, _root_in(row.leaf), row.cluster, row.slot, row.salt)
        for row in connection.execute(_WITHDRAWN_BY, {"erasure": erasure})
    ]


def _root_in(leaf: str) -> bytes:
    """The root in the leaf of a round: all that is needed of it, and many are read at once."""
    return from_base64(json.loads(leaf)["root"], "the root of a round")
