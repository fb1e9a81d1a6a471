"""Figures of ROC curves: against closed forms and scikit-learn, in simulations of their promise, at the ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn.metrics import roc_auc_score

from disavow.audit.difference import difference
from disavow.audit.game import Floats, Scores
from disavow.audit.intervals import Interval
from disavow.audit.roc import Measure, advantage, auc, roc, tpr_at
from disavow.errors import ConfigError
from tests.audit.scoring import (
    BAD,
    DATA_SETS,
    PROMISED,
    SEPARATED,
    TIED,
    any_scores,
    held,
    known,
    swapped,
    swapped_order,
)
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY
from tests.selection import some_of


def normal(shift: float, present: int, absent: int, seed: int, *, width: float = 1.0) -> Scores:
    """Two Gaussians: absent ones standard, present ones shifted, and wider where asked to."""
    rng = np.random.default_rng(seed)
    return Scores(shift + width * rng.normal(size=present), rng.normal(size=absent))


def moved(scores: Scores, how: Callable[[Floats], Floats]) -> Scores:
    return Scores(how(scores.present), how(scores.absent))


def unknown(measure: Measure) -> str:
    assert measure.estimate is None
    assert measure.interval is None
    assert not measure.estimable
    return measure.reason or ""


def shift_for(area: float, width: float = 1.0) -> float:
    return float(special.ndtri(area)) * math.hypot(1, width)


# ---- the curve ------------------------------------------------------------------------------------------------


@given(any_scores)
@PROPERTY
def test_the_curve_has_the_rates_of_every_score_as_a_threshold(scores: Scores) -> None:
    curve = roc(scores)
    everyone = np.concatenate([scores.present, scores.absent])
    np.testing.assert_array_equal(curve.thresholds, [np.inf, *sorted(set(everyone.tolist()), reverse=True)])
    for rates, side in ((curve.fpr, scores.absent), (curve.tpr, scores.present)):
        np.testing.assert_allclose(rates, [np.mean(side >= each) for each in curve.thresholds], atol=1e-12)


@given(any_scores)
@PROPERTY
def test_the_curve_climbs_from_nobody_to_everybody(scores: Scores) -> None:
    curve = roc(scores)
    assert (curve.fpr[0], curve.tpr[0], curve.thresholds[0]) == (0, 0, np.inf)
    assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    assert (np.diff(curve.fpr) + np.diff(curve.tpr) > 0).all()
    assert (np.diff(curve.thresholds) < 0).all()


@given(any_scores)
@PROPERTY
def test_the_area_below_the_curve_is_the_auc(scores: Scores) -> None:
    curve = roc(scores)
    area = np.sum(np.diff(curve.fpr) * (curve.tpr[1:] + curve.tpr[:-1]) / 2)
    assert known(auc(scores))[0] == pytest.approx(area, abs=1e-12)


def test_a_tie_is_one_diagonal_step() -> None:
    curve = roc(Scores(np.array([2.0, 1.0]), np.array([1.0, 0.0])))
    assert curve.fpr.tolist() == [0, 0, 0.5, 1]
    assert curve.tpr.tolist() == [0, 0.5, 1, 1]
    assert roc(TIED).fpr.tolist() == roc(TIED).tpr.tolist() == [0, 1]


def test_a_curve_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        roc(TIED).fpr[0] = 1


# ---- AUC ------------------------------------------------------------------------------------------------------


@given(any_scores)
@PROPERTY
def test_the_auc_is_that_of_scikit_learn(scores: Scores) -> None:
    labels = [1] * len(scores.present) + [0] * len(scores.absent)
    expected = roc_auc_score(labels, np.concatenate([scores.present, scores.absent]))
    assert known(auc(scores))[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5, -1.0])
def test_two_gaussians_have_the_auc_of_the_textbook(shift: float) -> None:
    estimate, interval = known(auc(normal(shift, 20_000, 20_000, seed=1)))
    expected = float(special.ndtr(shift / math.sqrt(2)))
    assert estimate == pytest.approx(expected, abs=0.01)
    assert expected in interval
    assert interval.width < 0.02


@given(any_scores, st.floats(0.5, 0.999))
@PROPERTY
def test_the_interval_of_the_auc_has_a_width_and_stays_on_the_scale(scores: Scores, level: float) -> None:
    estimate, interval = known(auc(scores, level))
    assert 0 <= interval.low <= estimate <= interval.high <= 1
    assert interval.width > 0.05


@given(any_scores)
@PROPERTY
def test_swapping_present_and_absent_mirrors_the_auc(scores: Scores) -> None:
    estimate, interval = known(auc(scores))
    mirrored, other = known(auc(swapped(scores)))
    assert mirrored == pytest.approx(1 - estimate, abs=1e-12)
    assert (other.low, other.high) == pytest.approx((1 - interval.high, 1 - interval.low), abs=1e-9)


@given(any_scores)
@PROPERTY
def test_only_the_order_of_scores_counts(scores: Scores) -> None:
    for how in (np.exp, np.cbrt, lambda values: 3 * values - 7):
        other = moved(scores, how)
        assert auc(scores) == auc(other)
        assert advantage(scores) == advantage(other)
        assert difference(scores, [swapped_order(scores)]) == difference(other, [swapped_order(other)])


def test_perfect_attackers_are_not_surely_perfect() -> None:
    estimate, interval = known(auc(SEPARATED))
    assert estimate == interval.high == 1
    assert 0.6 < interval.low < 0.9
    estimate, interval = known(auc(swapped(SEPARATED)))
    assert estimate == interval.low == 0
    assert 0.1 < interval.high < 0.4


def test_one_unit_on_a_side_says_next_to_nothing() -> None:
    one = np.array([0.0])
    for scores in (Scores(one + 1, one), Scores(one + 1, np.zeros(100)), Scores(np.ones(100), one)):
        estimate, interval = known(auc(scores))
        assert estimate == interval.high == 1
        assert interval.low == pytest.approx(1 / (1 + 1.959964**2), abs=1e-6)


def test_more_units_say_more() -> None:
    widths = [known(auc(normal(1, units, units, seed=2)))[1].width for units in (10, 40, 160, 640)]
    assert widths == sorted(widths, reverse=True)
    higher = [known(auc(SEPARATED, level))[1].width for level in (0.8, 0.95, 0.999)]
    assert higher == sorted(higher)


# ---- simulations: intervals hold the truth as often as promised ----------------------------------------------


@pytest.mark.parametrize(
    ("units", "area"),
    some_of(product([30, 70, 300], [0.5, 0.8, 0.98]), [(30, 0.5), (30, 0.98), (70, 0.8), (300, 0.98)]),
)
def test_the_interval_of_the_auc_holds_the_truth(units: int, area: float) -> None:
    found = (auc(normal(shift_for(area), units, units, seed)) for seed in range(DATA_SETS))
    assert held(area, [known(measure)[1] for measure in found]) >= PROMISED


@pytest.mark.parametrize(
    ("present", "absent", "width"),
    some_of(
        [(*sizes, width) for width in [0.3, 3.0] for sizes in [(30, 360), (300, 30), (64, 64)]],
        [(30, 360, 3.0), (300, 30, 0.3), (64, 64, 3.0)],
    ),
)
def test_it_does_so_where_one_side_is_wider_or_larger(present: int, absent: int, width: float) -> None:
    shift = shift_for(0.8, width)
    found = (auc(normal(shift, present, absent, seed, width=width)) for seed in range(DATA_SETS))
    assert held(0.8, [known(measure)[1] for measure in found]) >= PROMISED


def test_the_interval_of_the_tpr_holds_the_truth() -> None:
    truth = float(special.ndtr(2 - special.ndtri(0.99)))
    found = (tpr_at(normal(2, 100, 1000, seed), 0.01) for seed in range(DATA_SETS))
    assert held(truth, [known(measure)[1] for measure in found]) >= 0.95


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_interval_of_the_advantage_holds_the_truth(shift: float) -> None:
    truth = float(2 * special.ndtr(shift / 2) - 1)
    found = (advantage(normal(shift, 60, 60, seed)) for seed in range(DATA_SETS))
    assert held(truth, [known(measure)[1] for measure in found]) >= 0.95


# ---- TPR at a given FPR ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fpr", [0.01, 0.001])
def test_two_gaussians_have_the_tpr_of_the_textbook(fpr: float) -> None:
    estimate, interval = known(tpr_at(normal(2, 20_000, 50_000, seed=3), fpr))
    expected = float(special.ndtr(2 - special.ndtri(1 - fpr)))
    assert estimate == pytest.approx(expected, rel=0.1)
    assert expected in interval
    assert estimate in interval


@pytest.mark.parametrize(
    ("fpr", "absent", "needs"), [(0.01, 360, "1,000"), (0.001, 9999, "10,000"), (0.01, 999, "1,000")]
)
def test_a_rare_rate_is_not_estimable_from_few_absent_units(fpr: float, absent: int, needs: str) -> None:
    reason = unknown(tpr_at(normal(2, 70, absent, seed=4), fpr))
    assert reason == (
        f"the true-positive rate at a false-positive rate of {100 * fpr:g} % needs {needs} absent units, "
        f"there are {absent:,}"
    )


def test_just_enough_absent_units_are_enough() -> None:
    present = np.array([2000.0, 990.0, 989.5, 989.0, 5.0])
    estimate, interval = known(tpr_at(Scores(present, np.arange(1000.0)), 0.01))
    assert estimate == 3 / 5  # ten of the absent, 990 and above, are called present: all above 989 are
    assert estimate in interval


def test_the_tpr_lies_on_the_slope_of_a_tie() -> None:
    estimate, interval = known(tpr_at(Scores(np.zeros(50), np.zeros(1000)), 0.01))
    assert estimate == pytest.approx(0.01)
    assert (interval.low, interval.high) == (0, 1)


def test_every_present_unit_above_every_absent_one() -> None:
    estimate, interval = known(tpr_at(Scores(np.full(50, 9.0), np.arange(1000.0) / 1000), 0.01))
    assert estimate == interval.high == 1
    assert 0.85 < interval.low < 1


@given(st.lists(st.integers(-4, 9).map(float), min_size=1, max_size=30).map(np.array), st.integers(0, 10**6))
@PROPERTY
def test_the_tpr_stays_on_the_scale(present: Floats, seed: int) -> None:
    absent = np.random.default_rng(seed).integers(-4, 6, size=100).astype(float)
    estimate, interval = known(tpr_at(Scores(present, absent), 0.1))
    assert 0 <= interval.low <= estimate <= interval.high <= 1
    assert interval.width > 0


# ---- advantage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_two_gaussians_have_the_advantage_of_the_textbook(shift: float) -> None:
    estimate, interval = known(advantage(normal(shift, 20_000, 20_000, seed=6)))
    expected = float(2 * special.ndtr(shift / 2) - 1)
    assert estimate == pytest.approx(expected, abs=0.02)
    assert expected in interval


def test_the_ends_of_the_advantage() -> None:
    assert known(advantage(SEPARATED))[0] == 1
    assert known(advantage(swapped(SEPARATED)))[0] == 0
    assert known(advantage(TIED))[0] == 0


@given(any_scores)
@PROPERTY
def test_the_advantage_stays_on_the_scale(scores: Scores) -> None:
    estimate, interval = known(advantage(scores))
    assert 0 <= interval.low <= estimate <= interval.high <= 1
    assert interval.width > 0.1


# ---- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scores", "reason"), BAD)
def test_what_cannot_be_told_is_said_with_the_reason(scores: Scores, reason: str) -> None:
    for measure in (auc(scores), advantage(scores), tpr_at(scores, 0.01)):
        assert unknown(measure) == reason
        assert str(measure) == f"not estimable: {reason}"
    with refuses(ConfigError, reason):
        roc(scores)


def test_a_measure_prints_its_interval() -> None:
    assert str(Measure.of(0.8126, Interval(0.7, 0.9))) == "0.813 (0.700-0.900)"
