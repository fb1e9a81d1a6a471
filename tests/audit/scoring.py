"""Scores whose figures are known, and how often a promise is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from disavow.audit.game import Scores
from disavow.audit.intervals import Interval
from disavow.audit.roc import Measure

DATA_SETS = 1000
PROMISED = 0.93

SEPARATED = Scores(np.arange(10.0, 20.0), np.arange(10.0))
TIED = Scores(np.zeros(10), np.zeros(12))

# few distinct values, so that ties are common
some = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12).map(np.array)
any_scores = st.builds(Scores, some, some)

NOTHING = np.array([])
BAD = [
    (Scores(NOTHING, np.zeros(3)), "it needs a present unit and an absent one, there are 0 and 3"),
    (Scores(np.zeros(3), NOTHING), "it needs a present unit and an absent one, there are 3 and 0"),
    (Scores(np.array([np.nan, 1.0]), np.array([np.inf])), "2 of 3 scores are not finite numbers"),
]


def swapped(scores: Scores) -> Scores:
    return Scores(scores.absent, scores.present)


def swapped_order(scores: Scores) -> Scores:
    """The same units on another model: each gets the score of its neighbour."""
    return Scores(scores.present[::-1], scores.absent[::-1])


def known(measure: Measure) -> tuple[float, Interval]:
    assert measure.estimate is not None
    assert measure.interval is not None
    assert measure.reason is None
    assert measure.estimable
    return measure.estimate, measure.interval


def held(truth: float, intervals: Sequence[Interval]) -> float:
    return sum(truth in interval for interval in intervals) / len(intervals)
