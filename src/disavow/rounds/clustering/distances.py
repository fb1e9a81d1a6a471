"""Distances between updates, good to 1e-6 relative whatever the size of the model.

Two models differ by 0.1 while their norms are 8: distances of whole models, the matrix-product shortcut in
float32 or TF32 lose exactly the digits that matter. Here they are taken between updates, relative to one of
them, in float64; and pairs that lie so close together that the shortcut would still cancel are taken again
among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from disavow.domain import Layout
from disavow.rounds.threads import in_threads

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_COLUMNS = 1 << 13
_NUMBERS = 1 << 23
"""So many coordinates, and of many rows so many numbers, are converted to float64 at a time, in every thread."""

_CLOSE = 1e-6
"""Below this ratio of squared distance to squared norms, a float64 matrix product loses too many digits."""


def squared_l2(vectors: Tensor, norms: Tensor | None = None) -> Tensor:
    """Compute the matrix of squared L2 distances between rows, in float64.

    With `norms`, rows are divided by them first: the squared distance is then 2·(1 - cosine).

    Args:
        vectors: One update a row.
        norms: What each row is divided by first; None: by nothing.

    """
    distances = _by_products(vectors, norms)
    for group in _close_groups(distances):
        # the first row is in no such group, so every step down has fewer rows and a smaller scale
        index = torch.as_tensor(group, device=vectors.device)
        part = None if norms is None else norms[index]
        distances[index[:, None], index] = squared_l2(vectors[index], part)
    return distances


def _by_products(vectors: Tensor, norms: Tensor | None) -> Tensor:
    """|a|² + |b|² - 2ab relative to the first row, so that equal rows are at distance 0 exactly."""

    def product(columns: slice) -> Tensor:
        block = vectors[:, columns].double()
        if norms is not None:
            block = block / norms[:, None]
        block = block - block[0]
        return block @ block.T

    gram = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device=vectors.device)
    # one after the other in the same order, however many threads work on them
    for part in in_pieces(product, _column_blocks(vectors), vectors):
        gram += part
    return _from_gram(gram)


def _column_blocks(vectors: Tensor) -> Iterator[slice]:
    """Slices that cover all columns. They depend on the numbers of rows and columns and on nothing else."""
    columns = min(_COLUMNS, max(1, _NUMBERS // max(1, len(vectors))))
    for start in range(0, vectors.shape[1], columns):
        yield slice(start, start + columns)


def in_pieces(work: Callable[[Piece], Result], pieces: Iterable[Piece], vectors: Tensor) -> Iterator[Result]:
    """Work on pieces of the updates, in order: on several threads where that pays, which changes no bit.

    Args:
        work: What is done with a piece.
        pieces: The pieces.
        vectors: The updates, whose size and place decide.

    Returns:
        The results, in order.

    """
    pays = vectors.device.type == "cpu" and vectors.numel() > _COLUMNS
    return in_threads(work, pieces) if pays else map(work, pieces)


def _from_gram(gram: Tensor) -> Tensor:
    own = gram.diagonal()
    distances = (own[:, None] + own - 2 * gram).clamp_(min=0)
    distances = (distances + distances.T) / 2
    return distances.fill_diagonal_(0)


def _close_groups(distances: Tensor) -> list[list[int]]:
    """Groups of rows linked by distances that the matrix product cannot be trusted with."""
    own = distances[0]  # squared norms relative to the first row
    doubtful = (distances < _CLOSE * (own[:, None] + own)).cpu().numpy()
    np.fill_diagonal(doubtful, val=False)
    if not doubtful.any():
        return []
    from scipy.sparse import csgraph, csr_matrix  # here: few rounds need it, and every command would wait for it

    count, labels = csgraph.connected_components(csr_matrix(doubtful), directed=False)
    groups = [np.flatnonzero(labels == label).tolist() for label in range(count)]
    return [group for group in groups if len(group) > 1]


def norms_of(vectors: Tensor) -> Tensor:
    """Compute the L2 norm of each row in float64; 1 for a row of zeros, which has no direction."""
    norms = lengths_of(vectors)
    return torch.where(norms > 0, norms, torch.ones_like(norms))


def lengths_of(vectors: Tensor) -> Tensor:
    """Compute the L2 norm of each row in float64."""
    norms = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    for start in range(0, vectors.shape[1], _COLUMNS):
        norms += vectors[:, start : start + _COLUMNS].double().square().sum(dim=1)
    return norms.sqrt()


def published(vectors: Tensor, layout: Layout) -> Tensor:
    """Compute the matrix of distances that the paper's scripts computed, for comparison only.

    The mean, over all last-axis rows of all tensors, of the L2 distance between corresponding rows. (One of
    the scripts took the cosine of whole models instead; it is not offered.)

    Args:
        vectors: One update a row.
        layout: Which numbers belong to which tensor.

    """
    count = sum(spec.size // max(1, spec.shape[-1] if spec.shape else 1) for spec in layout.tensors)
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device=vectors.device)
    for spec, start, end in layout.spans():
        rows = vectors[:, start:end].double().view(len(vectors), -1, spec.shape[-1] if spec.shape else 1)
        for i in range(len(vectors)):
            total[i] += (rows - rows[i]).norm(dim=2).sum(dim=1)
    return total / count
