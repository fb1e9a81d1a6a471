"""A run that is older than its keyring: it was restored from a backup, and some who left are in it again."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger import log
from disavow.ledger.keyring import Head
from disavow.ledger.members import UNKNOWN, Members
from disavow.ledger.schema import requests, run

_TRIES = 20


@dataclass(frozen=True)
class Restored:
    """What a run has forgotten and its keyring has not.

    Args:
        older: Whether the run is older than its keyring.
        slots: How many slots are filled by clients who were forgotten, and were never withdrawn.

    """

    older: bool = False
    slots: int = 0

    def __str__(self) -> str:
        if not self.older:
            return ""
        told = "older than its keyring, as if restored from a backup"
        return f"{told}: {self.slots} of its slots are of clients who were forgotten since" if self.slots else told

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell whoever has opened the run for writing."""
        if not self.older:
            return ()
        first = "; they are withdrawn first" if self.slots else ""
        return (f"this run is {self}{first} (docs/backup.md)",)


def restored(connection: sa.Connection, members: Members) -> Restored:
    """Compare a run with its keyring. Where the run is older, every client is tried in every round.

    Args:
        connection: The ledger.
        members: Who is who in it.

    Raises:
        KeyringOutdated: The keyring is older than the run, or of another history.

    """
    if not members.keyring.exists or not (_is_older(connection, members) or _waits(connection)):
        return Restored()
    return Restored(older=True, slots=len(members.unknown_slots(connection)))


def _waits(connection: sa.Connection) -> bool:
    """Whether whoever was forgotten is still to be withdrawn, though the keyring has taken the run's head."""
    waiting = sa.select(requests.c.id).where(
        requests.c.client == UNKNOWN, requests.c.erasure.is_(None), requests.c.cancelled_at.is_(None)
    )
    return connection.execute(waiting).first() is not None


def _is_older(connection: sa.Connection, members: Members) -> bool:
    """Whether the run is older. Another process may be recording: what was read before and after must agree."""
    for _ in range(_TRIES):
        before = members.keyring.heads()
        head = log.head_of(connection, members.run_id)
        generation: int = connection.execute(sa.select(run.c.keyring)).scalar_one()
        if members.keyring.heads() == before:
            break
        connection.rollback()  # a new look at the run
    return members.keyring.refuse_outdated(generation, Head(head.size, head.root))
