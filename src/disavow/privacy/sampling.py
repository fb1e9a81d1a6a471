"""The Gaussian mechanism on places drawn without replacement: what it costs that one of them is left empty.

One place of a cluster is the client's; with chance `rate` it is among those drawn. With the client, a round is (1
- q)·N(a) + q·N(b), without it (1 - q)·N(a) + q·N(0): b is what the client contributes where it is drawn, a what
another place contributes instead of it where it is not, both no longer than μ, the sensitivity over the noise.
This is not Poisson sampling, where a would be 0: a client that is drawn takes another's place. By the lemma of
Neyman and Pearson a set of probability Φ(μ - t) under N(b) has at least Φ(-t) under N(0) and Φ(-μ - t) under N(a),
and a half-line has just these, so for e^ε = α ≥ 1, with λ = (α - 1)(1 - q)/q::

    removed:  δ(ε) = q·max_t [Φ(μ - t) - λ·Φ(-μ - t) - α·Φ(-t)]        (worst: a = -b)
    added:    δ(ε) = q·δ_Gauss(ln(1 + (α - 1)/q); μ)                   (worst: a = b)

The two curves, each reflected into ε < 0 by δ(-ε) = 1 - e^-ε + e^-ε·δ'(ε) of the other direction, are those of
pairs that dominate a round in either direction: they meet at ε = 0, and are convex in e^ε. Rounds compose by the
distributions of the privacy losses of these pairs, adaptive rounds included: D. Zhu, J. Dong and Y.-X. Wang,
"Optimal accounting of differential privacy via characteristic function" (AISTATS 2022). On what goes wrong where
one direction is taken for both: C. J. Lebeda, M. Regehr, G. Kamath and T. Steinke, "Avoiding pitfalls for privacy
accounting of subsampled mechanisms under composition" (2024).

Composed by `dp-accounting`. Its Rényi divergences of sampling without replacement, which are for a client replaced
by any other, stand beside, and serve for δ so small that convolutions by FFT have no digits left for it. Both are
upper bounds. The package is imported only here, and only when a figure is asked for: it takes a second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr

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
_FURTHEST = 10.0
"""Standard deviations at which a distribution of losses is cut off; what lies beyond counts as infinite loss."""

_FAR_LEFT = -5.0
_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024, 2048, 4096)
"""Whole orders: for others, the series of `dp-accounting` does not converge at large rates."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Sampled:
    """One round: `rate` is the chance to be drawn, `multiplier` the noise over the longest that one contributes."""

    rate: float
    multiplier: float


Rounds = tuple[tuple[Sampled, int], ...]
"""How many rounds there were of each kind, sorted: the order of rounds does not matter."""


def counted(rounds: Iterable[Sampled]) -> Rounds:
    """Count equal rounds together; many unequal ones are rounded, on the safe side.

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
    """Compute what these rounds cost together: an upper bound on ε, tight by privacy-loss distributions.

    Args:
        rounds: How many of each kind.
        delta: δ.

    """
    unsampled = gaussian.epsilon_of(delta, _full(rounds))
    if unsampled == 0 or _reach(_guess(rounds), delta) > _ASTRONOMIC:
        # so much noise that no grid is fine enough, or so little that none is long enough: as if always drawn
        return unsampled
    if delta < SMALLEST_DELTA:
        return min(unsampled, renyi_epsilon_of(rounds, delta))
    return _by_distributions(tuple((_with_bounded_noise(kind), count) for kind, count in rounds), delta)


def _with_bounded_noise(kind: Sampled) -> Sampled:
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
    """The privacy-loss distributions of one round, for removing and for adding the client, on a grid of losses.

    By "connect the dots" (V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar and P. Manurangsi, 2022): the grid has the
    right δ at each of its points, and a larger one between them. A loss of -ε weighs e^-ε times what a loss of ε
    weighs in the other direction, which loses no digits. `dp-accounting` has no distribution for drawing without
    replacement (its `from_gaussian_mechanism` is Poisson sampling), but composes this one.
    """
    try:
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    removed, beyond_removed = _dots(kind, interval, removed=True)
    added, beyond_added = _dots(kind, interval, removed=False)
    return PrivacyLossDistribution.create_from_rounded_probability(
        _both_signs(removed, added, beyond_removed, interval),
        beyond_removed,
        interval,
        rounded_probability_mass_function_add=_both_signs(added, removed, beyond_added, interval),
        infinity_mass_add=beyond_added,
        symmetric=False,
    )


def _dots(kind: Sampled, interval: float, *, removed: bool) -> tuple[Floats, float]:
    """What losses of one, two, three ... intervals weigh, and the weight of what is beyond them."""
    mu, log_rate, log_rest = 1 / kind.multiplier, *_logs(kind.rate)
    if removed:
        log_y = mu * (_FURTHEST + mu)
        over, under = (np.logaddexp(log_rate + each, log_rest) for each in (2 * log_y, log_y + mu * mu / 2))
        longest = float(over - under)
    else:
        longest = float(np.logaddexp(log_rate + mu * (_FURTHEST + mu / 2), log_rest))
    losses: Floats = interval * np.arange(max(2, math.ceil(longest / interval)) + 1, dtype=np.float64)
    deltas = np.minimum.accumulate(delta_of(kind, losses, removed=removed))
    steps, gap = np.diff(deltas), math.expm1(interval)
    inner = (steps[1:] - steps[:-1] * (1 + gap)) / gap
    return np.maximum(0.0, np.append(inner, -steps[-1] * (1 + gap) / gap)), float(deltas[-1])


def _both_signs(above: Floats, other: Floats, beyond: float, interval: float) -> dict[int, float]:
    """All losses on the grid: those above 0, those below it, and the rest at 0."""
    below = other * np.exp(-interval * np.arange(1, len(other) + 1))
    rest = max(0.0, 1 - beyond - math.fsum(above) - math.fsum(below))
    weights = np.concatenate([below[::-1], [rest], above])
    return dict(zip(range(-len(below), len(above) + 1), weights.tolist(), strict=True))


def delta_of(kind: Sampled, epsilons: Floats, *, removed: bool) -> Floats:
    """Compute the exact δ of one round at each ε ≥ 0, of the worst client among the worst others.

    With x = t - μ at the best t, and Mills' ratio R, δ = q·φ(x)·(R(x) - w·R(x + 2μ) - (1 - w)·R(x + μ)), where w is
    the share of N(a) in what is subtracted: nothing overflows, and no digits cancel.

    Args:
        kind: The round.
        epsilons: Each ε.
        removed: Whether the client is removed, or else added.

    """
    mu, log_rate, log_rest = 1 / kind.multiplier, *_logs(kind.rate)
    with np.errstate(divide="ignore"):
        log_more = np.log(np.expm1(np.minimum(epsilons, _LARGEST_EXPONENT))) + np.maximum(
            0.0, epsilons - _LARGEST_EXPONENT
        )  # ln(α - 1)
    if removed:
        log_lambda = log_more + log_rest - log_rate
        # y = e^{μt} solves y² - α·e^{μ²/2}·y - λ = 0
        half = epsilons + mu * mu / 2 - math.log(2)
        log_y = np.logaddexp(half, np.logaddexp(2 * half, log_lambda) / 2)
        x = log_y / mu - mu
        share = np.exp(log_lambda - 2 * log_y)
    else:
        x = np.logaddexp(0.0, log_more - log_rate) / mu - mu / 2
        share = np.zeros_like(x)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    lost = density * (share * _mills(x + 2 * mu) + (1 - share) * _mills(x + mu))
    near = np.maximum(x, _FAR_LEFT)
    found = np.where(x < _FAR_LEFT, ndtr(-x), density * _mills(near)) - lost
    return np.asarray(np.clip(kind.rate * found, 0.0, 1.0))


def _logs(rate: float) -> tuple[float, float]:
    """Ln q and ln(1 - q)."""
    return math.log(rate), math.log1p(-rate) if rate < 1 else -math.inf


def _mills(x: Floats) -> Floats:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


@lru_cache(maxsize=256)
def renyi_epsilon_of(rounds: Rounds, delta: float) -> float:
    """Compute the same by Rényi divergences, and for a client replaced by any other: an upper bound, looser.

    Args:
        rounds: How many of each kind.
        delta: δ.

    """
    try:
        from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    accountant = RdpAccountant(_ORDERS, NeighboringRelation.REPLACE_ONE)
    for kind, count in rounds:
        # two contributions lie twice as far apart
        noise = GaussianDpEvent(_with_bounded_noise(kind).multiplier / 2)
        accountant.compose(SampledWithoutReplacementDpEvent(1, kind.rate, noise), count)
    return float(accountant.get_epsilon(delta))


def _missing(error: ModuleNotFoundError) -> MissingExtra:
    return MissingExtra(f"the sampled account needs {error.name}; {how_to_install('train')}")
