"""What a round records about likeness: the exact spread of every cluster, and every slot's neighbours within Δ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from disavow.config import PROJECTION_LIMIT
from disavow.federation.clustering.distances import in_pieces, squared_l2
from disavow.federation.clustering.geometry import ExactGeometry, Geometry, ProjectedGeometry, project
from disavow.federation.randomness import Stream

_CANDIDATES = 3
"""Large rounds look for neighbours of a cluster among this many times k participants next to it."""

_NOT_LISTED = 2
"""Where those stand who are not within Δ: behind a cluster's own (0) and others (1)."""


def l2_geometry(vectors: Tensor, metric: str, geometry: Geometry, stream: Stream) -> Geometry:
    """The geometry by L2 distance, which is the one given when the metric is l2 already."""
    if metric == "l2":
        return geometry
    if len(vectors) <= PROJECTION_LIMIT:
        return ExactGeometry(squared_l2(vectors))
    return ProjectedGeometry(project(vectors, None, stream))


def spreads(vectors: Tensor, geometry: Geometry, clusters: Sequence[Tensor]) -> list[float]:
    """Each cluster's largest L2 distance between two members, exact."""
    return [math.sqrt(float(_pairs(vectors, geometry, members).max())) for members in clusters]


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
    cluster_of = torch.full((len(vectors),), -1)
    for number, members in enumerate(clusters):
        cluster_of[members] = number
    if isinstance(geometry, ExactGeometry):
        everyone = torch.arange(len(vectors))
        return _first(geometry.measured, everyone, everyone, cluster_of, delta, 2 * k)
    lists: list[list[int]] = [[] for _ in range(len(vectors))]
    points = geometry.coordinates()
    squares = points.square().sum(dim=1)

    def around(members: Tensor) -> list[list[int]]:
        joined = torch.cat([members, _candidates(points, squares, members, k)])
        squared = squared_l2(vectors[joined.to(vectors.device)])[: len(members)]
        # the very numbers that the spread was taken from, or the widest pair could miss Δ by a bit
        squared[:, : len(members)] = _pairs(vectors, geometry, members)
        return _first(squared.cpu(), members, joined, cluster_of, delta, 2 * k)

    for members, found in zip(clusters, in_pieces(around, clusters, vectors), strict=True):
        for item, listed in zip(members.tolist(), found, strict=True):
            lists[item] = listed
    return lists


def _first(
    squared: Tensor, members: Tensor, others: Tensor, cluster_of: Tensor, delta: float, count: int
) -> list[list[int]]:
    """For each member (a row of `squared`) the first of the others (its columns) who are within Δ."""
    members, others, cluster_of = (each.to(squared.device) for each in (members, others, cluster_of))
    rank = (cluster_of[members, None] != cluster_of[others]).to(torch.int8)
    rank = torch.where((squared <= largest_square(delta)) & (members[:, None] != others), rank, _NOT_LISTED)
    by_distance = squared.argsort(dim=1, stable=True)
    by_rank = rank.gather(1, by_distance).argsort(dim=1, stable=True)
    first = others[by_distance.gather(1, by_rank)[:, :count]].tolist()
    lengths = (rank != _NOT_LISTED).sum(dim=1).tolist()
    return [listed[:length] for listed, length in zip(first, lengths, strict=True)]


def largest_square(delta: float) -> float:
    """The largest number whose root is at most Δ. The root of a tensor may end in another bit than a number's.

    >>> largest_square(3.0), largest_square(0.1)
    (9.0, 0.010000000000000002)
    """
    square = delta * delta
    while math.sqrt(square) > delta:
        square = math.nextafter(square, 0)
    while square < math.inf and math.sqrt(math.nextafter(square, math.inf)) <= delta:
        square = math.nextafter(square, math.inf)
    return square


def _candidates(points: Tensor, squares: Tensor, members: Tensor, k: int) -> Tensor:
    """The participants outside a cluster that lie nearest to its centre. `squares`: lengths of points, squared."""
    centre = points[members].mean(dim=0)
    # the squared distance, but for the centre's own square, which is the same for all
    nearness = torch.addmv(squares, points, centre, alpha=-2)
    nearness[members] = torch.inf
    count = min(_CANDIDATES * k, len(points) - len(members))
    return torch.topk(nearness, count, largest=False).indices.sort().values.cpu()
