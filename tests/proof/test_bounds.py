"""The bounds are those of the formulas, computed another way, and are numbers whatever they are made of."""

from __future__ import annotations

import math
import sys
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.proof.bounds import (
    NO_PROTECTION,
    Bounds,
    Z,
    bounds_of,
    chance_drawn,
    largest_displacement,
    log10_odds,
    nearest_log10,
    noise_in_words,
    total_ratio,
    within_odds,
)
from disavow.proof.validation import figure, write_figure
from tests.rounds.builders import PROPERTY

weights = st.floats(1e-3, 1.0)
spreads = st.floats(0.0, 1e3)
taus = st.floats(1e-3, 1e3)


def test_z_is_the_quantile_of_95_per_cent() -> None:
    assert pytest.approx(0.95, abs=1e-4) == (1 + math.erf(Z / math.sqrt(2))) / 2


def test_one_cluster_by_hand() -> None:
    bounds = bounds_of(weight=0.5, spread=0.25, tau=0.0625, representatives=1)
    assert (bounds.displacement, bounds.ratio) == (0.125, 2.0)
    odds = math.exp(2.0**2 / 2 + 2.0 * 1.645)
    assert bounds.log10_odds == pytest.approx(math.log10(odds))
    assert odds == pytest.approx(198.3, abs=0.1)


@PROPERTY
@given(weights, spreads, taus, st.integers(1, 9))
def test_every_cluster_by_the_formulas(weight: float, spread: float, tau: float, drawn: int) -> None:
    bounds = bounds_of(weight=weight, spread=spread, tau=tau, representatives=drawn)
    displacement = Fraction(weight) * Fraction(spread) / drawn
    assert bounds.displacement == pytest.approx(float(displacement), rel=1e-12)
    assert bounds.ratio == pytest.approx(float(displacement / Fraction(tau)), rel=1e-12)
    assert bounds.ratio is not None
    assert bounds.log10_odds == pytest.approx(
        math.log10(math.e) * (bounds.ratio**2 / 2 + bounds.ratio * Z), rel=1e-12, abs=1e-300
    )


@PROPERTY
@given(weights, st.floats(1e-3, 1e3))
def test_without_gaussian_noise_there_are_no_odds(weight: float, spread: float) -> None:
    bounds = bounds_of(weight=weight, spread=spread, tau=0.0, representatives=1)
    assert (bounds.displacement, bounds.ratio, bounds.log10_odds) == (weight * spread, None, None)


@pytest.mark.parametrize("tau", [0.0, 0.5])
@pytest.mark.parametrize(("weight", "spread"), [(0.5, 0.0), (0.0, 0.5), (0.0, 0.0)])
def test_where_there_is_nothing_to_tell_apart_the_odds_are_even(weight: float, spread: float, tau: float) -> None:
    bounds = bounds_of(weight=weight, spread=spread, tau=tau, representatives=3)
    assert bounds == Bounds(0.0, 0.0)
    assert bounds.log10_odds == 0.0


@PROPERTY
@given(st.lists(st.tuples(weights, spreads, taus), max_size=6))
def test_over_rounds_the_largest_displacement_counts_and_ratios_add_up_squared(
    clusters: list[tuple[float, float, float]],
) -> None:
    each = [bounds_of(weight=weight, spread=spread, tau=tau, representatives=1) for weight, spread, tau in clusters]
    assert largest_displacement(each) == pytest.approx(max((w * s for w, s, _ in clusters), default=0.0), rel=1e-12)
    assert total_ratio(each) == pytest.approx(
        math.hypot(*(w * s / t for w, s, t in clusters)), rel=1e-12, abs=1e-160
    )


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.0, None),
        (1.25, None),
        (2.41, None),
        (2.42, "10^3"),
        (25.0, "10^154"),
        (1e300, "10^1000"),
        (None, "no noise whose odds"),
    ],
)
def test_from_odds_of_a_thousand_on_noise_is_said_to_protect_nobody(ratio: float | None, said: str | None) -> None:
    words = noise_in_words(log10_odds(ratio))
    assert (words is None) == (said is None)
    assert words is None or (words.startswith("No protection by noise") and str(said) in words)


def test_over_no_rounds_they_are_nothing() -> None:
    assert (largest_displacement([]), total_ratio([])) == (0.0, 0.0)


def test_one_round_without_odds_leaves_the_whole_without() -> None:
    each = [bounds_of(weight=0.5, spread=1.0, tau=tau, representatives=1) for tau in (1.0, 0.0)]
    assert total_ratio(each) is None
    assert largest_displacement(each) == 0.5
    # a round in which nothing can be told apart takes nothing away
    assert total_ratio([each[0], bounds_of(weight=0.5, spread=0.0, tau=0.0, representatives=1)]) == 0.5


def test_squares_are_added_one_after_the_other_as_any_language_does() -> None:
    numbers = [math.sqrt(0.1)] * 10
    assert math.fsum(number * number for number in numbers) == 1.0
    assert total_ratio([Bounds(number, number) for number in numbers]) == 0.9999999999999999


@pytest.mark.parametrize("tau", [1e-150, 1e-160, 1e-200, 1e-308, 5e-324])
def test_with_next_to_no_noise_the_bounds_can_still_be_written_into_a_proof(tau: float) -> None:
    """`sigma` may be any number above 0: a proof whose odds overflow must still be one that can be read."""
    bounds = bounds_of(weight=0.5, spread=10.0, tau=tau, representatives=1)
    figures = [bounds.log10_odds, bounds.ratio, total_ratio([bounds, bounds])]
    assert all(number is None or number > NO_PROTECTION for number in figures)
    for number in figures:
        if number is not None:
            figure(write_figure(number), "here")


@PROPERTY
@given(weights, st.floats(1e-3, 1e3), st.floats(1e-3, 1.0), st.integers(2, 9))
def test_with_noise_divided_by_the_number_drawn_the_odds_stay(
    weight: float, spread: float, sigma: float, drawn: int
) -> None:
    one, several = (
        bounds_of(weight=weight, spread=spread, tau=weight * spread * sigma / count, representatives=count)
        for count in (1, drawn)
    )
    assert several.displacement == pytest.approx(one.displacement / drawn)
    assert several.log10_odds == pytest.approx(one.log10_odds)


@pytest.mark.parametrize(
    ("sizes", "drawn", "chance"),
    [([], 1, 0.0), ([4], 1, 0.25), ([4, 5], 2, 0.7), ([2, 10], 2, 1.0), ([2], 3, 1.0), ([10] * 50, 1, 0.9948)],
)
def test_the_chance_to_have_been_drawn_at_least_once(sizes: list[int], drawn: int, chance: float) -> None:
    assert chance_drawn(sizes, drawn) == pytest.approx(chance, abs=1e-4)


def test_odds_have_a_limit_only_where_there_is_gaussian_noise() -> None:
    ratio = 1.25
    odds = 10 ** (log10_odds(ratio) or 0.0)
    assert within_odds(ratio, odds * 1.0001)
    assert not within_odds(ratio, odds / 1.0001)
    assert within_odds(0.0, 1.0)
    assert not within_odds(None, 1e300)


def test_the_limit_of_odds_does_not_depend_on_the_platform() -> None:
    """The C library's log10 may be one float beside the nearest; the format asks for the nearest."""
    assert nearest_log10(1000.0) == 3.0
    assert nearest_log10(sys.float_info.max) == 308.25471555991674
    with localcontext(Context(prec=80)):
        limits = [1.0 + number / 7 for number in range(2_000)]
        assert [nearest_log10(odds) for odds in limits] == [float(Decimal(odds).log10()) for odds in limits]
