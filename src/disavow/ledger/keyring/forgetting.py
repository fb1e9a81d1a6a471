"""Forgetting clients: their keys are overwritten where they lie, and their rows deleted.

Rows are marked first, so that whoever opens the keyring after a crash completes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from disavow.ledger.keyring.key_files import NO_KEY
from disavow.ledger.keyring.schema import IN_USE, SUCCESSOR, note_change
from disavow.ledger.keyring.store import KeyringStore


class Forgetting(KeyringStore):
    """How clients are forgotten, durably, however often that is interrupted."""

    def forget(self, numbers: Iterable[int]) -> None:
        """Destroy the keys of clients, durably. Forgetting one twice is forgetting it once.

        Whoever is in use leaves a tombstone, and takes with it a successor that was prepared. A predecessor leaves
        none: its id is still in.

        Args:
            numbers: The clients.

        """
        with self._writing() as connection:
            left, marked = 0, []
            for number in numbers:
                query = "SELECT lookup, role FROM clients WHERE number = ? AND marked = 0"
                for lookup, role in connection.execute(query, [number]).fetchall():
                    marked.append(number)
                    if role == IN_USE:
                        left += 1
                        entered = (
                            "INSERT INTO tombstones (lookup) VALUES (?) ON CONFLICT (lookup) DO UPDATE SET gone = 1"
                        )
                        connection.execute(entered, [lookup])
                        prepared = "SELECT number FROM clients WHERE lookup = ? AND role = ? AND marked = 0"
                        marked += [found for (found,) in connection.execute(prepared, [lookup, SUCCESSOR])]
            if marked:
                change = "UPDATE clients SET marked = 1, sealed = NULL, openings = NULL WHERE number = ?"
                connection.executemany(change, [[number] for number in marked])
                connection.executemany("DELETE FROM requests WHERE client = ?", [[number] for number in marked])
                note_change(connection, more=-left)
                # the run has come to where they are withdrawn: one from before that was not killed, but restored
                connection.execute("UPDATE facts SET value = '' WHERE name = 'pending'")
        self.finish_forgetting()

    def finish_forgetting(self) -> None:
        """Overwrite the keys of clients who are marked, and delete their rows: a crash may have come between.

        So are keys of nobody, which a crash while clients were registered may have left.
        """
        if not self.unfinished() and not self._fact("registering"):
            return
        with self._writing() as connection:  # nobody else marks a client between the look and the last step
            positions = {place for (place,) in connection.execute("SELECT place FROM clients WHERE marked = 1")}
            if self._fact("registering"):
                used = {place for (place,) in connection.execute("SELECT place FROM clients")}
                positions |= set(range(1, int(self._fact("capacity")) + 1)) - used
            for epoch in range(1, self.epoch + 1):
                self._write_keys(epoch, dict.fromkeys(positions, NO_KEY), capacity=0)
            connection.execute("DELETE FROM clients WHERE marked = 1")
            connection.execute("UPDATE facts SET value = 0 WHERE name = 'registering'")
        with self._table.guard:
            self._present = None
        self._table.drop_deleted()

    def unfinished(self) -> int:
        """Count clients who are marked as forgotten and whose keys may still be there."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM clients WHERE marked = 1").fetchone()[0])
