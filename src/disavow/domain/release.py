"""A model that left the run, and who received it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Release:
    """A model that was exported for somebody.

    Args:
        number: Counts the releases of a run.
        digest: The SHA-256 of its file.
        round: The newest round in it; 0 for the initial model.
        averaged: Of how many rounds' models it is the mean.
        released_at: When.
        recipient: Who received it; None where there is no keyring to say so.
        superseded_at: When that round was undone; None while it stands.

    """

    number: int
    digest: str
    round: int
    averaged: int
    released_at: datetime
    recipient: str | None
    superseded_at: datetime | None = None

    @property
    def superseded(self) -> bool:
        """Whether the run no longer stands by it: whoever has it is to be told."""
        return self.superseded_at is not None

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "number": self.number,
            "digest": self.digest,
            "round": self.round,
            "averaged": self.averaged,
            "released_at": self.released_at.isoformat(),
            "recipient": self.recipient,
            "superseded": self.superseded,
            "superseded_at": self.superseded_at.isoformat() if self.superseded_at else None,
        }
