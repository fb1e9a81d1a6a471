"""The Gaussian mechanism, exactly: what shift μ of a unit Gaussian costs in (ε, δ).

B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy" (ICML 2018), theorem 8::

    δ(ε; μ) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)

Rounds compose to one Gaussian mechanism: μ² is the sum of theirs. With x = ε/μ - μ/2 and Mills' ratio
R(x) = Φ(-x)/φ(x), the same is φ(x)·(R(x) - R(x + μ)), which neither overflows for large ε nor cancels for small δ.

`dp_accounting.get_epsilon_gaussian` and `get_sigma_gaussian` solve the same equation. They are not used: they
may end on either side of the solution, so that a figure could be too small by a relative 1e-12, have fewer digits
for small shifts, and take a second to import.
"""

from __future__ import annotations

import math

from scipy.special import erfcx, ndtr

_FAR_LEFT = -5.0
"""Below this x, Mills' ratio grows without bound, and nothing is left to cancel."""

_SMALL = 1e-4
"""Shifts up to this one are taken as a derivative: the difference of two nearly equal ratios has no digits left."""

_TIGHT = 1e-12
"""Relative width at which a bisection stops."""


def delta_of(epsilon: float, mu: float) -> float:
    """Compute the smallest δ for which a Gaussian mechanism is (ε, δ)-differentially private.

    >>> f"{delta_of(1.0, 0.5):.4e}"
    '6.8296e-03'

    Args:
        epsilon: ε.
        mu: Its shift μ.

    """
    return _delta(epsilon / mu - mu / 2, mu) if mu > 0 else 0.0


def _delta(x: float, mu: float) -> float:
    """The same by x, where ε = μ(x + μ/2)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if x < _FAR_LEFT:
        return float(ndtr(-x)) - density * _mills(x + mu)
    if mu < _SMALL:
        middle = x + mu / 2  # R' = xR - 1, by the rule of the midpoint
        return density * mu * (1 - middle * _mills(middle))
    return density * (_mills(x) - _mills(x + mu))


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def epsilon_of(delta: float, mu: float) -> float:
    """Compute the smallest ε for which a Gaussian mechanism is (ε, δ)-differentially private; rounded up.

    >>> f"{epsilon_of(1e-5, math.sqrt(50)):.1f}"
    '54.4'

    Args:
        delta: δ.
        mu: Its shift μ.

    """
    if mu <= 0 or _delta(-mu / 2, mu) <= delta:
        return 0.0
    low, high = -mu / 2, math.sqrt(-2 * math.log(delta))  # Φ(-high) ≤ δ already
    while high - low > _TIGHT * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
    return max(0.0, mu * (high + mu / 2))


def shift_for(epsilon: float, delta: float) -> float:
    """Compute the largest shift μ that is (ε, δ)-differentially private; rounded down.

    Args:
        epsilon: ε.
        delta: δ.

    """
    low = high = 1.0
    while delta_of(epsilon, low) > delta:
        low /= 2
    while delta_of(epsilon, high) <= delta:
        high *= 2
    while high - low > _TIGHT * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(epsilon, middle) <= delta else (low, middle)
    return low
