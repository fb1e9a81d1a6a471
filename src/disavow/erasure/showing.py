"""What a proof shows of one round: the leaver's cluster, open, and as much of others as it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from disavow.ledger import Ledger, rows
from disavow.ledger.leaves import cluster_hashes, list_digests
from disavow.ledger.rounds import cluster_at
from disavow.ledger.schema import log as log_table
from disavow.ledger.withdrawn import Withdrawn
from disavow.proof.bounds import Bounds, bounds_of
from disavow.proof.leaves import Leaf, joined, list_entries, list_salt
from disavow.proof.merkle import path_to
from disavow.proof.reading import to_base64, write_decimal, write_figure


@dataclass(frozen=True, eq=False)
class ShownCluster:
    """A cluster's row, with the slots in it."""

    row: dict[str, Any]
    places: list[dict[str, Any]]
    bounds: Bounds

    @property
    def numbers(self) -> range:
        """The numbers of its slots."""
        return range(self.row["first_slot"], self.row["first_slot"] + self.row["size"])


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
        self._seed: bytes | None = row.list_key
        self._withdrawn, self._leaf_of = withdrawn, leaf_of

    def cluster_of(self, slot: int) -> ShownCluster:
        """The cluster that holds a slot."""
        row, places = cluster_at(self._connection, self._round_id, slot)
        tau = float(self._leaf["tau"])
        return ShownCluster(row, places, bounds_of(weight=row["weight"], spread=row["spread"], tau=tau))

    def show(self, cluster: ShownCluster, slot: int) -> Leaf:
        """The leaver's cluster, open."""
        odds = cluster.bounds.log10_odds
        neighbours = self._neighbours(cluster, slot)
        lenders = [other["position"] for other in neighbours["others"]] if neighbours else []
        return {
            **self._placed(cluster),
            "withdrawn": [self._entry(each, {cluster.row["position"], *lenders}) for each in self._withdrawn],
            "leaf": self._place,
            "slot": slot,
            "slots": [to_base64(place["commitment"]) for place in cluster.places],
            "neighbours": neighbours,
            "displacement": write_figure(cluster.bounds.displacement),
            "log10_odds": None if odds is None else write_figure(odds),
        }

    def _placed(self, cluster: ShownCluster) -> Leaf:
        position = cluster.row["position"]
        lists = self._lists(cluster)
        return {
            "position": position,
            "first": cluster.row["first_slot"],
            "size": cluster.row["size"],
            "weight": write_decimal(cluster.row["weight"]),
            "spread": write_decimal(cluster.row["spread"]),
            "lists": None if lists is None else to_base64(joined(lists)),
            "path": [to_base64(step) for step in path_to(self._hashes, position)],
        }

    def _entry(self, each: Withdrawn, shown: set[int]) -> Leaf:
        """A withdrawn slot, open if its cluster is shown."""
        is_open = each.position in shown
        return {
            "leaf": self._leaf_of[each.erasure],
            "position": each.position,
            "slot": each.slot if is_open else None,
            "salt": to_base64(each.salt) if is_open else None,
            "inner": None if is_open else to_base64(each.inner),
        }

    def _lists(self, cluster: ShownCluster) -> list[bytes] | None:
        if self._seed is None:
            return None
        return list_digests(self._leaf["participants"], cluster.places, self._seed)

    def _neighbours(self, cluster: ShownCluster, leaver: int) -> Leaf | None:
        """For `neighbourhood`: to each slot that has too few surviving mates, as many neighbours as it lacks."""
        lists = self._lists(cluster)
        if lists is None:
            return None
        gone = {each.slot for each in self._withdrawn} | {leaver}
        alike = cluster.row["spread"] <= float(self._leaf["delta"])
        listed, lent = [], set()
        for place in cluster.places:
            near = {n for n in cluster.numbers if n not in gone and (alike or n == place["slot"])}
            chosen = list(self._lacking(place, near, gone))
            listed.append([entry for entry, _ in chosen])
            lent |= {other for _, other in chosen if other not in cluster.numbers}
        if not any(listed):
            return None
        others = {c.row["position"]: c for c in map(self.cluster_of, sorted(lent))}
        return {
            "lists": [to_base64(each) for each in lists],
            "listed": listed,
            "others": [self._lender(others[position]) for position in sorted(others)],
        }

    def _lender(self, cluster: ShownCluster) -> Leaf:
        """Another cluster, its slots closed."""
        return {
            **self._placed(cluster),
            "slots": to_base64(joined(place["commitment"] for place in cluster.places)),
        }

    def _lacking(self, place: dict[str, Any], near: set[int], gone: set[int]) -> Iterator[tuple[Leaf, int]]:
        """Entries of a slot's list, the first that survive and are not counted yet, until x are reached."""
        if self._seed is None:
            return
        slot, needed = place["slot"], self._policy.x - len(near)
        neighbours = rows.unpack_slots(place["neighbours"], self._leaf["participants"])
        entries = list_entries(self._seed, slot, neighbours)
        for index, other in enumerate(neighbours):
            if needed <= 0:
                return
            if other in gone or other in near:
                continue
            needed -= 1
            yield (
                {
                    "slot": other,
                    "index": index,
                    "size": len(entries),
                    "salt": to_base64(list_salt(self._seed, slot, index)),
                    "path": [to_base64(step) for step in path_to(entries, index)],
                },
                other,
            )
