"""Everything the server keeps: per round the cluster membership and the global model.

A run directory holds ``config.toml`` (settings, no ids), ``ledger.sqlite3`` (rows), ``models/`` (one file per
model, named by its digest) and ``lock`` (who is writing).
"""

from disavow.ledger.findings import Finding
from disavow.ledger.fsck import fsck
from disavow.ledger.ledger import Ledger
from disavow.ledger.reader import Reader
from disavow.ledger.rounds import RoundSummary
from disavow.ledger.transaction import Snapshot, Transaction

__all__ = ["Finding", "Ledger", "Reader", "RoundSummary", "Snapshot", "Transaction", "fsck"]
