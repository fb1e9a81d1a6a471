"""④ Choose and perturb: one member of each cluster, drawn in secret, with noise on it.

Neither the choice nor the noise leaves this process: they are never stored, printed or returned to a caller
of the round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from disavow.domain import Policy
from disavow.federation.cluster import Clusters
from disavow.federation.clustering.distances import norms_of
from disavow.federation.randomness import Secrets, Stream
from disavow.federation.vectors import Updates

_SAFE = 1 - 1e-6
"""Clipped updates aim this little below the bound, so that rounding to float32 cannot carry them over it."""


@dataclass(frozen=True, repr=False, eq=False)
class Perturbed:
    """The perturbed updates of the representatives, one a cluster, in cluster order; nobody's name on them."""

    vectors: tuple[Tensor, ...]


def clip(updates: Updates, policy: Policy) -> Updates:
    """In mode `calibrated`, updates shortened to the L2 norm `clip`; otherwise as they are."""
    if policy.noise != "calibrated" or policy.clip is None:
        return updates
    norms = norms_of(updates.vectors)
    factors = torch.where(norms > policy.clip, policy.clip / norms * _SAFE, torch.ones_like(norms))
    return replace(updates, vectors=(updates.vectors.double() * factors[:, None]).float())


def choose_and_perturb(
    updates: Updates, clusters: Clusters, *, policy: Policy, secrets: Secrets, round_number: int, attempt: int
) -> Perturbed:
    """Draw a representative of each cluster uniformly and perturb it.

    Mode `paper` (Algorithm 1): noise of standard deviation σ·spread on each coordinate, Gaussian or Laplace.
    Mode `calibrated` adds its one Gaussian to the aggregate instead, in `aggregate`.
    """
    choice = secrets.stream(round_number, attempt, "representatives")
    noise = secrets.stream(round_number, attempt, "noise")
    return Perturbed(tuple(_perturb_each(updates, clusters, policy, choice, noise)))


def _perturb_each(
    updates: Updates, clusters: Clusters, policy: Policy, choice: Stream, noise: Stream
) -> Iterator[Tensor]:
    for members, spread in zip(clusters.members, clusters.spreads, strict=True):
        representative = updates.vectors[members[choice.below(len(members))]].double()
        scale = policy.sigma * spread
        if policy.noise == "paper" and scale > 0:
            draw = noise.normal if policy.distribution == "gaussian" else noise.laplace
            representative = representative + scale * draw(len(representative), representative.device)
        yield representative
