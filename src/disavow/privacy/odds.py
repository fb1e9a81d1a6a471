"""Odds over all rounds: the noise for them, and how sure they are (docs/design/0029-composed-odds.md)."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

from disavow.proof.bounds import Z, within_odds

OBSERVER = (
    "against whoever sees all models of standing rounds, the log and every update, and knows neither who was drawn "
    "nor the noise; for one client exchanged for another member of its cluster in every round. No claim against "
    "the server, which draws"
)

_ROUNDING = 1 + 1e-9
"""Squares of ratios are added up round by round."""

_STEP = 1e-4
"""σ is rounded up to multiples of it: what is printed keeps to the odds."""


def ratio_for(odds: float) -> float:
    """Compute the ratio over all rounds that has these odds: the inverse of γ = exp(ratio²/2 + ratio·z).

    >>> f"{ratio_for(10.0):.4f}"
    '1.0589'

    Args:
        odds: γ, above 1.

    """
    return math.sqrt(Z * Z + 2 * math.log(odds)) - Z


def sigma_for(odds: float, rounds: int) -> float:
    """Find σ of noise mode `sensitivity` that keeps every client's odds over its rounds within a limit.

    >>> sigma_for(10.0, 50)
    6.6777

    Args:
        odds: What they must not exceed, above 1.
        rounds: In how many rounds a client takes part at most.

    Returns:
        √rounds over the ratio, rounded up.

    """
    steps = math.ceil(math.sqrt(rounds) / ratio_for(odds) / _STEP)
    while not within_odds(math.sqrt(rounds) / (steps * _STEP) * _ROUNDING, odds):
        steps += 1
    return round(steps * _STEP, 4)


def least_confidence(ratio: float) -> float:
    """Compute how sure the odds are where ratios of later rounds depend on the noise of earlier ones in any way.

    Where they do not, it is Φ(z), 95 %. See the third statement of docs/design/0029-composed-odds.md.

    >>> f"{least_confidence(ratio_for(10.0)):.3f}"
    '0.916'

    Args:
        ratio: Over all rounds.

    """
    reflected = math.exp(ratio * ratio / 2 + ratio * Z + float(log_ndtr(-ratio - Z)))
    return float(ndtr(Z)) - reflected
