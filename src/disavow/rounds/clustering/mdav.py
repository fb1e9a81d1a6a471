"""MDAV: maximum distance to average vector, the standard microaggregation of statistical disclosure control.

Domingo-Ferrer and Torra, "Ordinal, continuous and heterogeneous k-anonymity through microaggregation", Data
Mining and Knowledge Discovery 11 (2005). All clusters have k members but the last, which has fewer than 2k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disavow.rounds.clustering import Clustering

if TYPE_CHECKING:
    from torch import Tensor

    from disavow.rounds.clustering.geometry import Geometry
    from disavow.rounds.randomness import Stream


class Mdav(Clustering):
    """See `mdav`."""

    name = "mdav"

    def partition(self, geometry: Geometry, items: Tensor, k: int, stream: Stream) -> list[Tensor]:
        """See `Clustering`; draws nothing."""
        del stream
        return mdav(geometry, items, k)


def mdav(geometry: Geometry, items: Tensor, k: int) -> list[Tensor]:
    """Partition participants; ties go to the lower number.

    Numbers of participants stay on the CPU; only distances are where the updates are.

    Args:
        geometry: Their distances.
        items: At least k ascending numbers.
        k: The fewest members.

    Returns:
        The members of each cluster.

    """
    import torch

    left = items
    clusters: list[Tensor] = []

    def take_around(point: int) -> None:
        nonlocal left
        order = torch.argsort(geometry.from_point(point, left), stable=True).cpu()
        clusters.append(left[order[:k]].sort().values)
        rest = torch.ones(len(left), dtype=torch.bool)
        rest[order[:k]] = False
        left = left[rest]

    def farthest_from_centre() -> int:
        return int(left[int(geometry.from_centre(left).argmax())])

    while len(left) >= 3 * k:
        one = farthest_from_centre()
        other = int(left[int(geometry.from_point(one, left).argmax())])
        take_around(one)
        # `other` may be among the nearest of `one` when points coincide; the farthest that is left serves then
        take_around(other if bool((left == other).any()) else farthest_from_centre())
    if len(left) >= 2 * k:
        take_around(farthest_from_centre())
    clusters.append(left)
    return clusters
