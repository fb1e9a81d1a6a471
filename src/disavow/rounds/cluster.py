"""③ Cluster: partition the participants into groups of at least k and fewer than 2k who look alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import cast

import torch
from torch import Tensor

from disavow.domain import Layout, Policy, TakingPart, size_class
from disavow.domain.strategies import CLUSTERINGS
from disavow.rounds.clustering import Clustering
from disavow.rounds.clustering.distances import lengths_of
from disavow.rounds.clustering.fixed import groups_of
from disavow.rounds.clustering.geometry import geometry_of
from disavow.rounds.clustering.spread import l2_geometry, share_within, spreads
from disavow.rounds.clustering.sticky import sticky
from disavow.rounds.randomness import training_stream
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Updates


@dataclass(frozen=True)
class Clusters:
    """A partition of a round's participants, who are numbered in id order.

    Clusters are sorted by their first member, fixed ones by their number. `delta` is how near counted as alike in
    this round. `capacities` are the places that representatives of each are drawn among: as many as it has members,
    but for fixed clusters, where a place without a member is a gap. All of these that take part are here, also
    those without a member. `update_norm` is the median L2 norm of the updates, `pairs_within` the share of all
    pairs of them that lie within Δ of each other: what Δ is to be read against.
    """

    members: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    spreads: tuple[float, ...]
    delta: float
    capacities: tuple[int, ...]
    update_norm: float = 0.0
    pairs_within: float = 1.0


@one_thread()  # the same bits with any number of threads: see `rounds.threads`
def cluster(
    updates: Updates,
    *,
    policy: Policy,
    layout: Layout,
    previous: Sequence[Sequence[str]],
    seed: int,
    round_number: int,
    taking_part: TakingPart | None = None,
) -> Clusters:
    """Cluster updates that are in id order.

    Args:
        updates: The updates; clipped where the noise clips.
        policy: The promises of the run.
        layout: Which numbers belong to which tensor.
        previous: The membership of the last standing round.
        seed: The seed of the run.
        round_number: Which round it is.
        taking_part: The anchored clusters of the round, where these are anchored.

    Returns:
        The clusters with their weights and spreads.

    Raises:
        RuntimeError: A method broke what it promises about sizes.

    """
    vectors = updates.vectors
    stream = training_stream(seed, "clustering", round_number=round_number)
    geometry = geometry_of(updates, metric=policy.metric, layout=layout, stream=stream)
    euclidean = l2_geometry(vectors, policy.metric, geometry, stream)

    method = cast(Clustering, CLUSTERINGS[policy.clustering])

    def partition(items: Tensor) -> list[Tensor]:
        return list(method.partition(geometry, items, policy.k, stream))

    norm = median(lengths_of(vectors).tolist())
    delta = policy.delta_at(norm)
    averaged = list(layout.running_statistics()) if policy.averages_statistics else []

    def widths(groups: Sequence[Tensor]) -> list[float]:
        return spreads(vectors, euclidean, groups, averaged)

    def too_wide(items: Tensor) -> bool:
        return delta is not None and widths([items])[0] > delta

    if method.anchored:
        if taking_part is None:
            raise ValueError("fixed clusters are settled before a round, not by it")
        groups, weights, capacities = _anchored(updates, taking_part)
    else:
        if policy.k == 1:
            groups = list(torch.arange(len(updates)).split(1))
        elif policy.sticky and previous:
            groups = sticky(geometry, updates.clients, previous, policy.k, partition=partition, too_wide=too_wide)
        else:
            groups = partition(torch.arange(len(updates)))
        groups = sorted((group.cpu().sort().values for group in groups), key=lambda group: int(group[0]))
        _check(groups, len(updates), policy.k, method)
        classes = [size_class(samples) for samples in updates.samples]
        weights = tuple(sum(classes[i] for i in group.tolist()) / sum(classes) for group in groups)
        capacities = tuple(map(len, groups))
    several = [group for group in groups if len(group) > 1]
    measured = iter(widths(several) if several else ())
    found = tuple(next(measured) if len(group) > 1 else 0.0 for group in groups)
    if delta is None:
        delta = max(found)
    return Clusters(
        members=tuple(tuple(group.tolist()) for group in groups),
        weights=weights,
        spreads=found,
        delta=delta,
        capacities=capacities,
        update_norm=norm,
        pairs_within=share_within(vectors, euclidean, delta) if policy.k > 1 else 0.0,
    )


def _anchored(updates: Updates, taking_part: TakingPart) -> tuple[list[Tensor], tuple[float, ...], tuple[int, ...]]:
    """The fixed clusters, the weights that were settled, over those that take part, and their places."""
    anchors, numbers = taking_part.anchors, taking_part.numbers
    groups = groups_of(updates.clients, anchors, numbers)
    capacities = tuple(anchors.clusters[number].capacity for number in numbers)
    if any(len(group) > count for group, count in zip(groups, capacities, strict=True)):
        raise RuntimeError(f"a fixed cluster has more members than its places, which are {capacities}")
    shares = [anchors.clusters[number].share for number in numbers]
    return groups, tuple(share / sum(shares) for share in shares), capacities


def _check(groups: Sequence[Tensor], count: int, k: int, method: Clustering) -> None:
    """No method may break the promise that everything else rests on, nor what it declares."""
    sizes = [len(group) for group in groups]
    least, most = method.sizes(k)
    if not all(max(k, least) <= size <= min(most or count, 2 * k - 1) for size in sizes) or sorted(
        i for group in groups for i in group.tolist()
    ) != list(range(count)):
        raise RuntimeError(f"clusters of sizes {sizes} are no partition of {count} into at least {k} each")
