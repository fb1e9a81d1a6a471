"""What a proof shows of one round: the leaver's cluster, open, and every withdrawn slot, closed where not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disavow.ledger import Reader
from disavow.ledger.rounds import StoredCluster
from disavow.ledger.withdrawn import Withdrawn
from disavow.proof.bounds import Bounds, bounds_of
from disavow.proof.leaves import Leaf
from disavow.proof.merkle import path_to
from disavow.proof.reading import to_base64, write_decimal, write_figure


@dataclass(frozen=True, eq=False)
class ShownCluster:
    """A cluster, and what it says about who was drawn."""

    stored: StoredCluster
    bounds: Bounds


class ClusterOpener:
    """Opens clusters of one round for a proof, with what leads to the roots."""

    def __init__(
        self,
        reader: Reader,
        place: int,
        round_id: int,
        withdrawn: Sequence[Withdrawn],
        leaf_of: Mapping[int, int],
    ) -> None:
        self._reader, self._place, self._round_id = reader, place, round_id
        self._logged = reader.logged_round(place)
        self._withdrawn, self._leaf_of = withdrawn, leaf_of

    def cluster_of(self, slot: int) -> ShownCluster:
        """The cluster that holds a slot."""
        stored = self._reader.cluster_at(self._round_id, slot)
        bounds = bounds_of(
            weight=stored.weight,
            spread=stored.spread,
            tau=float(self._logged.leaf["tau"]),
            representatives=self._reader.policy.representatives,
        )
        return ShownCluster(stored, bounds)

    def show(self, cluster: ShownCluster, slot: int) -> Leaf:
        """The leaver's cluster, open."""
        odds, stored = cluster.bounds.log10_odds, cluster.stored
        return {
            "leaf": self._place,
            "position": stored.position,
            "first": stored.first_slot,
            "size": stored.size,
            "weight": write_decimal(stored.weight),
            "spread": write_decimal(stored.spread),
            "path": [to_base64(step) for step in path_to(self._logged.cluster_hashes, stored.position)],
            "slot": slot,
            "slots": [to_base64(commitment) for commitment in stored.commitments],
            "withdrawn": [self._entry(each, is_open=each.position == stored.position) for each in self._withdrawn],
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
