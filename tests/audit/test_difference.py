"""Served minus retrained: in simulations of its promise, by hand, and at the ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from scipy import special

from disavow.audit.difference import Difference, difference
from disavow.audit.game import Scores
from disavow.audit.intervals import Interval
from disavow.audit.roc import auc
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


def models(areas: Sequence[float], units: int, seed: int, *, alike: float, draws: float) -> list[Scores]:
    """The same units on one model for each AUC.

    `alike` is the correlation of a unit's scores on two models, `draws` the deviation between models that differ in
    their secret draws only, in units of the scores.
    """
    rng = np.random.default_rng(seed)
    own, found = rng.normal(size=(2, units)), []
    for area in areas:
        shift = float(special.ndtri(area)) * math.sqrt(2 + draws**2) + draws * rng.normal()
        present, absent = math.sqrt(alike) * own + math.sqrt(1 - alike) * rng.normal(size=(2, units))
        found.append(Scores(present + shift, absent))
    return found


@pytest.mark.parametrize(
    ("units", "area", "alike"),
    some_of(
        product([30, 70, 300], [0.5, 0.8, 0.98], [0.0, 0.9]),
        [(30, 0.5, 0.0), (30, 0.98, 0.9), (70, 0.8, 0.9), (70, 0.98, 0.0), (300, 0.5, 0.9)],
    ),
)
def test_the_interval_of_the_difference_holds_zero_where_nothing_differs(
    units: int, area: float, alike: float
) -> None:
    found = (models([area, area], units, seed, alike=alike, draws=0) for seed in range(DATA_SETS))
    assert held(0, [difference(served, others).interval for served, *others in found]) >= PROMISED


@pytest.mark.parametrize("units", some_of([30, 70, 300], [30, 70]))
def test_the_interval_of_the_difference_holds_a_real_one(units: int) -> None:
    found = (models([0.8, 0.6], units, seed, alike=0.7, draws=0) for seed in range(DATA_SETS))
    assert held(0.2, [difference(served, others).interval for served, *others in found]) >= PROMISED


@pytest.mark.parametrize("retrainings", some_of([2, 3, 4, 6], [2, 4]))
def test_secret_draws_are_allowed_for_when_there_are_several_retrainings(retrainings: int) -> None:
    def intervals(compared: int) -> list[Interval]:
        areas = [0.7] * (1 + retrainings)
        found = (models(areas, 70, seed, alike=0.95, draws=0.3) for seed in range(DATA_SETS))
        return [difference(served, others[:compared]).interval for served, *others in found]

    assert held(0, intervals(retrainings)) >= PROMISED
    assert held(0, intervals(1)) < 0.7  # one retraining cannot show how much retrainings differ


@given(any_scores)
@PROPERTY
def test_exchanging_the_models_turns_the_difference_around(scores: Scores) -> None:
    other = swapped_order(scores)
    there, back = difference(scores, [other]), difference(other, [scores])
    assert there.estimate == pytest.approx(-back.estimate, abs=1e-12)
    assert there.interval.low == pytest.approx(-back.interval.high, abs=1e-9)


@pytest.mark.parametrize("scores", [SEPARATED, swapped(SEPARATED), TIED, Scores(np.ones(1), np.zeros(1))])
@pytest.mark.parametrize("retrainings", [1, 3])
def test_a_difference_of_nothing_is_not_surely_nothing(scores: Scores, retrainings: int) -> None:
    found = difference(scores, [scores] * retrainings)
    assert found.estimate == 0
    assert found.interval.width > 0.1
    assert found.contains_zero


def test_the_largest_difference_there_is() -> None:
    found = difference(SEPARATED, [swapped(SEPARATED)] * 2)
    assert found.estimate == found.interval.high == 1
    assert 0.5 < found.interval.low < 1
    assert not found.contains_zero


def test_a_model_that_remembers_is_told_from_retrained_ones() -> None:
    served, *others = models([0.9, 0.55, 0.55, 0.55], 100, 8, alike=0.8, draws=0.05)
    found = difference(served, others)
    aucs = [known(auc(scores))[0] for scores in others]
    assert found.estimate == pytest.approx(known(auc(served))[0] - sum(aucs) / 3)
    assert found.interval.low > 0
    assert not found.contains_zero


def test_the_same_units_are_compared_with_themselves() -> None:
    """Hard and easy units stay hard and easy: pairing them narrows the interval several times."""
    served, other = models([0.7, 0.7], 200, 9, alike=0.95, draws=0)
    shuffled = Scores(*(np.random.default_rng(1).permutation(side) for side in (other.present, other.absent)))
    paired, unpaired = difference(served, [other]), difference(served, [shuffled])
    assert paired.estimate == pytest.approx(unpaired.estimate)
    assert paired.interval.width < 0.5 * unpaired.interval.width


def test_delongs_variance_by_hand() -> None:
    """Two of four present units fall from the top to the bottom; a quarter squared twice more on either side."""
    served = Scores(np.array([5.0, 6.0, 7.0, 8.0]), np.arange(4.0))
    other = Scores(np.array([5.0, 6.0, -7.0, -8.0]), np.arange(4.0))
    present, absent = (1.0 + 0.125) / 3 / 4, (0.0 + 0.125) / 3 / 4
    total = present + absent
    freedom = total**2 / (present**2 / 3 + absent**2 / 3)
    half = float(special.stdtrit(freedom, 0.975)) * math.sqrt(total)
    assert difference(served, [other]) == Difference(0.5, Interval(0.5 - half, min(1.0, 0.5 + half)))


def test_other_units_cannot_be_compared() -> None:
    with refuses(ConfigError, 10, 12):
        difference(SEPARATED, [SEPARATED, TIED])
    with refuses(ConfigError, 0):
        difference(SEPARATED, [])


@pytest.mark.parametrize(("scores", "reason"), BAD)
def test_scores_that_tell_nothing_cannot_be_compared(scores: Scores, reason: str) -> None:
    with refuses(ConfigError, reason):
        difference(SEPARATED, [scores])
