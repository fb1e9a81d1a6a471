"""Global models that moved the way the client's update points have averaged it in.

The server, or whoever keeps the models of all rounds, sees each global step and compares it with the update that
the client would have sent: vectors of so many dimensions are all but orthogonal unless one is part of the other.

J. Li, N. Li and B. Ribeiro, "Effective Passive Membership Inference Attacks in Federated Learning against
Overparameterized Models" (2023) do so with one record's gradient and one client's update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from disavow.audit.game import Attacker, Handed, Need, Scores, Unit


@dataclass(frozen=True)
class UpdateAlignment(Attacker):
    """One score a world, from the whole course of training instead of its end."""

    name = "update alignment"
    unit: ClassVar[Unit] = "world"
    needs: ClassVar[tuple[Need, ...]] = ()

    def scores(self, handed: Handed) -> Scores:
        """Score by the mean cosine of the client's update with the global step; see `Attacker`."""
        return Scores(handed.present.alignment, handed.absent.alignment)
