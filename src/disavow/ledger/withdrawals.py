"""The map of withdrawals: which slots of which rounds were withdrawn, by which erasure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.schema import (
    clusters,
    withdrawals,
)
from disavow.proof.leaves import UNTOUCHED, sized, withdrawn_entry, withdrawn_inner
from disavow.proof.merkle import root_of


@dataclass(frozen=True)
class Withdrawn:
    """A slot that was withdrawn: by which erasure, from which cluster; a rebuilt round counts as cluster 0."""

    erasure: int
    position: int
    slot: int
    salt: bytes

    @property
    def inner(self) -> bytes:
        """The slot, closed."""
        return withdrawn_inner(self.salt, self.slot)

    @property
    def entry(self) -> bytes:
        """Its leaf hash among those of its round."""
        return withdrawn_entry(self.position, self.inner)


def withdrawn_slots(connection: sa.Connection) -> dict[int, list[Withdrawn]]:
    """All slots that were withdrawn, by the row of their round, in the order in which the log has them."""
    position = (
        sa.select(clusters.c.position)
        .where(clusters.c.round_id == withdrawals.c.round_id, clusters.c.first_slot <= withdrawals.c.slot)
        .order_by(clusters.c.first_slot.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(withdrawals, sa.func.coalesce(position, 0).label("position"))
    query = query.where(withdrawals.c.salt.is_not(None))
    query = query.order_by(withdrawals.c.round_id, withdrawals.c.erasure, withdrawals.c.slot)
    found: defaultdict[int, list[Withdrawn]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.round_id].append(Withdrawn(row.erasure, row.position, row.slot, row.salt))
    return dict(found)


def map_of(
    logged: Sequence[tuple[int, int, int]], withdrawn: Mapping[int, Sequence[Withdrawn]], erasure: int
) -> list[bytes]:
    """The value of each of these rounds in the map of withdrawals, up to and with an erasure."""
    values = []
    for _, round_id, _ in logged:
        entries = [each.entry for each in withdrawn.get(round_id, ()) if each.erasure <= erasure]
        values.append(sized(len(entries), root_of(entries)) if entries else UNTOUCHED)
    return values
