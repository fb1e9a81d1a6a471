"""The clients of a keyring: given numbers, places and keys, found again, readmitted; and who was forgotten."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from disavow.errors import LeaverReturns, LedgerError
from disavow.ledger.keyring.forgetting import Forgetting
from disavow.ledger.keyring.key_files import NO_KEY
from disavow.ledger.keyring.schema import IN_USE, PREDECESSOR, ROWS_IN_USE, note_change, rows_among
from disavow.ledger.keyring.store import ClientKey
from disavow.ledger.pseudonyms import KEY_BYTES

_NUMBER_BITS = 63
_MANY = 1000
"""So many clients are looked up among all, who are remembered, and not one by one."""


class Clients(Forgetting):
    """Who is in, who was, and by which key."""

    def register(self, ids: Iterable[str]) -> dict[str, int]:
        """Give new clients keys and numbers, durably. Registering one twice is registering it once.

        Args:
            ids: The clients.

        Returns:
            The number of each.

        Raises:
            LedgerError: An id that is none.
            LeaverReturns: One of them was forgotten.

        """
        wanted = sorted(set(ids))
        if any(not client or "\0" in client for client in wanted):
            raise LedgerError("a client id is a text of at least one character, none of them NUL")
        lookups = {client: self._lookup(client) for client in wanted}
        with self._reading() as connection:
            _refuse_gone(connection, lookups)
            if len(_look_up(connection, lookups)) == len(wanted):
                return _look_up(connection, lookups)
        return self._add(wanted, lookups)

    def readmit(self, client: str, decision: bytes) -> None:
        """Let somebody who was forgotten be a client again, under a new key, durably: all of it, or nothing.

        Args:
            client: The client.
            decision: Who decided it, when and why, with any earlier such decision; sealed.

        Raises:
            LedgerError: It is in already, or never was.

        """
        self.finish_forgetting()  # or else its old row may still be there
        self._add([client], {client: self._lookup(client)}, decision)

    def readmissions(self, client: str) -> bytes | None:
        """What the tombstone of a client says of its return, sealed; None where it never returned."""
        with self._reading() as connection:
            query = "SELECT readmitted FROM tombstones WHERE lookup = ?"
            found = connection.execute(query, [self._lookup(client)]).fetchone()
        return None if found is None else found[0]

    def all_readmissions(self) -> dict[bytes, bytes]:
        """What tombstones say of returns, sealed, by the keyed hashes of ids."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT lookup, readmitted FROM tombstones WHERE readmitted NOT NULL"))

    def _add(
        self, wanted: Sequence[str], lookups: Mapping[str, bytes], readmitting: bytes | None = None
    ) -> dict[str, int]:
        """Give those of these clients keys and numbers who have none; those who were forgotten, by a decision."""
        with self._writing() as connection:  # a crash may leave keys of nobody: `finish_forgetting` looks for them
            connection.execute("UPDATE facts SET value = 1 WHERE name = 'registering'")
        with self._writing() as connection:
            if readmitting is None:
                _refuse_gone(connection, lookups)
            elif _gone(connection, lookups) != set(wanted):
                raise LedgerError("somebody is to be readmitted who is in, or never was; nothing was changed")
            else:
                change = "UPDATE tombstones SET gone = 0, readmitted = ? WHERE lookup = ?"
                connection.executemany(change, [(readmitting, lookup) for lookup in lookups.values()])
            known = _look_up(connection, lookups)
            new = [client for client in wanted if client not in known]
            if new:
                known |= self._give_keys(connection, new, IN_USE)
            connection.execute("UPDATE facts SET value = 0 WHERE name = 'registering'")
        return known

    def _give_keys(self, connection: sqlite3.Connection, ids: Sequence[str], role: int) -> dict[str, int]:
        """Draw a number, a place and a key for each of these ids, and write them down."""
        keys = {place: secrets.token_bytes(KEY_BYTES) for place in self._draw_positions(connection, len(ids))}
        epoch, capacity = self.epoch, int(self._fact("capacity"))
        for earlier in range(1, epoch):
            if not self._files.holds(earlier, capacity):
                self._write_keys(earlier, {}, capacity=capacity)
        self._write_keys(epoch, keys, capacity=capacity)
        numbers, rows = {}, []
        for client, (place, key) in zip(ids, keys.items(), strict=True):
            numbers[client] = secrets.randbits(_NUMBER_BITS) or 1
            made = ClientKey(numbers[client], client, (NO_KEY,) * (epoch - 1) + (key,))
            rows.append((made.number, place, self._lookup(client), self._seal_id(made), role))
        insert = "INSERT INTO clients (number, place, lookup, sealed, role) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(insert, rows)
        note_change(connection, more=len(rows) if role == IN_USE else 0)
        return numbers

    def _draw_positions(self, connection: sqlite3.Connection, count: int) -> list[int]:
        """Draw free places, so that a place says nothing about an id or about who came when."""
        [others] = connection.execute("SELECT count(*) FROM clients WHERE role != 0").fetchone()
        used = self.count() + others + self.unfinished()
        capacity = int(self._fact("capacity"))
        while capacity < 2 * (used + count):
            capacity *= 2
        connection.execute("UPDATE facts SET value = ? WHERE name = 'capacity'", [capacity])
        drawn: dict[int, None] = {}  # in the order in which they were drawn
        while len(drawn) < count:
            place = 1 + secrets.randbelow(capacity)
            taken = used and connection.execute("SELECT 1 FROM clients WHERE place = ?", [place]).fetchone()
            if not taken:
                drawn[place] = None
        return list(drawn)

    def find(self, client: str) -> ClientKey | None:
        """Find a client who is in the keyring by its id."""
        return next(iter(self.find_all([client]).values()), None)

    def find_all(self, ids: Sequence[str]) -> dict[str, ClientKey]:
        """Find those of these clients who are in the keyring."""
        with self._reading() as connection:
            if self._present is not None and self._present[0] == self.generation:
                known_ids = self._present[1]
                return {client: known_ids[client] for client in ids if client in known_ids}
            lookups = [self._lookup(client) for client in ids]
            found = {each.id: each for each in self._load_by(connection, "lookup", lookups)}
        return {client: found[client] for client in ids if client in found}

    def by_number(self, numbers: Sequence[int]) -> dict[int, ClientKey]:
        """Find those of these clients, by their numbers, who are in the keyring: also by numbers not in use."""
        with self._reading() as connection:
            if len(numbers) < _MANY:
                return {each.number: each for each in self._load_by(connection, "number", numbers)}
            in_use = {each.number: each for each in self.present().values()}
            others = [number for number in numbers if number not in in_use]
            found = {each.number: each for each in self._load_by(connection, "number", others)}
            return {number: in_use[number] for number in numbers if number in in_use} | found

    def not_in_use(self) -> dict[int, ClientKey]:
        """Successors that are only prepared, and predecessors that are not forgotten yet, by their numbers."""
        with self._reading() as connection:
            query = "SELECT number FROM clients WHERE role != 0 AND marked = 0"
            numbers = [number for (number,) in connection.execute(query)]
            return {each.number: each for each in self._load_by(connection, "number", numbers)}

    def predecessors(self) -> set[int]:
        """The numbers of clients that a successor has taken the place of, and that are not forgotten yet."""
        with self._reading() as connection:
            query = "SELECT number FROM clients WHERE role != 0 AND role = ? AND marked = 0"
            return {number for (number,) in connection.execute(query, [PREDECESSOR])}

    def present(self) -> dict[str, ClientKey]:
        """All clients in the keyring by id, in the order of ids. Linear in their number; kept until it changes."""
        with self._reading() as connection:
            generation = self.generation
            if self._present is None or self._present[0] != generation:
                found = self._load(connection, ROWS_IN_USE)
                self._present = generation, {each.id: each for each in sorted(found, key=lambda each: each.id)}
            return dict(self._present[1])

    def some(self, count: int) -> list[int]:
        """Give the numbers of so many clients: always the same ones, and a fair sample, as numbers are random."""
        with self._reading() as connection:
            query = "SELECT number FROM clients WHERE marked = 0 AND role = 0 ORDER BY number LIMIT ?"
            return [number for (number,) in connection.execute(query, [count])]

    def has_left(self, client: str) -> bool:
        """Say whether somebody of this id was forgotten. By which request, nobody can tell any more."""
        with self._reading() as connection:
            return bool(_gone(connection, {client: self._lookup(client)}))

    def known_among(self, texts: Iterable[str]) -> set[str]:
        """Find those of these texts that are ids of clients who are in the keyring, or were forgotten."""
        lookups = {text: self._lookup(text) for text in texts if text}
        with self._reading() as connection:
            return {*_gone(connection, lookups), *_look_up(connection, lookups)}

    def tombstones(self) -> int:
        """How many clients were forgotten."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM tombstones WHERE gone = 1").fetchone()[0])


def _look_up(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> dict[str, int]:
    """The numbers of clients who are in, by the hashes of their ids."""
    query = "SELECT lookup, number FROM clients WHERE marked = 0 AND role = 0 AND lookup"
    found = dict(rows_among(connection, query, list(lookups.values())))
    return {client: found[lookup] for client, lookup in lookups.items() if lookup in found}


def _gone(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> set[str]:
    """Those of these ids, by their hashes, whose clients were forgotten."""
    query = "SELECT lookup FROM tombstones WHERE gone = 1 AND lookup"
    found = {lookup for (lookup,) in rows_among(connection, query, list(lookups.values()))}
    return {client for client, lookup in lookups.items() if lookup in found}


def _refuse_gone(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> None:
    if gone := _gone(connection, lookups):
        raise LeaverReturns(f"{min(gone)!r} has asked to be forgotten and cannot return under this id")
