"""What a clustering method sees of the updates: distances, exact for small rounds, projected for large ones.

Up to `PROJECTION_LIMIT` participants every pair is measured exactly. Above it, assignment works on a random
projection; the spreads that are recorded are always exact, and computed in `spread.py`.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from disavow.config import PROJECTION_LIMIT
from disavow.domain import Layout
from disavow.rounds.clustering.distances import in_pieces, norms_of, published, squared_l2
from disavow.rounds.randomness import Stream
from disavow.rounds.vectors import Updates, row_blocks

_DIMENSIONS = 64


class Geometry(Protocol):
    """Squared distances between participants, who are numbered in id order."""

    def from_point(self, point: int, others: Tensor) -> Tensor:
        """Return distances from one participant to each of `others`.

        Args:
            point: Its number.
            others: Numbers.

        Returns:
            As many distances as `others`.

        """

    def from_centre(self, members: Tensor) -> Tensor:
        """Return distances from the centre of `members` to each of them, up to one constant for all.

        Args:
            members: Numbers.

        Returns:
            As many distances as `members`, which can be compared with one another only.
        """

    def between(self, points: Tensor, others: Tensor) -> Tensor:
        """Return distances from each of `points` (rows) to each of `others` (columns).

        Args:
            points: Numbers.
            others: Numbers.

        Returns:
            A matrix of distances.

        """

    def coordinates(self) -> Tensor:
        """Points with these distances, one row each.

        Returns:
            A matrix with one row for each participant.
        """


class ExactGeometry:
    """All pairs, measured where the updates are; kept on the CPU too, where looking up a few of them is quicker."""

    def __init__(self, squared: Tensor) -> None:
        self.measured = squared
        self.squared = squared.cpu()
        self._numbers = self.squared.numpy()  # numpy looks up a few of them without waking threads

    def from_point(self, point: int, others: Tensor) -> Tensor:
        """See `Geometry`."""
        return torch.from_numpy(self._numbers[point, others.numpy()])

    def from_centre(self, members: Tensor) -> Tensor:
        """The mean squared distance to the members: that to their centre, plus the same for all."""
        inside = torch.zeros(len(self.squared), dtype=self.squared.dtype, device=self.squared.device)
        inside[members] = 1 / len(members)
        return (self.squared @ inside)[members]

    def between(self, points: Tensor, others: Tensor) -> Tensor:
        """See `Geometry`."""
        return torch.from_numpy(self._numbers[points.numpy()[:, None], others.numpy()])

    def coordinates(self) -> Tensor:
        """Classical scaling: as many dimensions as it takes to keep every distance."""
        centred = self.squared - self.squared.mean(dim=0)
        centred = -(centred - centred.mean(dim=1, keepdim=True)) / 2
        values, vectors = torch.linalg.eigh((centred + centred.T) / 2)
        keep = values > values.max() * 1e-12
        coordinates: Tensor = vectors[:, keep] * values[keep].sqrt()
        return coordinates


class ProjectedGeometry:
    """Points in few dimensions, whose distances are close to the real ones."""

    def __init__(self, points: Tensor) -> None:
        self.points = points

    def from_point(self, point: int, others: Tensor) -> Tensor:
        """See `Geometry`."""
        return (self.points[others] - self.points[point]).square().sum(dim=1)

    def from_centre(self, members: Tensor) -> Tensor:
        """See `Geometry`."""
        points = self.points[members]
        return (points - points.mean(dim=0)).square().sum(dim=1)

    def between(self, points: Tensor, others: Tensor) -> Tensor:
        """See `Geometry`."""
        return torch.cdist(
            self.points[points], self.points[others], compute_mode="donot_use_mm_for_euclid_dist"
        ).square()

    def coordinates(self) -> Tensor:
        """See `Geometry`."""
        return self.points


def geometry_of(updates: Updates, *, metric: str, layout: Layout, stream: Stream) -> Geometry:
    """Measure a round under a metric.

    Args:
        updates: The updates.
        metric: `l2`, `cosine` or `published`.
        layout: Which numbers belong to which tensor.
        stream: Draws the projection of a large round.

    Returns:
        Exact distances for small rounds, projected ones for large rounds.

    """
    if metric == "published":
        return ExactGeometry(published(updates.vectors, layout).square())
    norms = norms_of(updates.vectors) if metric == "cosine" else None
    if len(updates) <= PROJECTION_LIMIT:
        return ExactGeometry(squared_l2(updates.vectors, norms))
    return ProjectedGeometry(project(updates.vectors, norms, stream))


def project(vectors: Tensor, norms: Tensor | None, stream: Stream) -> Tensor:
    """Project rows to `_DIMENSIONS` dimensions (Johnson and Lindenstrauss), centred first to keep the digits.

    Args:
        vectors: One update a row.
        norms: What each row is divided by; None: by nothing.
        stream: Draws the projection.

    Returns:
        One point a row.

    """
    seed = stream.below(1 << 62)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(vectors.shape[1], _DIMENSIONS, generator=generator, dtype=torch.float64)
    matrix = matrix.to(vectors.device) / _DIMENSIONS**0.5
    origin = vectors[0].double()

    def projected(block: slice) -> Tensor:
        rows = vectors[block].double()
        points: Tensor = (rows - origin if norms is None else rows / norms[block, None]) @ matrix
        return points

    return torch.cat(list(in_pieces(projected, row_blocks(vectors), vectors)))
