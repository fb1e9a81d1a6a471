"""Confidence intervals that assume little: they hold for few units, and at the ends of the scale.

C. J. Clopper and E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial"
(1934). P. Massart, "The Tight Constant in the Dvoretzky-Kiefer-Wolfowitz Inequality" (1990).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy import special, stats

from disavow.audit.game import Floats


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, both included.

    >>> 0.5 in Interval(0.4, 0.5), 0.6 in Interval(0.4, 0.5)
    (True, False)
    """

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        """How much it leaves open."""
        return self.high - self.low


def clopper_pearson(successes: int, trials: int, level: float) -> Interval:
    """Bound the probability of a success: exact, so never below `level`.

    >>> found = clopper_pearson(0, 10, 0.95)
    >>> round(found.low, 4), round(found.high, 4)
    (0.0, 0.3085)

    Args:
        successes: How many.
        trials: Of how many.
        level: The confidence.

    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials cannot be")
    tail, failures = (1 - level) / 2, trials - successes
    # the same as `stats.binomtest(...).proportion_ci(level)`, which searches for each end and takes a hundred times
    # as long: `epsilon.lower_bound` asks 800 times an attacker
    low = float(special.betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return Interval(low, high)


def quantile_interval(values: Floats, probability: float, level: float) -> Interval:
    """Bound a quantile of the distribution that `values` were drawn from, by order statistics.

    Holds for every distribution, ties included. An end that so few values cannot bound is infinite.

    >>> import numpy as np
    >>> quantile_interval(np.arange(1.0, 101.0), 0.5, 0.95)
    Interval(low=40.0, high=61.0)

    Args:
        values: The draws.
        probability: Which quantile.
        level: The confidence.

    """
    test: Any = stats.quantile_test(values, p=probability)  # scipy-stubs take its interval for a float
    found = test.confidence_interval(level)
    low, high = float(found.low), float(found.high)  # NaN where it has no bound
    return Interval(-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)


def dkw_half_width(count: int, level: float) -> float:
    """Bound how far the empirical distribution function is from the true one, anywhere.

    >>> round(dkw_half_width(100, 0.95), 4)
    0.1358

    Args:
        count: Of draws.
        level: The confidence.

    """
    return min(1.0, math.sqrt(math.log(2 / (1 - level)) / (2 * count)))
