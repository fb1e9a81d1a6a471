"""What the judge sees of the rounds that a withdrawal touches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RebuiltEvidence:
    """A standing rebuilt round that a leaver contributed to. It has no clusters, so nobody is deniable in it."""

    round: int


@dataclass(frozen=True)
class ClusterEvidence:
    """A cluster of a standing round that held leavers, after the withdrawal.

    `survivors` is how many of its members are still in, `leavers` who of those that leave now was in it. `ratio` is
    how far another representative would have moved the model, in standard deviations of the noise on it; None
    where there is no Gaussian noise.
    """

    round: int
    delta: float
    spread: float
    survivors: int
    ratio: float | None
    leavers: tuple[int, ...]
