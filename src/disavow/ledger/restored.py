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
    """Compare a run with its keyring. Where the run may be older, every client is tried in every round.

    A run whose log lacks the keyring's newest leaf alone may also have been stopped by a crash: it is older only if
    somebody was forgotten since.

    Args:
        connection: The ledger.
        members: Who is who in it.

    Raises:
        KeyringOutdated: The keyring is older than the run, or of another history.

    """
    keyring, before = members.keyring, None
    if not keyring.exists:
        return Restored()
    for _ in range(_TRIES):  # another process may be recording or forgetting: two looks at both must agree
        known = keyring.heads(), keyring.generation
        found = log.head_of(connection, members.run_id)
        head = Head(found.size, found.root)
        generation: int = connection.execute(sa.select(run.c.keyring)).scalar_one()
        if (keyring.heads(), keyring.generation) == known:
            lacks = keyring.refuse_outdated(generation, head)
            waiting = _waiting(connection)
            if not lacks and UNKNOWN not in waiting:
                return Restored()
            slots = len(members.unknown_slots(connection))
            forgotten = len({*waiting} - {*keyring.by_number(waiting)}) > 0
            told = Restored(True, slots) if slots or forgotten or head not in known[0] else Restored()
            if before == (known, told) or not told.older:
                return told
            before = known, told
        connection.rollback()  # a new look at the run
    return Restored() if before is None else before[1]


def _waiting(connection: sa.Connection) -> list[int]:
    """The clients, by their numbers, whose requests wait to be judged."""
    query = sa.select(requests.c.client).where(requests.c.erasure.is_(None), requests.c.cancelled_at.is_(None))
    return list(connection.execute(query).scalars())
