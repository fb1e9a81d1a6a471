"""How many worlds an audit takes to see a given advantage, and what it sees with those it has.

Supposed is an attacker of worlds whose scores are Gaussian with unit variance, shifted in worlds that remember the
client. Its advantage, the most that true positives are above false ones, is 2·Φ(shift/2) - 1, its AUC Φ(shift/√2).
On retrained worlds it does no better than chance. The audit detects it where the interval of *served minus
retrained* (`difference.difference`), which holds for all attackers together, lies above 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from disavow.audit.difference import UNSEEN
from disavow.audit.game import Floats
from disavow.errors import ConfigError

POWER = 0.8
"""In so many of all audits an advantage must be seen for the audit to be said to see it."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def power(advantage: float, worlds: int, level: float) -> float:
    """Compute how likely an audit detects an advantage.

    >>> round(power(0.2, 64, 0.99), 2), round(power(0.2, 256, 0.99), 2)
    (0.22, 0.9)

    Args:
        advantage: The largest TPR - FPR.
        worlds: How many it trains.
        level: Of each interval.

    """
    shift, side = 2 * float(special.ndtri((1 + advantage) / 2)), worlds // 2
    estimate = float(special.ndtr(shift / math.sqrt(2))) - 0.5
    # placements of served worlds, of retrained ones, and how those of an absent one differ between the two
    served = _variance(lambda x: special.ndtr(x + shift))
    absent = _variance(lambda x: special.ndtr(x) - special.ndtr(x - shift))
    never_seen = 2 * UNSEEN**2 / (side - 1)
    parts = [(served + 1 / 12 + never_seen) / side, (absent + never_seen) / side]
    variance = sum(parts)
    freedom = variance**2 / sum(part**2 / (side - 1) for part in parts)
    half_width = float(special.stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(variance)
    # the half-width is an estimate, too, and varies from audit to audit
    spread = math.sqrt((served + 1 / 12 + absent) / side + half_width**2 / (2 * freedom))
    return float(special.ndtr((estimate - half_width) / spread))


def _variance(placement: Callable[[Floats], Floats]) -> float:
    """The variance of a function of a Gaussian number."""
    values = placement(_NODES)
    return float(_WEIGHTS @ values**2 - (_WEIGHTS @ values) ** 2)


def worlds_for(advantage: float, level: float, *, fewest: int, most: int) -> int:
    """Find the smallest even number of worlds with which an advantage is seen.

    Args:
        advantage: The largest TPR - FPR.
        level: Of each interval.
        fewest: The least to try.
        most: The most.

    Raises:
        ConfigError: Not even the most are enough.

    """
    if not 0 < advantage < 1:
        raise ConfigError(f"--detect is {advantage:g}; allowed: an advantage above 0 and below 1")
    if power(advantage, most, level) < POWER:
        raise ConfigError(
            f"--detect is {advantage:g}; allowed: at least {smallest_seen(most, level):.3f}, which takes {most:,} "
            "worlds"
        )
    halves = range(fewest // 2, most // 2)
    return 2 * (halves.start + bisect_left(halves, POWER, key=lambda half: power(advantage, 2 * half, level)))


def smallest_seen(worlds: int, level: float) -> float:
    """Find the smallest advantage that an audit sees.

    >>> round(smallest_seen(64, 0.99), 2)
    0.37

    Args:
        worlds: How many it trains.
        level: Of each interval.

    """
    return float(optimize.brentq(lambda advantage: power(advantage, worlds, level) - POWER, 1e-6, 1 - 1e-9))
