"""Update alignment: a known ROC on cosines of real vectors."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from disavow.audit.attackers import UpdateAlignment
from disavow.audit.game import Worlds
from disavow.audit.roc import auc
from tests.audit.attackers.builders import with_worlds, worlds_of


def worlds(count: int, share: float, seed: int, dimensions: int = 400) -> Worlds:
    """Steps that hold `share` of a unit update, and Gaussian rest of unit length."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(count, dimensions)) / math.sqrt(dimensions)
    steps[:, 0] += share
    return worlds_of(count, alignment=steps[:, 0] / np.linalg.norm(steps, axis=1))


def test_its_auc_is_that_of_two_gaussians() -> None:
    found = auc(UpdateAlignment().scores(with_worlds(worlds(500, 0.05, 1), worlds(500, 0.0, 2))))
    assert found.interval is not None
    assert float(special.ndtr(0.05 * math.sqrt(400) / math.sqrt(2))) in found.interval


def test_worlds_without_the_client_look_like_the_others() -> None:
    found = auc(UpdateAlignment().scores(with_worlds(worlds(64, 0.0, 3), worlds(64, 0.0, 4))))
    assert found.interval is not None
    assert 0.5 in found.interval
