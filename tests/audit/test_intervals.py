"""Intervals against scipy's, against their promise, and at their ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from disavow.audit.intervals import Interval, clopper_pearson, dkw_half_width, quantile_interval
from tests.rounds.builders import PROPERTY

LEVELS = st.floats(0.5, 0.999)


def test_an_interval_holds_its_ends() -> None:
    interval = Interval(-0.5, 0.25)
    assert -0.5 in interval
    assert 0.25 in interval
    assert 0.2501 not in interval
    assert interval.width == 0.75


@given(st.integers(0, 40), st.integers(0, 40), LEVELS)
@PROPERTY
def test_clopper_pearson_is_scipys(successes: int, failures: int, level: float) -> None:
    trials = max(1, successes + failures)
    found = clopper_pearson(successes, trials, level)
    expected = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert successes / trials in found


def test_without_trials_every_probability_is_possible() -> None:
    assert clopper_pearson(0, 0, 0.95) == Interval(0.0, 1.0)


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2)])
def test_counts_that_cannot_be_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        clopper_pearson(successes, trials, 0.95)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.99])
@pytest.mark.parametrize("count", [30, 1000])
def test_a_quantile_lies_between_its_order_statistics(count: int, probability: float) -> None:
    """Exactly: the number of draws below the true quantile is binomial."""
    ranks = quantile_interval(np.arange(1.0, count + 1), probability, 0.95)
    below = stats.binom(count, probability)
    low = below.cdf(ranks.low - 1) if np.isfinite(ranks.low) else 0.0
    high = below.sf(ranks.high - 1) if np.isfinite(ranks.high) else 0.0
    assert low <= 0.025
    assert high <= 0.025
    assert below.cdf(ranks.low) >= 0.025 or np.isneginf(ranks.low)  # no rank is given away


def test_too_few_values_leave_a_quantile_open() -> None:
    assert quantile_interval(np.arange(20.0), 0.99, 0.95).high == np.inf
    assert quantile_interval(np.arange(20.0), 0.01, 0.95).low == -np.inf


def test_ties_do_not_narrow_a_quantile() -> None:
    assert quantile_interval(np.zeros(50), 0.5, 0.95) == Interval(0.0, 0.0)
    assert quantile_interval(np.repeat([0.0, 1.0], 50), 0.5, 0.95) == Interval(0.0, 1.0)


def test_the_band_holds_the_distribution_function() -> None:
    rng = np.random.default_rng(5)
    draws = np.sort(rng.random((2000, 40)), axis=1)
    steps = np.arange(41) / 40
    away = np.maximum(np.abs(draws - steps[1:]), np.abs(draws - steps[:-1])).max(axis=1)
    inside = np.mean(away <= dkw_half_width(40, 0.95))
    assert 0.94 <= inside <= 0.98  # Massart's constant is tight


@given(st.integers(1, 10**6), LEVELS)
@PROPERTY
def test_the_band_is_never_wider_than_everything(count: int, level: float) -> None:
    assert 0 < dkw_half_width(count, level) <= 1
