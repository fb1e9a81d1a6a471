"""⑤ Aggregate: w_{t+1} = w_t + Σ_c p_c (mean of the drawn updates of c + noise)."""

from __future__ import annotations

import torch

from disavow.domain import Policy
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.noise import noise_named
from disavow.rounds.perturb import Perturbed
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Model, floor_variances


def aggregate(
    broadcast: Broadcast, clusters: Clusters, perturbed: Perturbed, *, policy: Policy, secrets: Secrets
) -> Model:
    """Compute the next global model; sums run in float64 over the clusters in id order.

    A noise that is added once, to the whole (modes `calibrated` and `sensitivity`), is added here.

    Args:
        broadcast: What opened the round.
        clusters: Its clusters.
        perturbed: What each of them releases.
        policy: The promises of the run.
        secrets: Where noise is drawn from.

    Returns:
        The model, with running variances floored.

    """
    step = torch.zeros_like(perturbed.vectors[0])
    for weight, vector in zip(clusters.weights, perturbed.vectors, strict=True):
        step += weight * vector
    noise, measured = noise_named(policy), list(zip(clusters.weights, clusters.spreads, strict=True))
    noise.perturb_aggregate(
        step, measured, policy=policy, stream=secrets.stream(broadcast.number, broadcast.attempt, "noise")
    )
    vector = broadcast.model.vector.to(step.device).double() + step
    tau = noise.tau_on_variances(policy, measured)
    return floor_variances(Model(broadcast.model.layout, vector.float()), tau)
