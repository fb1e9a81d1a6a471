"""How the participants of a round are grouped: the methods, and the distances that they see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from disavow.domain.strategies import ClusteringSpec
from disavow.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from disavow.rounds.clustering.geometry import Geometry
    from disavow.rounds.randomness import Stream


class Clustering(ClusteringSpec):
    """A clustering method: `clustering.method` of the settings names it."""

    @classmethod
    def check(cls) -> None:
        """See `ClusteringSpec`. Refuse a class that does not say how to partition."""
        super().check()
        if cls.partition is Clustering.partition:
            raise ConfigError(f"clustering.method {cls.name!r} lacks partition")

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

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """See `Strategy`."""
        if method != "partition":
            return ""
        import torch

        _, items, k, _ = arguments
        if not isinstance(result, Sequence) or not all(
            isinstance(group, torch.Tensor) and group.dim() == 1 and not group.is_floating_point()
            for group in result
        ):
            return "no list of clusters; allowed: a list of tensors, each with the numbers of one cluster's members"
        sizes = [len(group) for group in result]
        everyone = sorted(number for group in result for number in group.tolist()) == sorted(items.tolist())
        if everyone and all(k <= size < 2 * k for size in sizes):
            return ""
        return f"clusters of sizes {sizes}; allowed: {k} to {2 * k - 1} members, everyone of {len(items)} once"
