"""What a round records about likeness: the exact spread of every cluster, and every slot's neighbours within Δ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from disavow.config import PROJECTION_LIMIT
from disavow.federation.clustering.distances import squared_l2
from disavow.federation.clustering.geometry import ExactGeometry, Geometry, ProjectedGeometry, project
from disavow.federation.randomness import Stream

Distances = npt.NDArray[np.float64]

_CANDIDATES = 3
"""Large rounds look for neighbours of a cluster among this many times k participants next to it."""


def l2_geometry(vectors: Tensor, metric: str, geometry: Geometry, stream: Stream) -> Geometry:
    """The geometry by L2 distance, which is the one given when the metric is l2 already."""
    if metric == "l2":
        return geometry
    if len(vectors) <= PROJECTION_LIMIT:
        return ExactGeometry(squared_l2(vectors))
    return ProjectedGeometry(project(vectors, None, stream))


def spreads(vectors: Tensor, geometry: Geometry, clusters: Sequence[Tensor]) -> list[float]:
    """Each cluster's largest L2 distance between two members, exact."""
    return [float(_pairs(vectors, geometry, members).max().sqrt()) for members in clusters]


def _pairs(vectors: Tensor, geometry: Geometry, members: Tensor) -> Tensor:
    if isinstance(geometry, ExactGeometry):
        return geometry.between(members, members)
    return squared_l2(vectors[members.to(vectors.device)])


def neighbours(
    vectors: Tensor, geometry: Geometry, clusters: Sequence[Tensor], *, delta: float, k: int
) -> list[list[int]]:
    """For each participant those within Δ: its own cluster's first, then the nearest; at most 2k.

    A large round compares each cluster only with the participants that the projection puts next to it. That
    can leave a neighbour unlisted, never list one that is not: unlisted means no neighbour.
    """
    lists: list[list[int]] = [[] for _ in range(len(vectors))]
    everyone = torch.arange(len(vectors))
    for members in clusters:
        if isinstance(geometry, ExactGeometry):
            others, squared = everyone, geometry.between(members, everyone)
        else:
            others = _candidates(geometry, members, everyone, k)
            joined = torch.cat([members, others])
            squared = squared_l2(vectors[joined.to(vectors.device)])[: len(members)]
            # the very numbers that the spread was taken from, or the widest pair could miss Δ by a bit
            squared[:, : len(members)] = _pairs(vectors, geometry, members)
            others = joined
        squared = squared.cpu()
        near = squared.sqrt() <= delta  # PyTorch's root, as for the spread: numpy's is another in the last bit
        distances = np.where(near.numpy(), squared.numpy(), np.inf)
        numbers, inside = others.numpy(), np.isin(others.numpy(), members.numpy())
        own, rest = np.flatnonzero(inside), np.flatnonzero(~inside)
        within, outside = distances[:, own], distances[:, rest]
        # all that could be among the first: sorting everyone would take most of a large round's time
        most = min(2 * k, len(rest)) - 1
        bound = np.partition(outside, most, axis=1)[:, most, None] if len(rest) else np.zeros((len(members), 1))
        close = outside <= bound
        for row, item in enumerate(members.tolist()):
            listed = own[_nearest(within[row])]
            listed = listed[numbers[listed] != item]
            some = np.flatnonzero(close[row])
            farther = rest[some[_nearest(outside[row, some])]]
            lists[item] = numbers[np.concatenate([listed, farther])][: 2 * k].tolist()
    return lists


def _nearest(distances: Distances) -> npt.NDArray[np.int64]:
    """Where the finite distances are, the smallest first, ties in order."""
    order = np.argsort(distances, kind="stable")
    return order[np.isfinite(distances[order])]


def _candidates(geometry: Geometry, members: Tensor, everyone: Tensor, k: int) -> Tensor:
    """The participants outside a cluster that lie nearest to its centre."""
    points = geometry.coordinates()
    centre = points[members].mean(dim=0)
    squared = (points - centre).square().sum(dim=1)
    squared[members] = torch.inf
    count = min(_CANDIDATES * k, len(everyone) - len(members))
    return torch.topk(squared, count, largest=False).indices.sort().values.cpu()
