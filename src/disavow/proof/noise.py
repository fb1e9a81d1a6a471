"""The noise on a round's aggregate: the standard deviation τ that the log has, and whether the policy allows it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from disavow.domain import Policy
from disavow.errors import VerificationError
from disavow.proof.leaves import LoggedPolicy, RoundLeaf
from disavow.proof.statement import AnyCluster

_ROUNDING = 1e-9


def logged_tau(policy: Policy | LoggedPolicy, clusters: Iterable[tuple[float, float]]) -> float:
    """Compute τ as the log has it: the standard deviation of the Gaussian noise on a round's aggregate.

    Args:
        policy: What the run promises.
        clusters: Weight and spread of each cluster of the round.

    Returns:
        τ; 0 where there is no noise, none that is Gaussian, or one that somebody else registered.

    """
    if policy.noise == "calibrated":
        return float(policy.tau or 0.0)
    sigma = float(policy.sigma) / policy.representatives
    if policy.noise == "sensitivity":
        return min(sigma * max((weight * spread for weight, spread in clusters), default=0.0), sys.float_info.max)
    if policy.noise != "paper" or policy.distribution != "gaussian":
        return 0.0
    return min(math.hypot(*(weight * sigma * spread for weight, spread in clusters)), sys.float_info.max)


def check_noise(policy: LoggedPolicy, cluster: AnyCluster, leaf: RoundLeaf) -> None:
    """Check, as far as one cluster tells, that τ is the policy's, or at least what this cluster alone adds to it.

    Args:
        policy: What the run promises.
        cluster: A cluster of the round.
        leaf: The round.

    Raises:
        VerificationError: It is not.

    """
    tau = leaf.tau
    if policy.noise == "calibrated":
        due = tau == (policy.tau or 0.0)
    elif policy.noise == "sensitivity" or (policy.noise == "paper" and policy.distribution == "gaussian"):
        own, sigma = cluster.weight * cluster.spread, policy.sigma / policy.representatives
        due = tau * (1 + _ROUNDING) >= own * sigma
        if sigma == 0 or leaf.clusters == 1:
            due = due and tau <= own * sigma * (1 + _ROUNDING)
        if policy.adaptive:
            # no other cluster is wider than Δ, and all their shares together are what this one leaves
            rest = (1 - cluster.weight) * leaf.delta
            most = _hypotenuse(own, rest) if policy.noise == "paper" else max(own, rest)
            due = due and tau <= sigma * most * (1 + _ROUNDING)
    else:
        due = tau == 0
    if not due:
        raise VerificationError(f"the noise of round {leaf.number} is not that of the policy")


def _hypotenuse(one: float, other: float) -> float:
    """Spelled out, so that every language rounds it alike."""
    longer, shorter = max(one, other), min(one, other)
    return longer * math.sqrt(1 + (shorter / longer) * (shorter / longer)) if longer > 0 else 0.0
