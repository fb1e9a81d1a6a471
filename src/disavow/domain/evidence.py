"""What the judge sees of the rounds that a withdrawal touches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SlotEvidence:
    """One slot of a cluster as the judge sees it, after the withdrawal.

    `surviving_neighbours` counts the participants still in whose updates lay within Δ of this slot's, itself
    left out; None where the criterion does not ask.
    """

    survives: bool
    surviving_neighbours: int | None = None


@dataclass(frozen=True)
class RebuiltEvidence:
    """A standing rebuilt round that a leaver contributed to. It has no clusters, so nobody is deniable in it."""

    round: int


@dataclass(frozen=True)
class ClusterEvidence:
    """A cluster of a standing round that a withdrawal touches."""

    round: int
    delta: float
    spread: float
    slots: tuple[SlotEvidence, ...]

    @property
    def survivors(self) -> int:
        """How many of its members are still in."""
        return sum(slot.survives for slot in self.slots)
