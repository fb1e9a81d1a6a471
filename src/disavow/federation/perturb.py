"""④ Choose and perturb: one member of each cluster, drawn in secret, with noise on it.

Neither the choice nor the noise leaves this process: they are never stored, printed or returned to a caller
of the round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from disavow.domain import Policy
from disavow.federation.cluster import Clusters
from disavow.federation.clustering.distances import norms_of
from disavow.federation.randomness import Secrets, Stream
from disavow.federation.threads import one_thread
from disavow.federation.vectors import Updates

_SAFE = 1 - 1e-6
"""Clipped updates aim this little below the bound, so that rounding to float32 cannot carry them over it."""

_DRAWN = 1 << 18
"""Numbers that are drawn at a time: few enough for a processor's caches, enough for a GPU."""


@dataclass(frozen=True, repr=False, eq=False)
class Perturbed:
    """The perturbed updates of the representatives, one row a cluster, in cluster order; nobody's name on them."""

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
    updates: Updates, clusters: Clusters, *, policy: Policy, secrets: Secrets, round_number: int, attempt: int
) -> Perturbed:
    """Draw a representative of each cluster uniformly and perturb it.

    Mode `paper` (Algorithm 1): noise of standard deviation σ·spread on each coordinate, Gaussian or Laplace.
    Mode `calibrated` adds its one Gaussian to the aggregate instead, in `aggregate`.
    """
    choice = secrets.stream(round_number, attempt, "representatives")
    chosen = [members[choice.below(len(members))] for members in clusters.members]
    representatives = updates.vectors[torch.tensor(chosen, device=updates.vectors.device)].double()
    if policy.noise == "paper":
        _add_noise(representatives, clusters, policy, secrets.stream(round_number, attempt, "noise"))
    return Perturbed(representatives)


def _add_noise(representatives: Tensor, clusters: Clusters, policy: Policy, stream: Stream) -> None:
    """Noise on each row in proportion to its cluster's spread; where that is 0, none is drawn."""
    draw = stream.normal if policy.distribution == "gaussian" else stream.laplace
    device, length = representatives.device, representatives.shape[1]
    scales = torch.tensor(clusters.spreads, dtype=torch.float64) * policy.sigma
    noisy = torch.nonzero(scales > 0).flatten()
    for rows in noisy.split(max(1, _DRAWN // length)):
        noise = draw(len(rows) * length, device).view(-1, length)
        representatives[rows.to(device)] += scales[rows, None].to(device) * noise
