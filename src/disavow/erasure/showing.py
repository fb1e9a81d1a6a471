"""What a proof shows of one round: the leaver's cluster, open, and every withdrawn slot, closed where not in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from disavow.ledger import Ledger
from disavow.ledger.leaves import cluster_hashes
from disavow.ledger.rounds import cluster_at
from disavow.ledger.schema import log as log_table
from disavow.ledger.withdrawn import Withdrawn
from disavow.proof.bounds import Bounds, bounds_of
from disavow.proof.leaves import Leaf
from disavow.proof.merkle import path_to
from disavow.proof.reading import to_base64, write_decimal, write_figure


@dataclass(frozen=True, eq=False)
class ShownCluster:
    """A cluster's row, with the slots in it."""

    row: dict[str, Any]
    places: list[dict[str, Any]]
    bounds: Bounds


class Shower:
    """Shows clusters of one round: what is open, and what leads to the roots."""

    def __init__(
        self,
        connection: sa.Connection,
        ledger: Ledger,
        place: int,
        round_id: int,
        withdrawn: list[Withdrawn],
        leaf_of: dict[int, int],
    ) -> None:
        self._connection, self._policy, self._place, self._round_id = connection, ledger.policy, place, round_id
        row = connection.execute(sa.select(log_table).where(log_table.c.position == place)).one()
        self._leaf: Leaf = json.loads(row.leaf)
        self._hashes = cluster_hashes(row.clusters)
        self._withdrawn, self._leaf_of = withdrawn, leaf_of

    def cluster_of(self, slot: int) -> ShownCluster:
        """The cluster that holds a slot."""
        row, places = cluster_at(self._connection, self._round_id, slot)
        bounds = bounds_of(
            weight=row["weight"],
            spread=row["spread"],
            tau=float(self._leaf["tau"]),
            representatives=self._policy.representatives,
        )
        return ShownCluster(row, places, bounds)

    def show(self, cluster: ShownCluster, slot: int) -> Leaf:
        """The leaver's cluster, open."""
        odds, position = cluster.bounds.log10_odds, cluster.row["position"]
        return {
            "leaf": self._place,
            "position": position,
            "first": cluster.row["first_slot"],
            "size": cluster.row["size"],
            "weight": write_decimal(cluster.row["weight"]),
            "spread": write_decimal(cluster.row["spread"]),
            "path": [to_base64(step) for step in path_to(self._hashes, position)],
            "slot": slot,
            "slots": [to_base64(place["commitment"]) for place in cluster.places],
            "withdrawn": [self._entry(each, is_open=each.position == position) for each in self._withdrawn],
            "displacement": write_figure(cluster.bounds.displacement),
            "log10_odds": None if odds is None else write_figure(odds),
        }

    def _entry(self, each: Withdrawn, *, is_open: bool) -> Leaf:
        """A withdrawn slot, open if it is of the leaver's cluster."""
        return {
            "leaf": self._leaf_of[each.erasure],
            "position": each.position,
            "slot": each.slot if is_open else None,
            "salt": to_base64(each.salt) if is_open else None,
            "inner": None if is_open else to_base64(each.inner),
        }
