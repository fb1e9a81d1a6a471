from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.privacy import gaussian
from tests.rounds.builders import PROPERTY

mpmath: Any = pytest.importorskip("mpmath")  # comes with torch


def exact_delta(epsilon: float, mu: float) -> float:
    """The formula as printed, with digits enough that nothing cancels."""

    def phi(x: Any) -> Any:
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(phi(-e / m + m / 2) - mpmath.exp(e) * phi(-e / m - m / 2))


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [
        (0.0, 1e-5),
        (1e-4, 2e-5),
        (1e-3, 5e-5),
        (1e-3, 2e-4),
        (0.0, 3.0),
        (1.0, 0.5),
        (8.0, 1.67),
        (30.0, 0.8),
        (20.0, 100.0),
        (191.0, 15.8),
        (600.0, 15.8),
        (5000.0, 100.0),
    ],
)
def test_delta_has_its_digits_where_the_formula_as_printed_has_none(epsilon: float, mu: float) -> None:
    assert gaussian.delta_of(epsilon, mu) == pytest.approx(exact_delta(epsilon, mu), rel=1e-9)


@pytest.mark.parametrize(("mu", "epsilon"), [(math.sqrt(50), 54.4), (math.sqrt(250), 191.5)])
def test_the_figures_of_the_design(mu: float, epsilon: float) -> None:
    assert gaussian.epsilon_of(1e-5, mu) == pytest.approx(epsilon, abs=0.05)


@PROPERTY
@given(st.floats(-300, -0.5), st.floats(-6, 4))
def test_epsilon_is_the_smallest_that_keeps_to_delta(log_delta: float, log_mu: float) -> None:
    delta, mu = 10**log_delta, 10**log_mu
    epsilon = gaussian.epsilon_of(delta, mu)
    assert gaussian.delta_of(epsilon, mu) <= delta * (1 + 1e-6)
    if epsilon > 0:
        assert gaussian.delta_of(epsilon * (1 - 1e-6) - 1e-9 * mu, mu) > delta * (1 - 1e-9)


@PROPERTY
@given(st.floats(1e-3, 1e3), st.floats(-12, -1))
def test_shift_for_is_the_way_back_and_on_the_safe_side(epsilon: float, log_delta: float) -> None:
    delta = 10**log_delta
    mu = gaussian.shift_for(epsilon, delta)
    assert gaussian.delta_of(epsilon, mu) <= delta
    assert gaussian.epsilon_of(delta, mu) == pytest.approx(epsilon, rel=1e-6)


def test_without_a_shift_nothing_is_spent() -> None:
    assert gaussian.epsilon_of(1e-5, 0.0) == 0.0
    assert gaussian.delta_of(0.5, 0.0) == 0.0
    # so small that δ alone covers it
    assert gaussian.epsilon_of(1e-5, 1e-6) == 0.0
