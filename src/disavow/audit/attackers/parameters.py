"""The model's own numbers lie towards the models that were trained with the client.

The attacker trains worlds with the client and worlds without it. It projects the model it is given on the
difference of their means, weighed by the inverse of their covariance (Fisher's linear discriminant): numbers that
vary much from one world to the next say little. There are far fewer worlds than numbers, so the covariance is
shrunk: the numbers are scaled by variances that are drawn half-way to their mean, and the covariance of the scaled
ones half-way to the unit matrix.

Cross-fitted: worlds are dealt to folds, and those of a fold are scored by a direction that none of them had a part
in. A direction fitted to the world that it scores would accuse anybody.

R. A. Fisher, "The Use of Multiple Measurements in Taxonomic Problems" (1936). O. Ledoit and M. Wolf, "A
Well-Conditioned Estimator for Large-Dimensional Covariance Matrices" (2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from disavow.audit.game import Attacker, Floats, Handed, Need, Scores, Unit, Weights

FOLDS = 8


@dataclass(frozen=True)
class ParameterProjection(Attacker):
    """The served model's numbers, and no data at all."""

    name = "parameters"
    unit: ClassVar[Unit] = "world"
    needs: ClassVar[tuple[Need, ...]] = ()

    def scores(self, handed: Handed) -> Scores:
        """Score how far each world's model lies from the middle towards those with the client, in deviations."""
        known, absent = handed.before.weights, handed.absent.weights
        scored = Scores(np.zeros(len(handed.present.weights)), np.zeros(len(absent)))
        for fold in range(FOLDS):
            direction, middle = _discriminant(_without(known, fold), _without(absent, fold))
            for side, worlds in ((scored.present, handed.present.weights), (scored.absent, absent)):
                side[fold::FOLDS] = worlds[fold::FOLDS] @ direction - middle
        return scored


def _without(worlds: Weights, fold: int) -> Floats:
    """All worlds but those of a fold."""
    return np.asarray(worlds[np.arange(len(worlds)) % FOLDS != fold], dtype=np.float64)


def _discriminant(present: Floats, absent: Floats) -> tuple[Floats, float]:
    """Fisher's direction, of unit deviation, and the projection of the point half-way between the means."""
    apart = present.mean(axis=0) - absent.mean(axis=0)
    spread = np.concatenate([present - present.mean(axis=0), absent - absent.mean(axis=0)])
    variance = (spread**2).sum(axis=0) / max(1, len(spread) - 2)
    shrunk = (variance + variance.mean()) / 2
    if not shrunk.any():  # every world of a side is the same: nothing to weigh by
        shrunk = np.ones_like(shrunk)
    scale = np.sqrt(shrunk)
    spread, apart = spread / (scale * np.sqrt(len(spread))), apart / scale
    # (1 + S'S)⁻¹·apart by a system of as many equations as there are worlds (Woodbury)
    inner = np.linalg.solve(np.eye(len(spread)) + spread @ spread.T, spread @ apart)
    direction = apart - spread.T @ inner
    direction /= (np.linalg.norm(direction) or 1.0) * scale
    return direction, float(direction @ (present.mean(axis=0) + absent.mean(axis=0)) / 2)
