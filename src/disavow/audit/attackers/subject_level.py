"""Models that know a client's data better than other data of its kind have seen the client.

A. Suri, P. Kanani, V. J. Marathe and D. W. Peterson, "Subject Membership Inference Attacks in Federated Learning"
(2022). Theirs compare the subject's mean loss with a threshold; ours takes the same model's loss on held-out
records off first, so that worlds with a better model all over do not count as worlds with the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from disavow.audit.game import Attacker, Floats, Handed, Need, Scores, Unit, Worlds


@dataclass(frozen=True)
class SubjectLevel(Attacker):
    """All of the client's records together, one score a world."""

    name = "subject level"
    unit: ClassVar[Unit] = "world"
    needs: ClassVar[tuple[Need, ...]] = ("held-out records",)

    def scores(self, handed: Handed) -> Scores:
        """Score by how much the mean loss is lower on the client's records than on held-out ones."""
        return Scores(_gap(handed.present), _gap(handed.absent))


def _gap(worlds: Worlds) -> Floats:
    return worlds.held_out_loss - worlds.own_loss
