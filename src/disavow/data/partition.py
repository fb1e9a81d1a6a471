"""Who holds which samples. Every client holds at least one, and every sample is held once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from disavow.data.dataset import Indices
from disavow.rounds.randomness import Stream

Labels = npt.NDArray[np.int64]
Partition = Callable[[Labels, int, float, Stream], list[Indices]]


def held_out(count: int, fraction: float, stream: Stream) -> tuple[Indices, Indices]:
    """Draw the samples to train on and those held out, at least one of either.

    Args:
        count: How many there are.
        fraction: The share that is held out.
        stream: What is drawn from.

    Returns:
        Sorted indices of both.
    """
    order = stream.permutation(count)
    held = min(max(1, round(count * fraction)), count - 1)
    return np.sort(order[held:]), np.sort(order[:held])


def iid(labels: Labels, clients: int, alpha: float, stream: Stream) -> list[Indices]:  # noqa: ARG001
    """Deal equal shares of a shuffled whole.

    Args:
        labels: One a sample.
        clients: How many.
        alpha: Plays no part.
        stream: What is drawn from.

    Returns:
        The indices that each client holds.
    """
    return [np.sort(part) for part in np.array_split(stream.permutation(len(labels)), clients)]


def quantity(labels: Labels, clients: int, alpha: float, stream: Stream) -> list[Indices]:
    """Deal unequal sizes, by a symmetric Dirichlet distribution; labels are spread evenly.

    Args:
        labels: One a sample.
        clients: How many.
        alpha: Concentration; a small one is unequal.
        stream: What is drawn from.

    Returns:
        The indices that each client holds.
    """
    shares = stream.generator().dirichlet(np.full(clients, alpha))
    bounds = np.round(np.cumsum(shares)[:-1] * len(labels)).astype(np.int64)
    return nobody_empty(np.split(stream.permutation(len(labels)), bounds))


def dirichlet(labels: Labels, clients: int, alpha: float, stream: Stream) -> list[Indices]:
    """Deal unequal labels: each class is spread over the clients by its own Dirichlet distribution.

    T. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data distribution for federated
    visual classification" (2019).

    Args:
        labels: One a sample.
        clients: How many.
        alpha: Concentration; a small one is unequal.
        stream: What is drawn from.

    Returns:
        The indices that each client holds.
    """
    generator = stream.generator()
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        of_class = generator.permutation(np.flatnonzero(labels == label))
        bounds = np.cumsum(generator.dirichlet(np.full(clients, alpha)))[:-1] * len(of_class)
        for client, part in enumerate(np.split(of_class, np.round(bounds).astype(np.int64))):
            held[client].append(part)
    return nobody_empty([np.concatenate(parts) for parts in held])


def nobody_empty(parts: list[Indices]) -> list[Indices]:
    """Give each client without a sample one from whoever holds most.

    Args:
        parts: The indices that each client holds.

    Returns:
        The same, sorted.
    """
    for client in range(len(parts)):
        if len(parts[client]) == 0:
            richest = max(range(len(parts)), key=lambda i: len(parts[i]))
            parts[client], parts[richest] = parts[richest][:1], parts[richest][1:]
    return [np.sort(part) for part in parts]


PARTITIONS: dict[str, Partition] = {"iid": iid, "quantity": quantity, "dirichlet": dirichlet}
