"""Retrain: run the superseded rounds again with the survivors. Exact, and needs nothing but the ledger."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from disavow.config import participants_of
from disavow.federation.local_training import Engine
from disavow.federation.round import Conduct, room_for, run_round
from disavow.federation.spending import Room
from disavow.ledger import Ledger


@dataclass(frozen=True)
class Retrain:
    """See `Mechanism`."""

    name: str = "retrain"
    exact: bool = True
    needs: frozenset[str] = frozenset()

    def obstacle(self, ledger: Ledger, conduct: Conduct, leavers: int = 0) -> str | None:
        """Fewer than k participants make no cluster; and rounds that are run again are paid for again."""
        survivors = len(ledger.clients()) - leavers
        participants = participants_of(survivors, conduct.fraction, conduct.at_least) if survivors > 0 else 0
        if participants < ledger.policy.k:
            return f"{participants} participants are left, fewer than k = {ledger.policy.k}"
        if leavers:
            return None
        return self.room(ledger, conduct, first=ledger.next_round()[0], rounds=1, leavers=()).obstacle

    def room(self, ledger: Ledger, conduct: Conduct, *, first: int, rounds: int, leavers: Collection[str]) -> Room:
        """Every round that is run again is released again, and costs what it cost the first time, or more."""
        return room_for(ledger, conduct, first, rounds, leavers)

    def rebuild_next(self, ledger: Ledger, engine: Engine, conduct: Conduct) -> None:
        """A round like any other; only its attempt is higher, so that its secret draws are new."""
        run_round(ledger, engine, conduct)
