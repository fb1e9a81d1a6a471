"""How the participants of a round are grouped: the methods, and the distances that they see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disavow.domain.strategies import ClusteringSpec

if TYPE_CHECKING:
    from torch import Tensor

    from disavow.rounds.clustering.geometry import Geometry
    from disavow.rounds.randomness import Stream


class Clustering(ClusteringSpec):
    """A clustering method: `clustering.method` of the settings names it."""

    def partition(self, geometry: Geometry, items: Tensor, k: int, stream: Stream) -> list[Tensor]:
        """Partition participants into clusters of at least k and fewer than 2k.

        The same arguments must give the same clusters: rounds that are trained again rely on it.

        Args:
            geometry: Distances between participants, who are numbered in id order.
            items: The numbers to partition, ascending; at least k of them.
            k: The fewest members of a cluster.
            stream: Where random numbers come from, the same whenever this round is run.

        Returns:
            The numbers of each cluster's members.

        """
        raise NotImplementedError
