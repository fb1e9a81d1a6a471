"""Who hears how requests are answered, where openings go, and what a report adds. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.domain import Verdict
from disavow.erasure.proof_files import check_openings, default_openings
from disavow.ledger import Ledger

if TYPE_CHECKING:
    from disavow.rounds.training import OnRound

OnVerdict = Callable[[Verdict, int], None]
"""Called with a verdict and how many requests it answers, as soon as it is in the ledger."""

OnOpening = Callable[[int, Path], None]
"""Called with a request and where its opening was written."""

Remark = Callable[[Ledger], str]
"""What the report of a rebuild says beyond its cost, looked up just before it is complete; "" for nothing."""


@dataclass(frozen=True)
class Reporting:
    """Who hears how requests are answered, and where openings go. Each may be left out.

    Args:
        on_verdict: Called with each verdict, also on requests that come meanwhile.
        on_round: Called after each round that was rebuilt.
        openings: The folder for the openings of leavers who named no other; without it, one beside the run.
        on_opening: Called with where each opening was written.
        remark: What the report of a rebuild says beyond its cost.

    """

    on_verdict: OnVerdict = lambda verdict, requests: None
    on_round: OnRound = lambda summary: None
    openings: Path | None = None
    on_opening: OnOpening = lambda request, path: None
    remark: Remark = lambda ledger: ""

    def folder(self, run: Path) -> Path:
        """Give the folder for openings.

        Args:
            run: The run directory.

        Raises:
            ConfigError: It cannot be used.

        """
        return check_openings(self.openings or default_openings(run), run)


SILENT = Reporting()
