"""The sampled Gaussian mechanism: with chance `rate` the client's update is in, and the noise is Gaussian.

Computed by `dp-accounting`: privacy-loss distributions (tight, the figure that is claimed) and Rényi divergences
(looser, an independent check, and the figure for δ so small that convolutions by FFT have no digits left for it).
Both are upper bounds. The package is imported only here, and only when a figure is asked for: it takes a second.

D. Zhu, J. Dong and Y.-X. Wang, "Optimal accounting of differential privacy via characteristic function" (AISTATS
2022), on why privacy-loss distributions of dominating pairs compose, adaptive rounds included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from disavow.errors import MissingExtra, how_to_install
from disavow.privacy import gaussian

SMALLEST_DELTA = 1e-9
"""Below this δ, the figure comes from Rényi divergences."""

_DISTINCT = 32
"""Kinds of rounds that are composed as they are; where there are more, multipliers are rounded down to steps of
a thousandth, so that an account of many unequal rounds stays quick."""

_STEP = math.log1p(1e-3)
_FINE = 2048
_FEWEST_PER_ROUND = 16
_MOST = 1 << 18
_COARSEST = 2.0**-6
_ASTRONOMIC = 1e5
_LARGE = 500.0
_TIGHT = 1e-6
_SMALLEST_LOSS = 1e-5
_LARGEST_EXPONENT = 50.0
_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024, 2048, 4096)
"""Whole orders: for others, the series of `dp-accounting` does not converge at large rates."""


@dataclass(frozen=True, order=True)
class Sampled:
    """One round: `rate` is the chance to be drawn, `multiplier` the noise over the sensitivity."""

    rate: float
    multiplier: float


Rounds = tuple[tuple[Sampled, int], ...]
"""How many rounds there were of each kind, sorted: the order of rounds does not matter."""


def counted(rounds: Iterable[Sampled]) -> Rounds:
    """Equal rounds together. Many unequal ones are rounded, on the safe side.

    >>> counted([Sampled(0.1, 2.0), Sampled(0.1, 1.0), Sampled(0.1, 2.0)])
    ((Sampled(rate=0.1, multiplier=1.0), 1), (Sampled(rate=0.1, multiplier=2.0), 2))
    """
    found = Counter(rounds)
    if len(found) > _DISTINCT:
        exact, found = found, Counter()
        for kind, count in exact.items():
            found[Sampled(kind.rate, _rounded_down(kind.multiplier))] += count
    return tuple(sorted(found.items()))


def _rounded_down(multiplier: float) -> float:
    return min(multiplier, math.exp(math.floor(math.log(multiplier) / _STEP) * _STEP))


def epsilon_of(rounds: Rounds, delta: float) -> float:
    """What these rounds cost together: an upper bound on ε, tight by privacy-loss distributions."""
    unsampled = gaussian.epsilon_of(delta, _full(rounds))
    if unsampled == 0 or _reach(_guess(rounds), delta) > _ASTRONOMIC:
        # so much noise that no grid is fine enough, or so little that none is long enough: as if always drawn
        return unsampled
    if delta < SMALLEST_DELTA:
        return renyi_epsilon_of(rounds, delta)
    return _by_distributions(tuple((_told_apart(kind), count) for kind, count in rounds), delta)


def _told_apart(kind: Sampled) -> Sampled:
    """The same with no more noise than arithmetic can account for: beyond that, digits run out."""
    return Sampled(kind.rate, min(kind.multiplier, kind.rate / _SMALLEST_LOSS))


def _full(rounds: Rounds) -> float:
    """The shift μ of these rounds if the client were in every one of them."""
    return math.sqrt(math.fsum(count / kind.multiplier**2 for kind, count in rounds))


@lru_cache(maxsize=256)
def _by_distributions(rounds: Rounds, delta: float) -> float:
    interval = _interval(rounds, delta)
    (kind, count), *others = rounds
    composed = _distribution(kind, interval).self_compose(count)
    for kind, count in others:
        composed = composed.compose(_distribution(kind, interval).self_compose(count))
    unsampled = gaussian.epsilon_of(delta, _full(rounds))
    if _reach(_guess(rounds), delta) < _LARGE:
        return min(float(composed.get_epsilon_for_delta(delta)), unsampled)
    # its own way to ε goes by e^-ε, which has no digits left here
    low, high = 0.0, unsampled
    while high - low > _TIGHT * high:
        middle = (low + high) / 2
        low, high = (middle, high) if composed.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high


def _interval(rounds: Rounds, delta: float) -> float:
    """How fine losses are counted: fine against the total and against one round, but never too many steps of one.

    A coarse grid makes the bound looser, never wrong. Powers of two, so that the same distributions serve while the
    total grows.
    """
    one = min(kind.rate / kind.multiplier for kind, _ in rounds)
    wanted = min(_reach(_guess(rounds), delta) / _FINE, one / _FEWEST_PER_ROUND, _COARSEST)
    longest = max(_reach(1 / kind.multiplier, delta) for kind, _ in rounds)
    return 2.0 ** math.floor(math.log2(max(wanted, longest / _MOST)))


def _guess(rounds: Rounds) -> float:
    """The shift μ of these rounds by a central limit: rough, and enough to choose a grid by."""
    return math.sqrt(math.fsum(count * min(1.0, _spread(kind)) / kind.multiplier**2 for kind, count in rounds))


def _reach(mu: float, delta: float) -> float:
    """How far privacy losses go, up to a tail of δ."""
    return mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))


def _spread(kind: Sampled) -> float:
    """The variance of one round's privacy loss over that of a round in which the client is always in."""
    inverse = min(1 / kind.multiplier**2, _LARGEST_EXPONENT)
    return kind.rate**2 * math.expm1(inverse) / inverse


@lru_cache(maxsize=64)
def _distribution(kind: Sampled, interval: float) -> Any:
    """The privacy-loss distribution of one round, for adding and for removing the client."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return privacy_loss_distribution.from_gaussian_mechanism(
        kind.multiplier, value_discretization_interval=interval, sampling_prob=kind.rate
    )


@lru_cache(maxsize=256)
def renyi_epsilon_of(rounds: Rounds, delta: float) -> float:
    """The same by Rényi divergences: an upper bound, looser."""
    try:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    accountant = RdpAccountant(_ORDERS)
    for kind, count in rounds:
        noise = GaussianDpEvent(_told_apart(kind).multiplier)
        accountant.compose(PoissonSampledDpEvent(kind.rate, noise), count)
    return float(accountant.get_epsilon(delta))


def _missing(error: ModuleNotFoundError) -> MissingExtra:
    return MissingExtra(f"the sampled account needs {error.name}; {how_to_install('train')}")
