"""What an audit sees with so many worlds: against simulations of its own intervals, and the other way round."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from disavow.audit.audit import FEWEST_WORLDS, Effort, worlds_to_detect
from disavow.audit.difference import difference
from disavow.audit.game import Scores
from disavow.audit.power import POWER, power, smallest_seen, worlds_for
from disavow.audit.roc import roc
from disavow.errors import ConfigError

LEVEL = 1 - 0.05 / 6


def detected(advantage: float, worlds: int, audits: int = 600) -> float:
    """In what share of simulated audits the interval lies above 0."""
    shift, rng, seen = 2 * special.ndtri((1 + advantage) / 2), np.random.default_rng(1), 0
    for _ in range(audits):
        served, retrained, absent = rng.normal(size=(3, worlds // 2))
        seen += difference(Scores(served + shift, absent), [Scores(retrained, absent)], LEVEL).interval.low > 0
    return seen / audits


@pytest.mark.parametrize(("advantage", "worlds"), [(0.2, 64), (0.2, 208), (0.4, 64), (0.5, 32), (0.1, 814)])
def test_it_is_how_often_the_audits_own_interval_lies_above_nought(advantage: float, worlds: int) -> None:
    assert power(advantage, worlds, LEVEL) == pytest.approx(detected(advantage, worlds), abs=0.05)


def test_the_advantage_is_that_of_a_roc_curve() -> None:
    shift = 2 * special.ndtri((1 + 0.2) / 2)
    rng = np.random.default_rng(2)
    curve = roc(Scores(rng.normal(size=200_000) + shift, rng.normal(size=200_000)))
    assert (curve.tpr - curve.fpr).max() == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("advantage", [0.05, 0.1, 0.2, 0.3, 0.5])
def test_the_number_of_worlds_is_the_smallest_that_suffices(advantage: float) -> None:
    worlds = worlds_for(advantage, LEVEL, fewest=32, most=100_000)
    assert worlds % 2 == 0
    assert power(advantage, worlds, LEVEL) >= POWER > power(advantage, worlds - 2, LEVEL)
    assert smallest_seen(worlds, LEVEL) <= advantage < smallest_seen(worlds - 2, LEVEL)


def test_what_is_easily_seen_takes_the_fewest_worlds() -> None:
    assert worlds_to_detect(0.9) == FEWEST_WORLDS
    assert Effort(detect=0.9).needed == FEWEST_WORLDS
    assert Effort().needed is None


@pytest.mark.parametrize("advantage", [-0.1, 0.0, 1.0, 1.5, float("nan"), 0.005])
def test_what_is_no_advantage_or_too_small_for_any_number_is_refused(advantage: float) -> None:
    with pytest.raises(ConfigError):
        worlds_to_detect(advantage)
