"""④ Choose and perturb: s members of each cluster, drawn in secret, averaged, with noise on their mean.

Neither the choice nor the noise leaves this process: they are never stored, printed or returned to a caller
of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from disavow.domain import Layout, Policy
from disavow.rounds.cluster import Clusters
from disavow.rounds.clustering.distances import norms_of
from disavow.rounds.noise import noise_named
from disavow.rounds.randomness import Secrets, Stream
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Updates

_SAFE = 1 - 1e-6
"""Clipped updates aim this little below the bound, so that rounding to float32 cannot carry them over it."""


@dataclass(frozen=True, repr=False, eq=False)
class Perturbed:
    """What each cluster releases, one row a cluster, in cluster order; nobody's name on them."""

    vectors: Tensor


def clip(updates: Updates, policy: Policy) -> Updates:
    """Shorten updates to the L2 norm `noise.clip` where the noise clips them.

    Args:
        updates: The updates.
        policy: The promises of the run.

    Returns:
        The updates, as they were where nothing is clipped.

    """
    if not noise_named(policy).clips or policy.clip is None:
        return updates
    with one_thread():
        norms = norms_of(updates.vectors)
    factors = torch.where(norms > policy.clip, policy.clip / norms * _SAFE, torch.ones_like(norms))
    return replace(updates, vectors=(updates.vectors.double() * factors[:, None]).float())


def choose_and_perturb(
    updates: Updates,
    clusters: Clusters,
    *,
    policy: Policy,
    layout: Layout,
    secrets: Secrets,
    round_number: int,
    attempt: int,
) -> Perturbed:
    """Draw s places of each cluster uniformly without replacement, average and perturb who is there.

    A place without a member (a gap of a fixed cluster) counts as an update of 0.

    Mode `paper` (Algorithm 1, where s is 1): noise of standard deviation σ·spread/s on each coordinate. Exchanging
    one of the drawn for another member moves their mean by spread/s at most, so the odds are those of s = 1. Mode
    `calibrated` adds its one Gaussian to the aggregate instead, in `aggregate`. Each noise is in `rounds.noise`.

    Running statistics (`Policy.statistics`) are the mean over the whole cluster, with noise σ·spread/k.

    Args:
        updates: The updates.
        clusters: Their clusters.
        policy: The promises of the run.
        layout: Which numbers belong to which tensor.
        secrets: Where places and noise are drawn from.
        round_number: Which round it is.
        attempt: Which try at it.

    Returns:
        What each cluster releases.

    """
    choice = secrets.stream(round_number, attempt, "representatives")
    chosen = [
        _draw(members, capacity, policy.representatives, choice)
        for members, capacity in zip(clusters.members, clusters.capacities, strict=True)
    ]
    with one_thread():
        released = torch.stack([_mean(updates.vectors, drawn, policy.representatives) for drawn in chosen])
        if policy.averages_statistics:
            _average_statistics(released, updates.vectors, clusters, layout)
    stream = secrets.stream(round_number, attempt, "noise")
    noise_named(policy).perturb(released, clusters.spreads, policy=policy, layout=layout, stream=stream)
    return Perturbed(released)


def _draw(members: Sequence[int], capacity: int, count: int, stream: Stream) -> list[int]:
    """`count` of a cluster's places without replacement; those drawn that nobody fills are left out."""
    order = list(range(capacity))
    for i in range(count):
        j = i + stream.below(capacity - i)
        order[i], order[j] = order[j], order[i]
    return sorted(members[i] for i in order[:count] if i < len(members))


def _mean(vectors: Tensor, drawn: Sequence[int], count: int) -> Tensor:
    """The drawn updates' sum over `count`, in float64: a place that nobody fills counts as an update of zeros."""
    total = torch.zeros(vectors.shape[1], dtype=torch.float64, device=vectors.device)
    for item in drawn:
        total += vectors[item].double()
    return total / count


def _average_statistics(released: Tensor, vectors: Tensor, clusters: Clusters, layout: Layout) -> None:
    """Put the mean over all places of a cluster in the stretches of the running statistics."""
    for start, end in layout.running_statistics():
        for row, (members, capacity) in enumerate(zip(clusters.members, clusters.capacities, strict=True)):
            released[row, start:end] = _mean(vectors[:, start:end], members, capacity)
