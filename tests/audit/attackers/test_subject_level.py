"""The subject-level attack: a known ROC, and worlds with better models do not fool it."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from disavow.audit.attackers import SubjectLevel
from disavow.audit.difference import difference
from disavow.audit.game import Scores, Worlds
from disavow.audit.roc import auc
from tests.audit.attackers.builders import with_worlds, worlds_of


def worlds(count: int, gap: float, seed: int) -> Worlds:
    """Models of very different quality; the client's loss lies lower by `gap`, give or take one."""
    rng = np.random.default_rng(seed)
    quality = 10 + 3 * rng.normal(size=count)
    return worlds_of(count, own_loss=quality - gap + rng.normal(size=count), held_out_loss=quality)


def test_the_score_is_the_gap_between_held_out_and_own_loss() -> None:
    one = worlds_of(1, own_loss=np.array([1.0]), held_out_loss=np.array([3.0]))
    seen = with_worlds(one, worlds(2, 0.0, 1))
    assert SubjectLevel().scores(seen).present.tolist() == [2.0]


def test_its_auc_is_that_of_two_gaussians_whatever_the_quality_of_the_models() -> None:
    present, absent = worlds(500, 1.0, 2), worlds(500, 0.0, 3)
    scores = SubjectLevel().scores(with_worlds(present, absent))
    found = auc(scores)
    assert found.interval is not None
    assert float(special.ndtr(1 / math.sqrt(2))) in found.interval
    uncalibrated = Scores(-present.own_loss, -absent.own_loss)
    assert difference(scores, [uncalibrated]).interval.low > 0.05


def test_worlds_without_a_gap_look_like_the_others() -> None:
    found = auc(SubjectLevel().scores(with_worlds(worlds(64, 0.0, 4), worlds(64, 0.0, 5))))
    assert found.interval is not None
    assert 0.5 in found.interval
