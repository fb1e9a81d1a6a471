from __future__ import annotations

import math

import pytest

from disavow.privacy import theorem

DELTA = 1e-5


@pytest.mark.parametrize("rounds", [1, 50])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 10.0])
def test_the_theorem_is_the_one_printed(epsilon: float, rounds: int) -> None:
    sigma = math.sqrt(rounds * (1 + 8 * math.log(1 / DELTA)) / (7 * epsilon**2))
    assert theorem.shift_for(epsilon, DELTA) == pytest.approx(math.sqrt(rounds) / sigma)
    assert theorem.claimed_epsilon(math.sqrt(rounds) / sigma, DELTA) == pytest.approx(epsilon)


@pytest.mark.parametrize(
    ("claimed", "analysis", "algorithm"), [(1, 1.025, 2.21), (2, 2.21, 4.87), (10, 14.9, 37.7)]
)
def test_the_figures_of_the_design(claimed: float, analysis: float, algorithm: float) -> None:
    shift = theorem.shift_for(claimed, DELTA)
    assert theorem.true_epsilon_of_analysis(shift, DELTA) == pytest.approx(analysis, rel=0.004)
    assert theorem.true_epsilon_of_algorithm(shift, DELTA) == pytest.approx(algorithm, rel=0.004)


def test_its_range() -> None:
    assert theorem.largest_epsilon(DELTA) == pytest.approx(8 * math.log(1e5))


def test_its_own_steps_lead_elsewhere() -> None:
    """The inequality before the theorem, with its α, holds from σ² = T(ε + 8 ln(1/δ))/(7ε²) on, not before."""
    rounds, epsilon, log = 50, 10.0, math.log(1 / DELTA)
    alpha = 1 + 8 * log / epsilon

    def left(sigma_squared: float) -> float:
        return rounds * alpha / (8 * sigma_squared) + log / (alpha - 1)

    assert left(rounds * (epsilon + 8 * log) / (7 * epsilon**2)) == pytest.approx(epsilon)
    assert left(rounds * (1 + 8 * log) / (7 * epsilon**2)) > epsilon
