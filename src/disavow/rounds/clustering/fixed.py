"""Clusters of clients in a secret order, settled once, before any data is seen, and anchored: when a client leaves,
its place is left empty, and borders, places and weights stay as they are. Under these clusters alone the draw of
representatives amplifies privacy unconditionally, and a removal changes nothing but the leaver's own contribution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from disavow.domain import Anchor, Anchors, Place
from disavow.rounds.clustering import Clustering
from disavow.rounds.randomness import Stream, derive

if TYPE_CHECKING:
    from torch import Tensor

_BITS = 256


class Fixed(Clustering):
    """The anchored clusters of a run; no round partitions anything. Some of their places may be gaps."""

    name = "fixed"
    anchored = True
    sticky = False

    def sizes(self, k: int) -> tuple[int, int | None]:
        """See `ClusteringSpec`: clusters keep their borders when clients leave or join."""
        del k
        return 1, None

    def fewest_participants(self, k: int) -> int:
        """See `ClusteringSpec`: clusters are there already."""
        del k
        return 1


def position_by_seed(seed: int) -> Callable[[str], bytes]:
    """Order clients by a hash of seed and id: for seeded draws, where whoever knows the seed knows all anyway."""
    return lambda client: derive("fixed", seed, client)


def settled(clients: Collection[str], k: int, position: Callable[[str], bytes], stream: Stream) -> Anchors:
    """Anchor floor(n/k) clusters, as equal as can be, in the order of clients' positions.

    Each border is drawn between the positions of its two neighbours: where it was one of these, whoever can work
    out positions could tell from it, for ever, that its client was here.

    Args:
        clients: At least k ids.
        k: The fewest places of a cluster.
        position: Where each client stands: `position_by_seed`, or secret (`participation.SecretOrder`).
        stream: Where borders are drawn from.

    Returns:
        The anchors, with a place for each client.

    """
    at = {client: position(client) for client in clients}
    order = sorted(at, key=lambda client: (at[client], client))
    count = len(order) // k
    starts = [len(order) * number // count for number in range(count + 1)]
    anchors = []
    for start, end in pairwise(starts):
        border = None
        if end < len(order):
            border = _between(at[order[end - 1]], at[order[end]], stream)
        anchors.append(Anchor(border, end - start))
    assignments = {client: Place(number) for number, (a, b) in enumerate(pairwise(starts)) for client in order[a:b]}
    return Anchors(tuple(anchors), assignments)


def _between(low: bytes, high: bytes, stream: Stream) -> bytes:
    """A value drawn above `low` and below `high`."""
    first, last = (int.from_bytes(each, "big") for each in (low, high))
    drawn = int.from_bytes(stream.words(_BITS // 64).tobytes(), "little")
    return (first + 1 + (max(0, last - first - 1) * drawn >> _BITS)).to_bytes(_BITS // 8, "big")


def groups_of(clients: Sequence[str], anchors: Anchors, numbers: Sequence[int]) -> list[Tensor]:
    """Find which of these clients are in each of these clusters; none, where all of its places are gaps.

    Args:
        clients: Ids, in order.
        anchors: The anchors of the run.
        numbers: The clusters that take part.

    Returns:
        The clients' numbers in that order, a tensor for each cluster.

    Raises:
        ValueError: A client of another cluster is among them.

    """
    import torch

    found: dict[int, list[int]] = {number: [] for number in numbers}
    for i, client in enumerate(clients):
        if (number := anchors.assignments[client].cluster) not in found:
            raise ValueError(f"a client of fixed cluster {number} returned an update, and it takes no part")
        found[number].append(i)
    return [torch.tensor(found[number], dtype=torch.long) for number in numbers]
