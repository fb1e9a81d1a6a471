"""Everything the server keeps: per round the cluster membership and the global model.

A run directory holds ``config.toml`` (settings, no ids), ``ledger.sqlite3`` (rows), ``models/`` (one file per
model, named by its digest) and ``lock`` (who is writing).
"""

from typing import TYPE_CHECKING, Any

from disavow.ledger.findings import Finding
from disavow.ledger.ledger import Ledger
from disavow.ledger.reader import Reader
from disavow.ledger.rounds import RoundSummary
from disavow.ledger.transaction import Snapshot, Transaction

if TYPE_CHECKING:
    from disavow.ledger.fsck_run import fsck

__all__ = ["Finding", "Ledger", "Reader", "RoundSummary", "Snapshot", "Transaction", "fsck"]


def __getattr__(name: str) -> Any:
    if name == "fsck":  # loads the verifier, which nothing else here needs
        from disavow.ledger.fsck_run import fsck

        return fsck
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
