"""The loss threshold: a known ROC, and no overflow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from disavow.audit.attackers import LossThreshold
from disavow.audit.game import Stage
from disavow.audit.roc import auc
from tests.audit.attackers.builders import game, handed


def test_the_score_is_minus_the_cross_entropy() -> None:
    probability = np.array([0.01, 0.5, 0.9])
    scores = LossThreshold().scores(handed(special.logit(probability), special.logit(probability[:1])))
    np.testing.assert_allclose(scores.present, np.log(probability))
    np.testing.assert_allclose(scores.absent, np.log(probability[:1]))


def test_it_stays_finite_and_keeps_the_order_however_sure_the_model_is() -> None:
    confidence = np.array([-1e6, -80.0, -1.0, 0.0, 1.0, 40.0, 80.0])
    scores = LossThreshold().scores(handed(confidence, confidence))
    assert np.isfinite(scores.present).all()
    assert (np.diff(scores.present) > 0).all()
    assert scores.present[1] == pytest.approx(-80)


def test_its_auc_is_that_of_two_gaussians() -> None:
    found = auc(LossThreshold().scores(game(1.0, own=2000, held_out=2000, shadows=0, seed=1, difficulty=0.0)))
    assert found.interval is not None
    assert float(special.ndtr(1 / np.sqrt(2))) in found.interval


def test_stages_have_the_names_of_reports() -> None:
    assert [str(stage) for stage in Stage] == ["before", "answered", "served", "retrained"]
