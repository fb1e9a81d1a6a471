"""A run that is not the one its keyring knows last: restored from a backup, or a copy that others went on from."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.members import UNKNOWN, Members
from disavow.ledger.requests import is_waiting
from disavow.ledger.run_state import state_of
from disavow.ledger.schema import rounds, run

_TRIES = 20


@dataclass(frozen=True)
class Restored:
    """What a run has forgotten and its keyring has not.

    Args:
        older: Whether the run is not, or was not until it was accepted, the one that its keyring knows last.
        slots: How many slots are filled by clients who were forgotten, and were never withdrawn.
        accepted: Whether it is the run that goes on.

    """

    older: bool = False
    slots: int = 0
    accepted: bool = True

    def __str__(self) -> str:
        if not self.older:
            return ""
        description = "restored from a backup"
        if not self.accepted:
            description = f"not in the state that its keyring knows last, as if {description}"
        return (
            f"{description}: {self.slots} of its slots are of clients who were forgotten since"
            if self.slots
            else description
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell whoever has opened the run for writing."""
        return (f"this run is {self}; they are withdrawn first (docs/backup.md)",) if self.slots else ()


def restored(connection: sa.Connection, members: Members) -> Restored:
    """Compare a run with its keyring. Where they differ, every client is tried in every round.

    Args:
        connection: The ledger.
        members: Who is who in it.

    Raises:
        KeyringOutdated: The keyring is older than the run.

    """
    keyring = members.keyring
    if not keyring.exists:
        return Restored()
    matches = False
    for _ in range(_TRIES):  # another process may be recording or forgetting: a look at both must find both still
        known = keyring.states(), keyring.generation
        state = state_of(connection)
        generation: int = connection.execute(sa.select(run.c.keyring)).scalar_one()
        epoch: int = connection.execute(sa.select(sa.func.max(rounds.c.epoch))).scalar() or 1
        if (keyring.states(), keyring.generation) == known:
            matches = keyring.matches(state, generation, epoch)
            break
        connection.rollback()  # a new look at the run
    if matches and not is_waiting(connection, UNKNOWN):
        return Restored()
    return Restored(True, len(members.unknown_slots(connection)), matches)
