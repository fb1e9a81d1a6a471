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
from disavow.rounds.randomness import Secrets, Stream
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Updates

_SAFE = 1 - 1e-6
"""Clipped updates aim this little below the bound, so that rounding to float32 cannot carry them over it."""

_DRAWN = 1 << 18
"""Numbers that are drawn at a time: few enough for a processor's caches, enough for a GPU."""


@dataclass(frozen=True, repr=False, eq=False)
class Perturbed:
    """What each cluster releases, one row a cluster, in cluster order; nobody's name on them."""

    vectors: Tensor


def clip(updates: Updates, policy: Policy) -> Updates:
    """In mode `calibrated`, updates shortened to the L2 norm `clip`; otherwise as they are."""
    if policy.noise != "calibrated" or policy.clip is None:
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

    Mode `paper` (Algorithm 1, where s is 1): noise of standard deviation σ·spread/s on each coordinate, Gaussian or
    Laplace. Exchanging one of the drawn for another member moves their mean by spread/s at most, so the odds are
    those of s = 1. Mode `calibrated` adds its one Gaussian to the aggregate instead, in `aggregate`.

    Running statistics (`Policy.statistics`) are the mean over the whole cluster, with noise σ·spread/k.
    """
    choice = secrets.stream(round_number, attempt, "representatives")
    chosen = [
        _draw(members, places, policy.representatives, choice)
        for members, places in zip(clusters.members, clusters.places, strict=True)
    ]
    with one_thread():
        released = torch.stack([_mean(updates.vectors, drawn, policy.representatives) for drawn in chosen])
        if policy.averages_statistics:
            _average_statistics(released, updates.vectors, clusters, layout)
    if policy.noise == "paper":
        scales = noise_scales(policy, layout).to(released.device)
        _add_noise(released, clusters.spreads, policy, scales, secrets.stream(round_number, attempt, "noise"))
    return Perturbed(released)


def _draw(members: Sequence[int], places: int, count: int, stream: Stream) -> list[int]:
    """`count` of a cluster's places without replacement; those drawn that nobody fills are left out."""
    order = list(range(places))
    for i in range(count):
        j = i + stream.below(places - i)
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
        for row, (members, places) in enumerate(zip(clusters.members, clusters.places, strict=True)):
            released[row, start:end] = _mean(vectors[:, start:end], members, places)


def noise_scales(policy: Policy, layout: Layout) -> Tensor:
    """The noise of mode `paper` on each coordinate, as a multiple of the cluster's spread: σ/s.

    On running statistics that are a mean over the cluster's members, of whom there are at least k: σ/k.
    """
    scales = torch.full((layout.size,), policy.sigma / policy.representatives, dtype=torch.float64)
    if policy.averages_statistics:
        for start, end in layout.running_statistics():
            scales[start:end] = policy.sigma / policy.k
    return scales


def _add_noise(released: Tensor, spreads: Sequence[float], policy: Policy, scales: Tensor, stream: Stream) -> None:
    """Noise on each row in proportion to its cluster's spread; where that is 0, none is drawn."""
    draw = stream.normal if policy.distribution == "gaussian" else stream.laplace
    device, length = released.device, released.shape[1]
    widths = torch.tensor(spreads, dtype=torch.float64)
    noisy = torch.nonzero(widths * policy.sigma > 0).flatten()
    for rows in noisy.split(max(1, _DRAWN // length)):
        noise = draw(len(rows) * length, device).view(-1, length)
        released[rows.to(device)] += widths[rows, None].to(device) * scales * noise
