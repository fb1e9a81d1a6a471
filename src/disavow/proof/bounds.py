"""What another representative could have changed, and what the released model says about which one it was."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache

Z = 1.645
"""The odds hold with probability Φ(z): 95 %."""

NO_PROTECTION = 3.0
"""log10 of the odds above which a rendering says "no protection by noise"."""

_FEW = 3
"""Up to ten to this, odds are written out."""
MOST_SHOWN = 1000
_DIGITS = 50
"""Of a logarithm before it is rounded: none of a float64 is so near to the middle of two that more are needed."""


@dataclass(frozen=True)
class Bounds:
    """Of one cluster: how far one other representative moves the round's model, and that over τ: the ratio."""

    displacement: float
    ratio: float | None

    @property
    def log10_odds(self) -> float | None:
        """log10 of γ = exp(ratio²/2 + ratio·z): by how much the leaver explains the model better than another
        member. Against the member least like it, and for 95 of 100 draws of the noise.
        """
        return log10_odds(self.ratio)


def log10_odds(ratio: float | None) -> float | None:
    """Compute log10 of γ = exp(ratio²/2 + ratio·z).

    Args:
        ratio: One round's, or the root of the sum of squared ratios over rounds; None where there is no noise.

    """
    if ratio is None:
        return None
    return _finite((ratio * ratio / 2 + ratio * Z) / math.log(10))


def within_odds(ratio: float | None, odds: float) -> bool:
    """Say whether the odds over all rounds are within a limit; never without a ratio.

    Args:
        ratio: From `total_ratio`.
        odds: The most they may be.

    """
    found = log10_odds(ratio)
    return found is not None and found <= nearest_log10(odds)


@cache
def nearest_log10(odds: float) -> float:
    """Compute log10, rounded to the nearest float64; `math.log10` may be one beside it, by platform.

    Args:
        odds: From 1 on.

    """
    with localcontext(prec=_DIGITS):
        return float(Decimal(odds).log10())


def bounds_of(*, weight: float, spread: float, tau: float, representatives: int) -> Bounds:
    """Compute the bounds of one cluster.

    Args:
        weight: The cluster's share of the data.
        spread: The largest distance between two of its updates.
        tau: The standard deviation of the noise; with 0 there are no odds, unless nothing tells members apart.
        representatives: How many members were drawn.

    """
    displacement = _finite(weight * spread / representatives)
    if displacement == 0:
        return Bounds(0.0, 0.0)
    return Bounds(displacement, _finite(displacement / tau) if tau > 0 else None)


def largest_displacement(each: Iterable[Bounds]) -> float:
    """Find the most that another representative moves the model of a single round.

    Later rounds train on from the moved model, so that nothing follows for theirs.

    Args:
        each: The bounds of each round.

    """
    return max((bounds.displacement for bounds in each), default=0.0)


def total_ratio(each: Iterable[Bounds]) -> float | None:
    """Compute √Σratio² over rounds; None if one of them has no odds.

    Args:
        each: The bounds of each round.

    """
    ratios = [bounds.ratio for bounds in each]
    if any(ratio is None for ratio in ratios):
        return None
    return math.sqrt(_sum(ratio * ratio for ratio in ratios if ratio is not None))


def chance_drawn(sizes: Iterable[int], representatives: int) -> float:
    """Compute the chance that a client was drawn at least once: 1 - Π(1 - s/m).

    Args:
        sizes: The sizes m of its clusters.
        representatives: How many members s are drawn of each.

    >>> f"{chance_drawn([10] * 50, 1):.3f}"
    '0.995'

    """
    never = 1.0
    for size in sizes:
        never *= 1 - min(1.0, representatives / size)
    return 1 - never


def as_odds(log10: float | None) -> str:
    """Odds from their logarithm.

    >>> as_odds(0.9), as_odds(38.2), as_odds(None)
    ('7.94', '10^38', 'unbounded')
    """
    if log10 is None:
        return "unbounded"
    if log10 > MOST_SHOWN:
        return f"beyond 10^{MOST_SHOWN}"
    return f"{10**log10:.3g}" if log10 <= _FEW else f"10^{log10:.0f}"


def noise_in_words(odds: float | None) -> str | None:
    """Say that noise protects nobody; None where it protects.

    Args:
        odds: log10 of the odds over all rounds of a leaver; None where there is no Gaussian noise.

    >>> noise_in_words(1.0), noise_in_words(25.0)[:26]
    (None, 'No protection by noise: wh')
    >>> "no noise whose odds can be computed" in noise_in_words(None)
    True

    """
    if odds is not None and odds <= NO_PROTECTION:
        return None
    words = "there is no noise whose odds can be computed"
    if odds is not None:
        words = f"odds up to 10^{odds:.0f}" if odds <= MOST_SHOWN else f"odds beyond 10^{MOST_SHOWN}"
    return (
        "No protection by noise: whoever knows the updates of a cluster can tell from the models who was drawn "
        f"({words}), and nothing is deniable to them."
    )


def _sum(numbers: Iterable[float]) -> float:
    """One after the other in float64, as any language does it."""
    total = 0.0
    for number in numbers:
        total += number
    return _finite(total)


def _finite(number: float) -> float:
    """What is too large for a float64 counts as the largest."""
    return min(number, sys.float_info.max)
