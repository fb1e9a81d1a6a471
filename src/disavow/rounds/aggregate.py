"""⑤ Aggregate: w_{t+1} = w_t + Σ_c p_c (mean of the drawn updates of c + noise)."""

from __future__ import annotations

import math

import torch

from disavow.domain import Policy
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.perturb import Perturbed
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Model, floor_variances


def aggregate(
    broadcast: Broadcast, clusters: Clusters, perturbed: Perturbed, *, policy: Policy, secrets: Secrets
) -> Model:
    """The next global model. Sums run in float64 over the clusters in id order.

    Mode `calibrated` adds one Gaussian of standard deviation τ to each coordinate here.
    """
    step = torch.zeros_like(perturbed.vectors[0])
    for weight, vector in zip(clusters.weights, perturbed.vectors, strict=True):
        step += weight * vector
    if policy.noise == "calibrated" and policy.tau is not None:
        noise = secrets.stream(broadcast.number, broadcast.attempt, "noise")
        step += policy.tau * noise.normal(len(step), step.device)
    vector = broadcast.model.vector.to(step.device).double() + step
    return floor_variances(Model(broadcast.model.layout, vector.float()), _noise_on_variances(clusters, policy))


def _noise_on_variances(clusters: Clusters, policy: Policy) -> float:
    """The standard deviation of the noise on each running variance of the aggregate."""
    if policy.noise == "calibrated":
        return policy.tau or 0.0
    if policy.noise == "none":
        return 0.0
    parts = zip(clusters.weights, clusters.spreads, strict=True)
    averaged = policy.k if policy.averages_statistics else policy.representatives
    return policy.sigma * math.sqrt(sum((weight * spread) ** 2 for weight, spread in parts)) / averaged
