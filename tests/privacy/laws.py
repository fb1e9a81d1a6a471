"""Exact output laws of a round in one dimension, mixtures of Gaussians, and what tells two of them apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve
from scipy.special import ndtr

Floats = npt.NDArray[np.float64]

_CELLS = 8000
_REACH = 9.0


@dataclass(frozen=True)
class Group:
    """A cluster: its weight, and what each of its places contributes; 0 for a gap."""

    weight: float
    contributions: tuple[float, ...]


def law(groups: Sequence[Group], representatives: int = 1) -> dict[float, float]:
    """The means of a round's output over all draws, with their chances."""
    found = {0.0: 1.0}
    for group in groups:
        drawn = list(combinations(group.contributions, min(representatives, len(group.contributions))))
        more: defaultdict[float, float] = defaultdict(float)
        for (mean, chance), some in product(found.items(), drawn):
            more[round(mean + group.weight * math.fsum(some) / representatives, 12)] += chance / len(drawn)
        found = dict(more)
    return found


def cells(one: dict[float, float], other: dict[float, float], tau: float) -> tuple[Floats, Floats]:
    """The chances of both outputs in the same small intervals: what these tell apart is told apart at least."""
    means = [*one, *other]
    edges = np.linspace(min(means) - _REACH * tau, max(means) + _REACH * tau, _CELLS)

    def masses(each: dict[float, float]) -> Floats:
        below = sum(chance * ndtr((edges - mean) / tau) for mean, chance in each.items())
        return np.asarray(np.diff(below))

    return masses(one), masses(other)


def hockey_stick(one: Floats, other: Floats, epsilon: float) -> float:
    """The δ at ε of one law against another."""
    return float(np.maximum(0.0, one - math.exp(epsilon) * other).sum())


def composed_delta(one: Floats, other: Floats, rounds: int, epsilon: float, step: float = 1e-4) -> float:
    """The δ at ε of so many rounds, each loss rounded down to a step: no more than the true one."""
    kept = (one > 0) & (other > 0)
    losses = np.floor(np.log(one[kept] / other[kept]) / step).astype(np.int64)
    low = int(losses.min())
    single = np.bincount(losses - low, weights=one[kept]).astype(np.float64)
    total: Floats = np.ones(1)
    power: Floats = single
    base, left, at = 0, rounds, low
    while left:
        if left & 1:
            total, base = fftconvolve(total, power), base + at
        left >>= 1
        if left:
            power, at = fftconvolve(power, power), 2 * at
    grid = (np.arange(len(total)) + base) * step
    above = grid > epsilon
    never = 1 - (1 - float(one[(one > 0) & (other <= 0)].sum())) ** rounds
    return float((np.maximum(total[above], 0.0) * -np.expm1(epsilon - grid[above])).sum()) + never
