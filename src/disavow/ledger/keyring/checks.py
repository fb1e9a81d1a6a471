"""Checks of a keyring: that every client's key is there and opens its id, and that no other key is."""

from __future__ import annotations

import sqlite3

from disavow.errors import ConfigError
from disavow.ledger.keyring.key_files import NO_KEY
from disavow.ledger.keyring.schema import IN_USE, SUCCESSOR
from disavow.ledger.keyring.store import ClientKey, KeyringStore

_TRIES = 20


class Checks(KeyringStore):
    """What is wrong with a keyring."""

    def faults(self) -> list[str]:
        """Check that every client's key is there and opens its id, and that no other key is."""
        found = []
        with self._reading() as connection:
            for (message,) in connection.execute("PRAGMA integrity_check"):
                if message != "ok":
                    found.append(f"its table is damaged: {message}")
            for _ in range(_TRIES):
                before = self._fact("generation")
                of_clients = self._faults_of_clients(connection)
                if self._fact("generation") == before:  # or else somebody came or left meanwhile
                    break
        return found + of_clients

    def _faults_of_clients(self, connection: sqlite3.Connection) -> list[str]:
        # rows before keys: a key is there before its row says so, and overwritten before its row goes
        query = "SELECT number, place, lookup, sealed, marked, role FROM clients ORDER BY place"
        rows = {row[1]: row for row in connection.execute(query).fetchall()}
        files = self._read_files()
        in_use = {row[2] for row in rows.values() if not row[4] and row[5] == IN_USE}
        present = len(in_use)
        found = (
            [] if self.count() == present else [f"it says that it has {self.count()} clients, and has {present}"]
        )
        for lookup, gone in connection.execute("SELECT lookup, gone FROM tombstones"):
            if bool(gone) == (lookup in in_use):
                found.append(
                    f"a tombstone says that its client is {'gone' if gone else 'in again'}, which it is not"
                )
        for place in range(1, len(files[0])):
            keys = tuple(file[place] for file in files)
            if place not in rows:
                if any(key != NO_KEY for key in keys) and not self._fact("registering"):
                    found.append(f"the key at place {place} is still there, though its client was forgotten")
                continue
            number, _, lookup, sealed, marked, role = rows[place]
            if marked:
                continue
            if role == SUCCESSOR and lookup not in in_use:
                found.append(f"the key at place {place} succeeds a client who is not there")
            try:
                client = self._open_id(ClientKey(number, "", keys), sealed)
            except ConfigError:
                found.append(f"the key at place {place} does not open the id of its client")
                continue
            if self._lookup(client) != lookup:
                found.append(f"the client at place {place} has the hash of another id")
        return found
