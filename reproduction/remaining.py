"""What is still to be run: how many runs of each study and network are made, and about how many rounds are left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

PAPER = "paper"
"""What the grids of the paper's tables are called, which have no name of their own."""


class Planned(NamedTuple):
    """A run: which study and network it is of, whether it is made, and about how many rounds it executes."""

    study: str
    network: str
    made: bool
    rounds: float


@dataclass(frozen=True)
class Remaining:
    """The runs of a study and network."""

    study: str
    network: str
    runs: int
    made: int
    rounds: int
    """That the missing ones execute, as if none could share what others train."""

    def __str__(self) -> str:
        left = f"; at most about {self.rounds:,} rounds to train" if self.made < self.runs else ""
        return f"{self.study}, {self.network}: {self.made:,} of {self.runs:,} runs are made{left}"


def remaining(planned: Iterable[Planned]) -> list[Remaining]:
    """Count the runs of each study and network, in the order in which these come first."""
    groups: dict[tuple[str, str], list[Planned]] = {}
    for run in planned:
        groups.setdefault((run.study or PAPER, run.network), []).append(run)
    return [
        Remaining(
            study=study,
            network=network,
            runs=len(runs),
            made=sum(run.made for run in runs),
            rounds=round(sum(run.rounds for run in runs if not run.made)),
        )
        for (study, network), runs in groups.items()
    ]
