"""Records on which the model's loss is low took part.

S. Yeom, I. Giacomelli, M. Fredrikson and S. Jha, "Privacy Risk in Machine Learning: Analyzing the Connection to
Overfitting" (2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from disavow.audit.game import Attacker, Floats, Handed, Need, Scores, Unit


@dataclass(frozen=True)
class LossThreshold(Attacker):
    """One threshold for the losses of all records: the simplest attack, and blind to how hard a record is."""

    name = "loss threshold"
    unit: ClassVar[Unit] = "record"
    needs: ClassVar[tuple[Need, ...]] = ("record losses", "held-out records")

    def scores(self, handed: Handed) -> Scores:
        """Score by minus the loss of each record; see `Attacker`."""
        return Scores(_minus_loss(handed.records.own), _minus_loss(handed.records.held_out))


def _minus_loss(confidence: Floats) -> Floats:
    """-log(1 + e^-φ), without overflow for any φ."""
    return np.asarray(-np.logaddexp(0.0, -confidence), dtype=np.float64)
