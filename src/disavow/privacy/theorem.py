"""The paper's theorem as printed, and what the same noise truly gives.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024), section
"Client-level Privacy Analysis": for 0 < ε < 8 ln(1/δ), the global model is (ε, δ)-differentially private after T
rounds "iff" σ² ≥ T(1 + 8 ln(1/δ))/(7ε²).
"""

from __future__ import annotations

import math

from disavow.privacy import gaussian

REASONS = (
    "the sensitivity is 2Δ, so its Lemma 2 gives α/(2σ²) for noise σ·2Δ where it prints α/(8σ²)",
    "with its own choice of α the bound needs ε + 8 ln(1/δ) where it prints 1 + 8 ln(1/δ)",
    '"iff" is only "if": its bound is sufficient at best, never necessary',
)


def largest_epsilon(delta: float) -> float:
    """Return the ε below which the theorem is stated."""
    return -8 * math.log(delta)


def claimed_epsilon(shift: float, delta: float) -> float:
    """Compute the ε that the theorem claims.

    Args:
        shift: √T/σ, or the root of Σ 1/σ² where rounds differ.
        delta: δ.

    """
    return shift * math.sqrt((1 + largest_epsilon(delta)) / 7)


def shift_for(epsilon: float, delta: float) -> float:
    """Compute √T/σ of the noise that the theorem asks for.

    Args:
        epsilon: ε.
        delta: δ.

    """
    return epsilon / math.sqrt((1 + largest_epsilon(delta)) / 7)


def true_epsilon_of_analysis(shift: float, delta: float) -> float:
    """Compute what noise σ·2Δ, that of the paper's analysis, gives against sensitivity 2Δ; exactly.

    >>> [f"{true_epsilon_of_analysis(shift_for(e, 1e-5), 1e-5):.4g}" for e in (1, 2, 10)]
    ['1.025', '2.21', '14.85']

    Args:
        shift: √T/σ.
        delta: δ.

    """
    return gaussian.epsilon_of(delta, shift)


def true_epsilon_of_algorithm(shift: float, delta: float) -> float:
    """Compute what noise σ·Δ, that of the paper's Algorithm 1 with Δ a radius, gives against sensitivity 2Δ;
    exactly.

    >>> [f"{true_epsilon_of_algorithm(shift_for(e, 1e-5), 1e-5):.4g}" for e in (1, 2, 10)]
    ['2.21', '4.873', '37.69']

    Args:
        shift: √T/σ.
        delta: δ.

    """
    return gaussian.epsilon_of(delta, 2 * shift)
