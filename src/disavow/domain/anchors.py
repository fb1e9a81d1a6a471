"""Fixed clusters, anchored: what is settled before the first round and never moves when somebody leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Anchor:
    """One fixed cluster. `until` is its upper border in hash order, exclusive; the last cluster has none.

    `capacity` is how many clients it was ever given: those who leave leave a gap. `share` is the sum of the size
    classes of all who ever returned an update. Neither is ever taken away from.
    """

    until: bytes | None
    capacity: int
    share: int = 0


@dataclass(frozen=True)
class Place:
    """Where a client is: the number of its cluster, and its size class once it has returned an update."""

    cluster: int
    share: int | None = None


@dataclass(frozen=True)
class Anchors:
    """All fixed clusters of a run, in hash order, and the places of those clients who are still in it.

    Nothing here tells of a leaver who it was: a border is a value drawn between two clients' hashes.
    """

    clusters: tuple[Anchor, ...]
    assignments: Mapping[str, Place]

    def joined(self, newcomers: Mapping[str, bytes]) -> Anchors:
        """Return anchors with a place for each newcomer, in the cluster whose interval its hash falls into."""
        borders = [anchor.until for anchor in self.clusters if anchor.until is not None]
        new = {client: Place(bisect_right(borders, at)) for client, at in newcomers.items()}
        counts = Counter(place.cluster for place in new.values())
        grown = [
            replace(anchor, capacity=anchor.capacity + counts[number])
            for number, anchor in enumerate(self.clusters)
        ]
        return Anchors(tuple(grown), {**self.assignments, **new})

    def counted(self, classes: Mapping[str, int]) -> Anchors:
        """Return anchors with the size classes of clients whose first update has arrived; later ones change
        nothing.
        """
        new = {client: classes[client] for client in classes if self.assignments[client].share is None}
        if not new:
            return self
        grown = list(self.clusters)
        for client, share in new.items():
            number = self.assignments[client].cluster
            grown[number] = replace(grown[number], share=grown[number].share + share)
        changed = {client: replace(self.assignments[client], share=share) for client, share in new.items()}
        return Anchors(tuple(grown), {**self.assignments, **changed})

    def without(self, leavers: Iterable[str]) -> Anchors:
        """Return the same clusters once these have left: gaps where they were."""
        gone = set(leavers)
        return replace(
            self, assignments={client: at for client, at in self.assignments.items() if client not in gone}
        )


@dataclass(frozen=True)
class TakingPart:
    """The fixed clusters that take part in a round: all anchors of the run, and the numbers of these."""

    anchors: Anchors
    numbers: Sequence[int]
