"""What another representative could have changed, and what the released model says about which one it was."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

Z = 1.645
"""The odds hold with probability Φ(z): 95 %."""

NO_PROTECTION = 3.0
"""log10 of the odds above which a rendering says "no protection by noise"."""

_MOST_SHOWN = 1000


@dataclass(frozen=True)
class Bounds:
    """Of one cluster: how far another representative moves the round's model, and s = displacement / τ."""

    displacement: float
    ratio: float | None

    @property
    def log10_odds(self) -> float | None:
        """log10 of γ = exp(s²/2 + s·z): by how much the leaver explains the model better than another member."""
        if self.ratio is None:
            return None
        return _finite((self.ratio * self.ratio / 2 + self.ratio * Z) / math.log(10))


def bounds_of(*, weight: float, spread: float, tau: float) -> Bounds:
    """With no Gaussian noise there are no odds, except where there is nothing to tell apart."""
    displacement = _finite(weight * spread)
    if displacement == 0:
        return Bounds(0.0, 0.0)
    return Bounds(displacement, _finite(displacement / tau) if tau > 0 else None)


def total_displacement(each: Iterable[Bounds]) -> float:
    """The sum over rounds."""
    return _sum(bounds.displacement for bounds in each)


def total_ratio(each: Iterable[Bounds]) -> float | None:
    """√Σs² over rounds; None if one of them has no odds."""
    ratios = [bounds.ratio for bounds in each]
    if any(ratio is None for ratio in ratios):
        return None
    return math.sqrt(_sum(ratio * ratio for ratio in ratios if ratio is not None))


def noise_in_words(ratio: float | None) -> str | None:
    """Say that noise protects nobody, given √Σs² over all rounds of a leaver; None where it protects.

    >>> noise_in_words(1.0), noise_in_words(25.0)[:26]
    (None, 'No protection by noise: wh')
    """
    odds = Bounds(0.0, ratio).log10_odds
    if odds is not None and odds <= NO_PROTECTION:
        return None
    told = "there is no Gaussian noise"
    if odds is not None:
        told = f"odds up to 10^{odds:.0f}" if odds <= _MOST_SHOWN else f"odds beyond 10^{_MOST_SHOWN}"
    return (
        "No protection by noise: whoever knows the updates of a cluster can tell from the models who was drawn "
        f"({told}), and nothing is deniable to them."
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
