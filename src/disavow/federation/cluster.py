"""③ Cluster: partition the participants into groups of at least k and fewer than 2k who look alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from disavow.domain import Layout, Policy, size_class
from disavow.federation.clustering.alike import l2_geometry, neighbours, spreads
from disavow.federation.clustering.fixed import fixed
from disavow.federation.clustering.geometry import Geometry, geometry_of
from disavow.federation.clustering.kmeans import constrained_kmeans
from disavow.federation.clustering.mdav import mdav
from disavow.federation.clustering.sticky import sticky
from disavow.federation.randomness import training_stream
from disavow.federation.threads import one_thread
from disavow.federation.vectors import Updates


@dataclass(frozen=True)
class Clusters:
    """A partition of a round's participants, who are numbered in id order.

    Clusters are sorted by their first member. `delta` is how near counted as alike in this round.
    """

    members: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    spreads: tuple[float, ...]
    neighbours: tuple[tuple[int, ...], ...]
    delta: float


def cluster(
    updates: Updates,
    *,
    policy: Policy,
    layout: Layout,
    previous: Sequence[Sequence[str]],
    seed: int,
    round_number: int,
) -> Clusters:
    """Cluster updates that are in id order. `previous` is the membership of the last standing round.

    The same bits with any number of threads: see `federation.threads`.
    """
    with one_thread():
        return _cluster(updates, policy, layout, previous, seed, round_number)


def _cluster(
    updates: Updates,
    policy: Policy,
    layout: Layout,
    previous: Sequence[Sequence[str]],
    seed: int,
    round_number: int,
) -> Clusters:
    vectors = updates.vectors
    stream = training_stream(seed, "clustering", round_number=round_number)
    geometry = geometry_of(updates, metric=policy.metric, layout=layout, stream=stream)
    euclidean = l2_geometry(vectors, policy.metric, geometry, stream)

    def partition(items: Tensor) -> list[Tensor]:
        if policy.clustering == "constrained-kmeans":
            return constrained_kmeans(geometry, items, policy.k, stream)
        return mdav(geometry, items, policy.k)

    def too_wide(items: Tensor) -> bool:
        return policy.delta is not None and spreads(vectors, euclidean, [items])[0] > policy.delta

    if policy.k == 1:
        groups = list(torch.arange(len(updates)).split(1))
    elif policy.clustering == "fixed":
        groups = fixed(updates.clients, policy.k, seed)
    elif policy.sticky and previous:
        groups = sticky(geometry, updates.clients, previous, policy.k, partition=partition, too_wide=too_wide)
    else:
        groups = partition(torch.arange(len(updates)))
    return _describe(updates, groups, euclidean, policy)


def _describe(updates: Updates, groups: list[Tensor], euclidean: Geometry, policy: Policy) -> Clusters:
    groups = sorted((group.cpu().sort().values for group in groups), key=lambda group: int(group[0]))
    members = tuple(tuple(group.tolist()) for group in groups)
    _check(members, len(updates), policy.k)
    widths = spreads(updates.vectors, euclidean, groups) if policy.k > 1 else [0.0] * len(groups)
    delta = policy.delta if policy.delta is not None else max(widths)
    near: list[list[int]] = [[] for _ in updates.clients]
    if policy.k > 1 or policy.delta is not None:  # clusters of one client each make no two alike
        near = neighbours(updates.vectors, euclidean, groups, delta=delta, k=policy.k)
    classes = [size_class(samples) for samples in updates.samples]
    return Clusters(
        members=members,
        weights=tuple(sum(classes[i] for i in group) / sum(classes) for group in members),
        spreads=tuple(widths),
        neighbours=tuple(map(tuple, near)),
        delta=delta,
    )


def _check(members: tuple[tuple[int, ...], ...], count: int, k: int) -> None:
    """No method may break the promise that everything else rests on."""
    sizes = [len(group) for group in members]
    if not all(k <= size < 2 * k for size in sizes) or sorted(i for group in members for i in group) != list(
        range(count)
    ):
        raise RuntimeError(f"clusters of sizes {sizes} are no partition of {count} into at least {k} each")
