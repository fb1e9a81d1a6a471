"""How alike the updates of a round are: the exact spread of every cluster, and the share of all pairs within Δ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from disavow.config import PROJECTION_LIMIT
from disavow.rounds.clustering.distances import squared_l2
from disavow.rounds.clustering.geometry import ExactGeometry, Geometry, ProjectedGeometry, project
from disavow.rounds.randomness import Stream


def l2_geometry(vectors: Tensor, metric: str, geometry: Geometry, stream: Stream) -> Geometry:
    """Return the geometry by L2 distance, which is the one given when the metric is l2 already.

    Args:
        vectors: One update a row.
        metric: That of `geometry`.
        geometry: What clustering sees.
        stream: Draws the projection of a large round.

    """
    if metric == "l2":
        return geometry
    if len(vectors) <= PROJECTION_LIMIT:
        return ExactGeometry(squared_l2(vectors))
    return ProjectedGeometry(project(vectors, None, stream))


def spreads(
    vectors: Tensor, geometry: Geometry, clusters: Sequence[Tensor], averaged: Sequence[tuple[int, int]] = ()
) -> list[float]:
    """Compute each cluster's largest L2 distance between two members, exactly.

    `averaged` are the stretches that are released as a mean over the whole cluster (running statistics). One pair
    of members may differ most in them and another pair in the rest, so the two largest squared distances are added:
    the spread is then at least the largest distance between two members.

    Args:
        vectors: One update a row.
        geometry: Their L2 distances, exact or projected.
        clusters: The members of each cluster.
        averaged: Stretches that are released as a mean over the cluster.

    Returns:
        One spread a cluster.

    """
    columns = torch.cat([torch.arange(start, end) for start, end in averaged]) if averaged else None
    found = []
    for members in clusters:
        squared = _pairs(vectors, geometry, members)
        if columns is None:
            found.append(math.sqrt(float(squared.max())))
            continue
        part = squared_l2(vectors[members.to(vectors.device)][:, columns.to(vectors.device)]).to(squared.device)
        found.append(math.sqrt(float((squared - part).clamp_(min=0).max() + part.max())))
    return found


def _pairs(vectors: Tensor, geometry: Geometry, members: Tensor) -> Tensor:
    if isinstance(geometry, ExactGeometry):
        return geometry.between(members, members)
    return squared_l2(vectors[members.to(vectors.device)])


def share_within(vectors: Tensor, geometry: Geometry, delta: float) -> float:
    """Compute the share of all pairs of updates that are within Δ of each other; 1 where there is one update only.

    Of a large round, the pairs among `PROJECTION_LIMIT` updates at even steps in id order.

    Args:
        vectors: One update a row.
        geometry: Their L2 distances.
        delta: Δ.

    Returns:
        A share from 0 to 1.

    """
    if isinstance(geometry, ExactGeometry):
        squared = geometry.squared
    else:
        step = len(vectors) / PROJECTION_LIMIT
        sample = torch.tensor([int(i * step) for i in range(PROJECTION_LIMIT)], device=vectors.device)
        squared = squared_l2(vectors[sample])
    count = len(squared)
    if count == 1:
        return 1.0
    within = int((squared <= largest_square(delta)).sum()) - count  # each with itself
    return within / (count * (count - 1))


def largest_square(delta: float) -> float:
    """Find the largest number whose root is at most Δ; the root of a tensor may end in another bit than a number's.

    >>> largest_square(3.0), largest_square(0.1)
    (9.0, 0.010000000000000002)
    """
    square = delta * delta
    while math.sqrt(square) > delta:
        square = math.nextafter(square, 0)
    while square < math.inf and math.sqrt(math.nextafter(square, math.inf)) <= delta:
        square = math.nextafter(square, math.inf)
    return square
