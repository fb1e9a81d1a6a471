"""k-means with bounds on the cluster sizes, as in the paper's experiments.

Bradley, Bennett and Demiriz, "Constrained k-means clustering" (2000), as implemented by the package
k-means-constrained. That package rounds every cost (a distance) to 1e-3 and keeps it in 32 bits, so it is given
the points in as few dimensions as keep their distances, scaled so that the rounding is 1e-8 of the largest
distance.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from disavow.errors import MissingExtra, how_to_install
from disavow.rounds.clustering import Clustering

if TYPE_CHECKING:
    from torch import Tensor

    from disavow.rounds.clustering.geometry import Geometry
    from disavow.rounds.randomness import Stream

_LARGEST_DISTANCE = 2e5
"""Times 1,000 this fits in 32 bits with room to spare."""


class ConstrainedKMeans(Clustering):
    """See `constrained_kmeans`."""

    name = "constrained-kmeans"

    def require(self) -> None:
        """See `ClusteringSpec`."""
        if find_spec("k_means_constrained") is None:
            raise MissingExtra(
                f'clustering.method "{self.name}" needs k-means-constrained; {how_to_install("kmeans")}'
            )

    def partition(self, geometry: Geometry, items: Tensor, k: int, stream: Stream) -> list[Tensor]:
        """See `Clustering`."""
        return constrained_kmeans(geometry, items, k, stream)


def constrained_kmeans(geometry: Geometry, items: Tensor, k: int, stream: Stream) -> list[Tensor]:
    """Partition participants into floor(n/k) clusters of at least k and fewer than 2k.

    Args:
        geometry: Their distances.
        items: Their numbers.
        k: The fewest members.
        stream: Seeds the method.

    Returns:
        The members of each cluster.

    Raises:
        MissingExtra: The package is not installed.

    """
    ConstrainedKMeans().require()
    import torch
    from k_means_constrained import KMeansConstrained
    from threadpoolctl import threadpool_limits

    count = len(items) // k
    if count == 1:
        return [items]
    points = geometry.coordinates()[items].double().cpu()
    points = points - points.mean(dim=0)
    radius = points.norm(dim=1).max()
    if radius > 0:
        points = points * (_LARGEST_DISTANCE / (2 * radius))
    else:
        points = torch.zeros(len(items), 1, dtype=torch.float64)  # all alike: any partition is as good
    method = KMeansConstrained(
        n_clusters=count,
        size_min=k,
        size_max=2 * k - 1,
        random_state=stream.below(1 << 31),
        n_init=3,
        n_jobs=1,
    )
    with threadpool_limits(1):  # the package computes with numpy, whose threads are not torch's
        labels = torch.from_numpy(method.fit_predict(points.numpy()))
    return [items[labels == label] for label in range(count)]
