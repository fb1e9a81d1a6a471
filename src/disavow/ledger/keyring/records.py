"""What requests name, and which records were erased; and second keys of clients who stay without some of theirs.

A client that stays gets a *successor*: first prepared, then in use, when its first key becomes a *predecessor*.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from disavow.domain.records import Exclusions
from disavow.errors import ConfigError
from disavow.ledger.keyring.clients import Clients
from disavow.ledger.keyring.schema import IN_USE, PREDECESSOR, SUCCESSOR, note_change, rows_among
from disavow.ledger.pseudonyms import derive


class Records(Clients):
    """Requests for records, erased records, and the successors of clients who had some erased."""

    def ask_openings(self, numbers: Sequence[int], folder: str | None) -> None:
        """Keep the folder that clients' openings are to go to, sealed under their keys; None: none is.

        It is durable once `advance` is, which follows it before the run commits.
        """
        with self._writing(durable=False) as connection:
            for client in self._load_by(connection, "number", numbers):
                number = client.number
                sealed = None if folder is None else self._seal(client.first, number, "openings", folder)
                connection.execute("UPDATE clients SET openings = ? WHERE number = ?", [sealed, number])

    def openings(self, number: int) -> str | None:
        """The folder that a client's opening is to go to; None where none was named."""
        with self._reading() as connection:
            found = connection.execute("SELECT openings FROM clients WHERE number = ?", [number]).fetchone()
            if found is None or found[0] is None:
                return None
            [client] = self._load_by(connection, "number", [number])
            return self._open_sealed(client.first, number, "openings", found[0])

    def ask_records(self, number: int, request: bytes, records: Sequence[str]) -> None:
        """Keep which records a request names, sealed under its client's key, until that is destroyed.

        Args:
            number: The client.
            request: What was drawn for the request.
            records: The keys of the records.

        """
        with self._writing() as connection:
            for client in self._load_by(connection, "number", [number]):
                sealed = self._seal(client.first, number, f"request/{request.hex()}", json.dumps(list(records)))
                connection.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?)", [request, number, sealed])

    def requested_records(self, number: int, request: bytes) -> tuple[str, ...]:
        """The records that a request of a client names; none where that client has been forgotten.

        Args:
            number: The client.
            request: What was drawn for the request.

        """
        with self._reading() as connection:
            query = "SELECT sealed FROM requests WHERE request = ? AND client = ?"
            found = connection.execute(query, [request, number]).fetchone()
            known = self._load_by(connection, "number", [number])
        if found is None or not known:
            return ()
        opened = self._open_sealed(known[0].first, number, f"request/{request.hex()}", found[0])
        return tuple(json.loads(opened))

    def clients_of_requests(self, requests: Sequence[bytes]) -> dict[bytes, int]:
        """Whose these requests are: of those that name records, or went on waiting under a client's next key.

        Args:
            requests: What was drawn for each.

        Returns:
            The numbers of the clients, by request.

        """
        with self._reading() as connection:
            return dict(rows_among(connection, "SELECT request, client FROM requests WHERE request", requests))

    def forget_requested_records(self, request: bytes) -> None:
        """Delete which records a request names: it was cancelled."""
        with self._writing() as connection:
            connection.execute("DELETE FROM requests WHERE request = ?", [request])

    def exclusions(self, ids: Sequence[str] | None = None) -> dict[str, Exclusions]:
        """Read which records of clients were erased.

        Args:
            ids: The clients, whether or not they are in the keyring; None for all in it who had any erased.

        Returns:
            For each of them the key of its hashes, and those of erased records.

        """
        with self._reading() as connection:
            if ids is None:
                some = [lookup for (lookup,) in connection.execute("SELECT DISTINCT client FROM excluded")]
                ids = [client.id for client in self._load_by(connection, "lookup", some)]
            lookups = {client: self._lookup(client) for client in ids}
            hashes: dict[bytes, set[bytes]] = {}
            query = "SELECT client, record FROM excluded WHERE client"
            for lookup, record in rows_among(connection, query, list(lookups.values())):
                hashes.setdefault(lookup, set()).add(record)
        return {
            client: Exclusions(self._records_key(lookup), frozenset(hashes.get(lookup, ())))
            for client, lookup in sorted(lookups.items())
        }

    def exclude(self, records: Mapping[str, Iterable[str]]) -> None:
        """Note records of clients as erased, durably, whether or not the clients stay.

        Args:
            records: The keys of the records, by client.

        """
        self.put_in_place_of({}, records)

    def prepare_successors(self, numbers: Sequence[int]) -> dict[int, int]:
        """Give clients who are in use a second key, not in use yet, durably. One that was prepared is taken again.

        Args:
            numbers: The clients.

        Returns:
            The number of each one's successor.

        """
        query = "SELECT number FROM clients WHERE lookup = ? AND role = ? AND marked = 0"
        with self._writing() as connection:  # see `register`
            connection.execute("UPDATE facts SET value = 1 WHERE name = 'registering'")
        with self._writing() as connection:
            prepared = {}
            for client in self._load_by(connection, "number", numbers):
                found = connection.execute(query, [self._lookup(client.id), SUCCESSOR]).fetchone()
                made = found[0] if found else self._give_keys(connection, [client.id], SUCCESSOR)[client.id]
                prepared[client.number] = made
            connection.execute("UPDATE facts SET value = 0 WHERE name = 'registering'")
        return prepared

    def put_in_place_of(
        self,
        successors: Mapping[int, int],
        excluded: Mapping[str, Iterable[str]],
        waiting: Mapping[bytes, int] | None = None,
    ) -> None:
        """Let ids lead to prepared successors, and note the records that were erased: all at once, durably.

        What was done before is not done again, so that whoever opens the run can complete it.

        Args:
            successors: The successors, by the numbers of those whose place they take.
            excluded: The keys of erased records, by client.
            waiting: What was drawn for requests that wait and are the successors' from now on: what they name, and
                where their openings are to go, is sealed anew.

        Raises:
            ConfigError: A successor is not in the keyring.

        """
        lookups = {client: self._lookup(client) for client in excluded}
        hashes = [
            (lookups[client], Exclusions(self._records_key(lookups[client])).hash_of(record))
            for client, records in excluded.items()
            for record in records
        ]
        with self._writing() as connection:
            changed = connection.executemany("INSERT OR IGNORE INTO excluded VALUES (?, ?)", hashes).rowcount > 0
            for number, successor in successors.items():
                replaced = "UPDATE clients SET role = ? WHERE number = ? AND role = ? AND marked = 0"
                if connection.execute(replaced, [PREDECESSOR, number, IN_USE]).rowcount:
                    if not connection.execute(replaced, [IN_USE, successor, SUCCESSOR]).rowcount:
                        raise ConfigError(f"the keyring {self.folder} is damaged: it lacks a client's second key")
                    moved = [request for request, client in (waiting or {}).items() if client == successor]
                    self._move_requests(connection, moved, number, successor)
                    changed = True
            if changed:
                note_change(connection)
        with self._table.guard:
            self._present = None

    def _move_requests(
        self, connection: sqlite3.Connection, requests: Sequence[bytes], number: int, successor: int
    ) -> None:
        """Seal what requests that wait name, and the folder for their openings, under a successor's key."""
        if not requests:
            return
        [old] = self._load_by(connection, "number", [number])
        [new] = self._load_by(connection, "number", [successor])
        for request in requests:
            where = f"request/{request.hex()}"
            query = "SELECT sealed FROM requests WHERE request = ? AND client = ?"
            found = connection.execute(query, [request, number]).fetchone()
            # one of a whole client names none: its row tells a run that is restored whose it is by now
            text = json.dumps([]) if found is None else self._open_sealed(old.first, number, where, found[0])
            moved = [request, successor, self._seal(new.first, successor, where, text)]
            connection.execute("INSERT OR REPLACE INTO requests VALUES (?, ?, ?)", moved)
        [folder] = connection.execute("SELECT openings FROM clients WHERE number = ?", [number]).fetchone()
        if folder is not None:
            text = self._open_sealed(old.first, number, "openings", folder)
            moved_folder = [self._seal(new.first, successor, "openings", text), successor]
            connection.execute("UPDATE clients SET openings = ? WHERE number = ?", moved_folder)

    def _records_key(self, lookup: bytes) -> bytes:
        return derive(self.secret, "records", lookup)
