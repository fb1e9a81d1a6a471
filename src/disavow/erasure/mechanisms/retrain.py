"""Retrain: run the superseded rounds again with the survivors. Exact, and needs nothing but the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.config import participants_of
from disavow.federation.local_training import Engine
from disavow.federation.round import Conduct, run_round
from disavow.ledger import Ledger


@dataclass(frozen=True)
class Retrain:
    """See `Mechanism`."""

    name: str = "retrain"
    exact: bool = True
    needs: frozenset[str] = frozenset()

    def obstacle(self, ledger: Ledger, conduct: Conduct, leavers: int = 0) -> str | None:
        """Fewer than k participants make no cluster."""
        survivors = len(ledger.clients()) - leavers
        participants = participants_of(survivors, conduct.fraction) if survivors > 0 else 0
        if participants >= ledger.policy.k:
            return None
        return f"{participants} participants are left, fewer than k = {ledger.policy.k}"

    def rebuild_next(self, ledger: Ledger, engine: Engine, conduct: Conduct) -> None:
        """A round like any other; only its attempt is higher, so that its secret draws are new."""
        run_round(ledger, engine, conduct)
