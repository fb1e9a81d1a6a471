"""How a model is rebuilt after a rollback. One interface; each mechanism says what it needs stored."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from disavow.federation.local_training import Engine
from disavow.federation.round import Conduct
from disavow.federation.spending import Room
from disavow.ledger import Ledger


class Mechanism(Protocol):
    """Rebuilds superseded rounds with the survivors, one at a time, so that a crash loses one at most."""

    @property
    def name(self) -> str:
        """What the ledger and the reports call it."""

    @property
    def exact(self) -> bool:
        """Whether the result is that of a run which the leavers never joined."""

    @property
    def needs(self) -> frozenset[str]:
        """What must have been stored beyond the ledger's own rows and models."""

    def obstacle(self, ledger: Ledger, conduct: Conduct, leavers: int = 0) -> str | None:
        """Why the next round cannot be rebuilt once `leavers` more have left; None when it can.

        A spent privacy budget is one; who would leave decides what a round costs, so it is looked at only for
        `leavers` = 0. `room` foresees it.
        """

    def room(self, ledger: Ledger, conduct: Conduct, *, first: int, rounds: int, leavers: Collection[str]) -> Room:
        """How many of so many rounds from `first` on the privacy budget lets it rebuild once these have left."""

    def rebuild_next(self, ledger: Ledger, engine: Engine, conduct: Conduct) -> None:
        """Rebuild and record the next round."""


__all__ = ["Mechanism"]
