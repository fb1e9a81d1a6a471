"""How far a run has come: what its keyring notes of it, to notice a copy that is older or of another history."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.schema import log, run
from disavow.proof.merkle import HASH_BYTES, root_of_frontier


@dataclass(frozen=True)
class RunState:
    """How far a run has come.

    Args:
        history: Random; a new one since a restored run was accepted.
        commits: Counts changes of the log and of the requests.
        size: The leaves of the log.
        root: Their Merkle root.

    """

    history: str
    commits: int
    size: int
    root: bytes

    def __str__(self) -> str:
        return f"{self.history} {self.commits} {self.size} {self.root.hex()}"

    @classmethod
    def from_text(cls, text: str) -> RunState:
        """Read back what `str` gives."""
        history, commits, size, root = text.split()
        return cls(history, int(commits), int(size), bytes.fromhex(root))


def new_history() -> str:
    """Draw what tells a history of a run from all others."""
    return secrets.token_hex(16)


def state_of(connection: sa.Connection) -> RunState:
    """Read how far a run has come. The cost does not grow with the log."""
    row = connection.execute(sa.select(run.c.history, run.c.commits)).one()
    last = sa.select(log.c.position, log.c.frontier).order_by(log.c.position.desc()).limit(1)
    newest = connection.execute(last).one_or_none()
    frontier = b"" if newest is None else newest.frontier
    roots = [frontier[start : start + HASH_BYTES] for start in range(0, len(frontier), HASH_BYTES)]
    size = 0 if newest is None else newest.position + 1
    return RunState(row.history, row.commits, size, root_of_frontier(roots))


_COUNT = run.update().values(commits=run.c.commits + sa.bindparam("changes"))


def count_commits(connection: sa.Connection, changes: int = 1) -> None:
    """Count changes of the log or of the requests."""
    connection.execute(_COUNT, {"changes": changes})
