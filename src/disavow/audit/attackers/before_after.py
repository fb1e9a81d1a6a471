"""Who left is whom the model fits worse than it did: an attacker who has both models, before and after.

A model that was released stays released: whoever kept it compares it with the one that supersedes it. Here the
attacker is told that somebody left, and ranks the clients by how much the loss on their records rose. That the
leaver comes first says nothing against the erasure. Exact retraining gives it away as well, because it is the old
model that remembers; so this attacker accuses nobody, and reports show beside it what it makes of an exact
retraining.

M. Chen, Z. Zhang, T. Wang, M. Backes, M. Humbert and Y. Zhang, "When Machine Unlearning Jeopardizes Privacy"
(2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from disavow.audit.game import Attacker, Floats, Handed, Need, Scores, Unit


@dataclass(frozen=True)
class BeforeAfter(Attacker):
    """Pairs of models, one score a pair."""

    name = "before and after"
    unit: ClassVar[Unit] = "world"
    needs: ClassVar[tuple[Need, ...]] = ()

    def scores(self, handed: Handed) -> Scores:
        """Score how far the leaver stands out; in absent pairs it was in neither model. See `Attacker`."""
        return Scores(
            _standing_out(handed.present.client_loss - handed.before.client_loss),
            _standing_out(handed.absent.client_loss - handed.never.client_loss),
        )


BEFORE_AFTER = BeforeAfter()
"""Not among those who may accuse a server."""


def _standing_out(rise: Floats) -> Floats:
    """How many deviations the leaver's loss rose above the mean of the others'; theirs are in columns 1 and up."""
    others = rise[:, 1:]
    return np.asarray((rise[:, 0] - others.mean(axis=1)) / np.maximum(others.std(axis=1), np.finfo(float).tiny))


def ranks(before: Floats, after: Floats) -> npt.NDArray[np.int64]:
    """Rank the leaver among all clients in each pair, 1 for the one whose loss rose most; ties go against it.

    Args:
        before: Losses by each client, one row a model.
        after: Those of the models that supersede them.

    Returns:
        One rank a pair.

    """
    rise = after - before
    return np.asarray((rise >= rise[:, :1]).sum(axis=1), dtype=np.int64)
