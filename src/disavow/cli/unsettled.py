"""Why the model that a run serves now is not the one that it will serve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from disavow import config
from disavow.domain import model_name
from disavow.ledger import Ledger
from disavow.ledger.creation import CONFIG
from disavow.ledger.journal import Rebuilding
from disavow.ledger.keys import default_folder
from disavow.ledger.tombstones import Restored


@dataclass(frozen=True)
class Unsettled:
    """What is still to be done before a run serves its model again; false when nothing is."""

    rebuild: Rebuilding | None
    restored: Restored
    next_round: int
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.rebuild is not None or bool(self.restored.clients)

    @property
    def unfinished(self) -> str | None:
        """How far a rebuild is, in words."""
        if self.rebuild is None:
            return None
        left = max(self.rebuild.target - self.next_round + 1, 0)
        return (
            f"a rollback to round {self.rebuild.first} is unfinished: {left} of "
            f"{self.rebuild.target - self.rebuild.first + 1} rounds are still to be rebuilt, and "
            f"{model_name(self.next_round - 1)} is all there is meanwhile; {self.remedy}"
        )

    @property
    def forgotten(self) -> str | None:
        """Whom a run that was restored from a backup has forgotten, in words."""
        told = str(self.restored)
        if self.restored.clients:
            told += f"; {self.remedy}, and withdraws them first"
        return told or None

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        rebuild = self.rebuild
        return {
            "rebuild": None
            if rebuild is None
            else {"first": rebuild.first, "last": rebuild.target, "next": self.next_round},
            "restored": {"clients": list(self.restored.clients), "unknown": self.restored.strangers},
        }


def unsettled(ledger: Ledger) -> Unsettled:
    """Look whether rounds are still to be rebuilt, and whether leavers are in the run again."""
    with ledger.snapshot() as snapshot:
        forgotten = snapshot.restored_from_backup(default_folder())
        found = Unsettled(snapshot.rebuilding(), forgotten, snapshot.last_round + 1)
    return replace(found, remedy=_remedy(ledger.directory)) if found else found


def _remedy(directory: Path) -> str:
    """Who goes on with the run."""
    if config.load(directory / CONFIG).engine.name == "flower":
        return "its Flower server app goes on"
    return f"`disavow resume {directory}` goes on"
