"""What a judgement comes to: a value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SURVIVORS = "survivors"
"""The criterion that every run is judged by: it goes without saying."""


class VerdictKind(StrEnum):
    """What a judgement can come to."""

    NEVER_PRESENT = "never present"
    DENIABLE = "deniable"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Verdict:
    """A judgement over standing rounds. `round` is the first broken round of a rollback.

    `back_to` is the round to which it goes back, where that is an earlier one: the model broadcast in the broken
    round may not be kept. `criterion` is the one that does not hold in the broken round, the first of several; None
    where that round was rebuilt, in which nobody is deniable by any.

    Attributes:
        kind: Never present, deniable, or a rollback.

    >>> str(Verdict(VerdictKind.DENIABLE)), str(Verdict(VerdictKind.ROLLBACK, round=7))
    ('deniable', 'rollback to round 7')
    >>> str(Verdict(VerdictKind.ROLLBACK, round=7, back_to=5))
    'rollback to round 5'
    """

    kind: VerdictKind
    round: int | None = None
    back_to: int | None = None
    criterion: str | None = field(default=None, compare=False)

    @property
    def undoes(self) -> int | None:
        """The first round that is undone, if any is."""
        return self.back_to or self.round

    @property
    def in_full(self) -> str:
        """The verdict with what brought it about, and what made it go back further than it had to.

        >>> print(Verdict(VerdictKind.ROLLBACK, round=2, criterion="odds").in_full)
        rollback to round 2 (by criterion odds)
        >>> print(Verdict(VerdictKind.ROLLBACK, round=2, back_to=1).in_full)
        rollback to round 1 (broken at round 2; it goes back to the initial model: 1 more round is undone)
        """
        by = f"by criterion {self.criterion}" if self.criterion not in (None, SURVIVORS) else ""
        if self.round is None or self.back_to is None:
            return f"{self} ({by})" if by else str(self)
        more = self.round - self.back_to
        rounds = f"{more} more rounds are" if more > 1 else "1 more round is"
        start = model_name(self.back_to - 1)
        return f"{self} (broken at round {self.round}{by and ' ' + by}; it goes back to {start}: {rounds} undone)"

    def __str__(self) -> str:
        return self.kind.value if self.undoes is None else f"{self.kind.value} to round {self.undoes}"


def model_name(number: int) -> str:
    """Return what people call the model that a round produced; round 0 stands for the initial one."""
    return f"the model of round {number}" if number else "the initial model"
