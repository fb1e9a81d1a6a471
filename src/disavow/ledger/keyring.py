"""The keyring: who the clients of a run are. It lies with the operator's keys, outside the run, and nowhere else.

    KEYS/keyring/RUN_ID/keys.1           32 bytes for each client, at a random place; the first are the secret
                        keys.2 ...       the same after a rotation: rounds recorded since go by these
                        clients.sqlite3  place, keyed hash and sealed id of each client; tombstones; the run's state

The run knows a client by pseudonyms that derive from its key (`pseudonyms`), and the table here has its id sealed
under its keys. So whoever is to be forgotten is forgotten by overwriting 32 bytes: what is left of it, in the run,
in its backups, in free pages and journals of the table, cannot be opened or linked any more. Its row is deleted.
The keyed hash of its id stays, alone, as its *tombstone*: it makes out whoever comes back under the same id. Where
that is allowed, the client gets a new number, place and key, and the tombstone says who decided it.

A client that stays and has some of its records erased gets a second key, its *successor*: first prepared, then in
use, when the first becomes a *predecessor*, which is forgotten without a tombstone. Erased records are kept as
keyed hashes (`domain.records`), whatever becomes of the client.

The keyring also notes how far its run has come (`run_state`), before the run commits to it: so the run is never
newer than its keyring, and one that is older, or another copy of it, is noticed before it is written to.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from disavow.domain.records import Exclusions
from disavow.errors import ConfigError, KeyringMissing, KeyringOutdated, LeaverReturns, LedgerError, RunOutdated
from disavow.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_file, sync_folder
from disavow.ledger.key_files import NO_KEY, SECRET, KeyFiles
from disavow.ledger.keyring_table import KeyringTable, connect
from disavow.ledger.pseudonyms import KEY_BYTES, derive, open_sealed, seal
from disavow.ledger.run_state import RunState

FOLDER = "keyring"
_FORMAT = "3"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.new")
_NUMBER_BITS = 63
_BATCH = 500
"""How many rows one query looks up."""

_PLACES = 64
"""How many places for keys there are at first. There are always at least twice as many as clients."""

_PADDED = 64
"""Sealed texts are padded to a multiple of so many bytes."""

_TRIES = 20
_NEVER_OPENED = "never opened"
"""What is pending in the keyring of a run that nobody has opened yet: its making may have been interrupted."""

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE clients (
    number INTEGER PRIMARY KEY,  -- random: what the run calls a client while its request waits
    place INTEGER NOT NULL UNIQUE,  -- of its key in each file of keys
    lookup BLOB NOT NULL,  -- keyed hash of its id
    sealed BLOB,  -- its id, sealed under its keys
    openings BLOB,  -- the folder asked for its opening, sealed under its first key
    role INTEGER NOT NULL DEFAULT 0,  -- 0: its id leads to it; 1: a successor, not in use yet; 2: a predecessor
    marked INTEGER NOT NULL DEFAULT 0  -- its key is being destroyed: a crash must not lose that
);
CREATE UNIQUE INDEX in_use ON clients (lookup) WHERE role = 0 AND marked = 0;
CREATE UNIQUE INDEX successors ON clients (lookup) WHERE role = 1 AND marked = 0;
CREATE INDEX not_in_use ON clients (number) WHERE role != 0;
CREATE INDEX unfinished ON clients (number) WHERE marked = 1;
CREATE TABLE tombstones (
    lookup BLOB PRIMARY KEY,
    gone INTEGER NOT NULL DEFAULT 1,  -- 0 while its client is in again
    readmitted BLOB  -- who decided that it may return, when and why, sealed; NULL where it never did
) WITHOUT ROWID;
CREATE TABLE asked (
    request BLOB PRIMARY KEY,  -- drawn for the request; the run has it, too
    client INTEGER NOT NULL,  -- its number
    sealed BLOB NOT NULL  -- the records that it names, if any, sealed under the client's first key
) WITHOUT ROWID;
CREATE INDEX asked_by ON asked (client);
CREATE TABLE excluded (
    client BLOB NOT NULL,  -- keyed hash of its id
    record BLOB NOT NULL,  -- keyed hash of a record; see domain.records
    PRIMARY KEY (client, record)
) WITHOUT ROWID;
"""

_IN_USE, _SUCCESSOR, _PREDECESSOR = 0, 1, 2

_ROWS = "SELECT number, place, sealed FROM clients WHERE marked = 0"
_ROWS_IN_USE = f"{_ROWS} AND role = 0"
_ROWS_BY = {"number": f"{_ROWS} AND number", "lookup": f"{_ROWS_IN_USE} AND lookup"}


@dataclass(frozen=True)
class ClientKey:
    """A client who can be identified.

    Args:
        number: What the run calls it while its request waits.
        id: Its id.
        keys: Its key in each epoch, the first one first; zeros where it had none yet.

    """

    number: int
    id: str
    keys: tuple[bytes, ...]

    def at(self, epoch: int) -> bytes:
        """Give the key that rounds of an epoch go by; epochs count from 1."""
        if not 1 <= epoch <= len(self.keys):
            raise LookupError(f"the keyring has no keys of epoch {epoch}")
        return self.keys[epoch - 1]

    @property
    def first(self) -> bytes:
        """The first key that it was given, which never changes; zeros where it has been destroyed."""
        return next((key for key in self.keys if key != NO_KEY), NO_KEY)


class Keyring:
    """The keyring of one run. Opened on first use; nothing is read before that."""

    def __init__(self, keys: Path, run_id: str) -> None:
        if not _RUN_ID.fullmatch(run_id):
            raise LedgerError("the ledger is damaged: the id of the run is not 32 hexadecimal digits")
        self.run_id = run_id
        self._lies_in(keys / FOLDER / run_id)

    def _lies_in(self, folder: Path) -> None:
        self.folder = folder
        self._table, self._files = KeyringTable(folder), KeyFiles(folder)
        self._checked = False
        self._present: tuple[int, dict[str, ClientKey]] | None = None

    # -- coming into being ---------------------------------------------------------------------------------

    @classmethod
    def create(cls, keys: Path, run_id: str) -> Keyring:
        """Make the keyring of a new run, durably.

        Args:
            keys: The folder of the operator's keys.
            run_id: The run.

        Raises:
            ConfigError: It cannot be made there.

        """
        with cls.being_made(keys, run_id) as made:
            made.put_in_place()
        return made

    @classmethod
    @contextmanager
    def being_made(cls, keys: Path, run_id: str) -> Iterator[Keyring]:
        """Make the keyring of a new run beside its place; `put_in_place` moves it there.

        What an interrupted process left of another one is removed first. What is not put in place goes at the end.

        Args:
            keys: The folder of the operator's keys.
            run_id: The run.

        Raises:
            ConfigError: It cannot be made there.

        """
        made = cls(keys, run_id)
        made._lies_in(made.folder.with_name(f".{run_id}.new"))
        try:
            _make_folders(made.folder.parent)
            with _holding(made.folder.parent):  # or else another process takes a folder without its lock for stale
                made.folder.mkdir(mode=PRIVATE_FOLDER)
                lock = _locked(made.folder)
                for stale in unfinished_in(keys):
                    shutil.rmtree(stale, ignore_errors=True)
            made._fill()
        except OSError as error:
            raise ConfigError(
                f"{keys} cannot hold a keyring: {error.strerror}; DISAVOW_KEYS names a folder that can be written"
            ) from None
        unfinished = made.folder
        try:
            yield made
        finally:
            made.close()
            shutil.rmtree(unfinished, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    def _fill(self) -> None:
        secret = secrets.token_bytes(KEY_BYTES)
        self._files.write(1, {SECRET: secret}, capacity=_PLACES)
        with closing(connect(self._table.path, "rwc")) as connection:
            self._table.path.chmod(PRIVATE_FILE)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            facts = {
                "format": _FORMAT,
                "run": self.run_id,
                "generation": 1,
                "epoch": 1,
                "places": _PLACES,
                "clients": 0,
                "registering": 0,
                "check": _check_value(secret),
                "state": "",
                "pending": _NEVER_OPENED,
            }
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())

    def put_in_place(self) -> None:
        """Move a keyring that was made beside its place there, durably."""
        self.close()
        sync_folder(self.folder)
        place = self.folder.with_name(self.run_id)
        self.folder.rename(place)  # fails where there is one
        self._lies_in(place)
        sync_folder(place.parent)
        sync_folder(place.parent.parent)

    @property
    def exists(self) -> bool:
        """Whether there is one, readable or not."""
        return self._table.path.exists()

    def close(self) -> None:
        """Let go of its files; it is opened again when it is used."""
        with self._table.guard:
            self._table.close()
            self._checked, self._present = False, None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._table.guard:
            if not self._checked and not self.exists:
                raise KeyringMissing(
                    f"there is no keyring of run {self.run_id} in {self.folder.parent.parent}: without it nobody "
                    "can be identified; point DISAVOW_KEYS to the folder that holds it, or restore it from a backup"
                )
            with self._table.reading() as connection:
                if not self._checked:
                    self._refuse_another(dict(connection.execute("SELECT name, value FROM facts")))
                    self._checked = True
                yield connection

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        with self._reading(), self._table.writing(durable=durable) as connection:
            yield connection

    def _refuse_another(self, facts: Mapping[str, object]) -> None:
        """Refuse what is not the keyring of this run, and files of keys that were cut or zeroed."""
        if facts.get("format") != _FORMAT or facts.get("run") != self.run_id:
            raise ConfigError(f"{self.folder} is not the keyring of run {self.run_id}, or is of another format")
        epochs, places = range(1, int(str(facts["epoch"])) + 1), int(str(facts["places"]))
        for epoch in epochs:
            if not self._files.holds(epoch, places):
                raise ConfigError(
                    f"the keyring {self.folder} is damaged: {self._files.path(epoch).name} is missing or was cut; "
                    "restore the keyring from a backup"
                )
        [secret] = self._read_keys(1, [SECRET])
        if _check_value(secret) != facts.get("check"):
            raise ConfigError(
                f"the keyring {self.folder} is damaged: its secret is not the one it was made with; restore it "
                "from a backup"
            )

    # -- facts about the run -------------------------------------------------------------------------------

    @cached_property
    def secret(self) -> bytes:
        """What the hashes of ids and the schedule of fixed clusters derive from."""
        with self._reading():
            return self._read_keys(1, [SECRET])[0]

    @property
    def generation(self) -> int:
        """How often the keyring was changed in a way that an older copy of it would undo."""
        return int(self._fact("generation"))

    @property
    def epoch(self) -> int:
        """Which keys rounds go by that are recorded now; it counts from 1, and up with every rotation."""
        return int(self._fact("epoch"))

    def _fact(self, name: str) -> str | int:
        with self._reading() as connection:
            [value] = connection.execute("SELECT value FROM facts WHERE name = ?", [name]).fetchone()
        found: str | int = value
        return found

    # -- how far the run has come --------------------------------------------------------------------------

    @property
    def state(self) -> RunState | None:
        """How far its run had come when it was last written; None before its first leaf."""
        return self.states()[0]

    def states(self) -> tuple[RunState | None, RunState | None]:
        """Read how far the run had come, and how far before the commit that may not have reached it."""
        with self._reading() as connection:
            return _states(connection)

    @property
    def settled(self) -> bool:
        """Whether the run is known to have come as far as was noted."""
        return self._fact("pending") == ""

    def advance(self, before: RunState, after: RunState, directory: Path) -> None:
        """Note how far the run is about to come, durably, before it commits to that.

        Args:
            before: How far it is.
            after: How far it will be.
            directory: The run, for what is said of it.

        Raises:
            RunOutdated: The keyring knows another state of the run: this is not the copy of it that goes on.

        """
        with self._writing() as connection:
            if before not in _states(connection):
                raise self.outdated_run(directory)
            _note(connection, after, str(before))

    def begin(self, state: RunState) -> None:
        """Note how far a run is that is about to be put in its place; it is settled once somebody opens it."""
        with self._writing() as connection:
            _note(connection, state, _NEVER_OPENED)

    def settle(self, state: RunState) -> None:
        """Note that the run has come so far. Without it, a run one step behind is taken for one that was killed.

        Args:
            state: How far it is, as whoever holds it alone has read it; another one than was noted changes nothing.

        """
        with self._writing(durable=False) as connection:
            if state in _states(connection):
                _note(connection, state, "")

    def begin_accepting(self) -> None:
        """Make older copies of the keyring older than the run that is about to be accepted."""
        with self._writing() as connection:
            _changed(connection)

    def adopt(self, state: RunState) -> None:
        """Take a run for the one that goes on, whatever was known of it; older or other copies are refused."""
        with self._writing() as connection:
            _note(connection, state, "")

    def matches(self, state: RunState, generation: int, epoch: int) -> bool:
        """Compare a run with what is known of it.

        Args:
            state: How far it is.
            generation: That of the keyring when the run was written last.
            epoch: The newest that its rounds go by.

        Returns:
            Whether it is the run that goes on; otherwise it was restored from a backup, or another copy went on.

        Raises:
            KeyringOutdated: The keyring is older than the run.

        """
        newest, pending = self.states()
        older = newest is not None and state.history == newest.history and state.commits > newest.commits
        if generation > self.generation or epoch > self.epoch or older:
            raise KeyringOutdated(
                f"the keyring {self.folder} is older than its run, as if restored from a backup: clients who were "
                "forgotten since would be known again; restore the newest copy of it"
            )
        return newest is None or state in (newest, pending)

    def outdated_run(self, directory: Path) -> RunOutdated:
        """Say that a run is not the copy of it that goes on."""
        return RunOutdated(
            f"{directory} is not in the state that its keyring knows last: it was restored from a backup, or "
            f"another copy of it was written to; `disavow keyring accept {directory}` goes on with this one"
        )

    # -- clients -------------------------------------------------------------------------------------------

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

    def keyed_hash(self, client: str) -> bytes:
        """Compute what an id is found by: its hash, keyed with the secret."""
        return self._lookup(client)

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
                known |= self._give_keys(connection, new, _IN_USE)
            connection.execute("UPDATE facts SET value = 0 WHERE name = 'registering'")
        return known

    def _give_keys(self, connection: sqlite3.Connection, ids: Sequence[str], role: int) -> dict[str, int]:
        """Draw a number, a place and a key for each of these ids, and write them down."""
        keys = {place: secrets.token_bytes(KEY_BYTES) for place in self._draw_places(connection, len(ids))}
        epoch, places = self.epoch, int(self._fact("places"))
        for earlier in range(1, epoch):
            if not self._files.holds(earlier, places):
                self._write_keys(earlier, {}, places=places)
        self._write_keys(epoch, keys, places=places)
        numbers, rows = {}, []
        for client, (place, key) in zip(ids, keys.items(), strict=True):
            numbers[client] = secrets.randbits(_NUMBER_BITS) or 1
            made = ClientKey(numbers[client], client, (NO_KEY,) * (epoch - 1) + (key,))
            rows.append((made.number, place, self._lookup(client), self._seal_id(made), role))
        insert = "INSERT INTO clients (number, place, lookup, sealed, role) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(insert, rows)
        _changed(connection, more=len(rows) if role == _IN_USE else 0)
        return numbers

    def _draw_places(self, connection: sqlite3.Connection, count: int) -> list[int]:
        """Draw free places, so that a place says nothing about an id or about who came when."""
        [others] = connection.execute("SELECT count(*) FROM clients WHERE role != 0").fetchone()
        used = self.count() + others + self.unfinished()
        places = int(self._fact("places"))
        while places < 2 * (used + count):
            places *= 2
        connection.execute("UPDATE facts SET value = ? WHERE name = 'places'", [places])
        drawn: dict[int, None] = {}  # in the order in which they were drawn
        while len(drawn) < count:
            place = 1 + secrets.randbelow(places)
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
            return {each.number: each for each in self._load_by(connection, "number", numbers)}

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
            return {number for (number,) in connection.execute(query, [_PREDECESSOR])}

    def present(self) -> dict[str, ClientKey]:
        """All clients in the keyring by id, in the order of ids. Linear in their number; kept until it changes."""
        with self._reading() as connection:
            generation = self.generation
            if self._present is None or self._present[0] != generation:
                found = self._load(connection, _ROWS_IN_USE)
                self._present = generation, {each.id: each for each in sorted(found, key=lambda each: each.id)}
            return dict(self._present[1])

    def count(self) -> int:
        """How many clients are in the keyring."""
        return int(self._fact("clients"))

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

    def ask_openings(self, numbers: Sequence[int], folder: str | None) -> None:
        """Keep the folder that was asked for clients' openings, sealed under their keys; None: none is.

        It is durable once `advance` is, which follows it before the run commits.
        """
        with self._writing(durable=False) as connection:
            for client in self._load_by(connection, "number", numbers):
                number = client.number
                sealed = None if folder is None else self._seal(client.first, number, "openings", folder)
                connection.execute("UPDATE clients SET openings = ? WHERE number = ?", [sealed, number])

    def openings(self, number: int) -> str | None:
        """The folder that was asked for a client's opening; None where none was."""
        with self._reading() as connection:
            found = connection.execute("SELECT openings FROM clients WHERE number = ?", [number]).fetchone()
            if found is None or found[0] is None:
                return None
            [client] = self._load_by(connection, "number", [number])
            return self._open_sealed(client.first, number, "openings", found[0])

    # -- records -------------------------------------------------------------------------------------------

    def ask_records(self, number: int, request: bytes, records: Sequence[str]) -> None:
        """Keep which records a request names, sealed under its client's key, until that is destroyed.

        Args:
            number: The client.
            request: What was drawn for the request.
            records: The keys of the records.

        """
        with self._writing() as connection:
            for client in self._load_by(connection, "number", [number]):
                sealed = self._seal(client.first, number, f"asked/{request.hex()}", json.dumps(list(records)))
                connection.execute("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", [request, number, sealed])

    def requested_records(self, number: int, request: bytes) -> tuple[str, ...]:
        """The records that a request of a client names; none where that client has been forgotten.

        Args:
            number: The client.
            request: What was drawn for the request.

        """
        with self._reading() as connection:
            query = "SELECT sealed FROM asked WHERE request = ? AND client = ?"
            found = connection.execute(query, [request, number]).fetchone()
            known = self._load_by(connection, "number", [number])
        if found is None or not known:
            return ()
        opened = self._open_sealed(known[0].first, number, f"asked/{request.hex()}", found[0])
        return tuple(json.loads(opened))

    def clients_of_requests(self, requests: Sequence[bytes]) -> dict[bytes, int]:
        """Whose these requests are: of those that name records, or went on waiting under a client's next key.

        Args:
            requests: What was drawn for each.

        Returns:
            The numbers of the clients, by request.

        """
        with self._reading() as connection:
            return dict(_among(connection, "SELECT request, client FROM asked WHERE request", requests))

    def forget_requested_records(self, request: bytes) -> None:
        """Delete which records a request names: it was cancelled."""
        with self._writing() as connection:
            connection.execute("DELETE FROM asked WHERE request = ?", [request])

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
            for lookup, record in _among(connection, query, list(lookups.values())):
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
                found = connection.execute(query, [self._lookup(client.id), _SUCCESSOR]).fetchone()
                made = found[0] if found else self._give_keys(connection, [client.id], _SUCCESSOR)[client.id]
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
                if connection.execute(replaced, [_PREDECESSOR, number, _IN_USE]).rowcount:
                    if not connection.execute(replaced, [_IN_USE, successor, _SUCCESSOR]).rowcount:
                        raise ConfigError(f"the keyring {self.folder} is damaged: it lacks a client's second key")
                    asked = [request for request, client in (waiting or {}).items() if client == successor]
                    self._move_asked(connection, asked, number, successor)
                    changed = True
            if changed:
                _changed(connection)
        with self._table.guard:
            self._present = None

    def _move_asked(
        self, connection: sqlite3.Connection, asked: Sequence[bytes], number: int, successor: int
    ) -> None:
        """Seal what requests that wait name, and the folder for their openings, under a successor's key."""
        if not asked:
            return
        [old] = self._load_by(connection, "number", [number])
        [new] = self._load_by(connection, "number", [successor])
        for request in asked:
            where = f"asked/{request.hex()}"
            query = "SELECT sealed FROM asked WHERE request = ? AND client = ?"
            found = connection.execute(query, [request, number]).fetchone()
            # one of a whole client names none: its row tells a run that is restored whose it is by now
            text = json.dumps([]) if found is None else self._open_sealed(old.first, number, where, found[0])
            moved = [request, successor, self._seal(new.first, successor, where, text)]
            connection.execute("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", moved)
        [folder] = connection.execute("SELECT openings FROM clients WHERE number = ?", [number]).fetchone()
        if folder is not None:
            text = self._open_sealed(old.first, number, "openings", folder)
            moved_folder = [self._seal(new.first, successor, "openings", text), successor]
            connection.execute("UPDATE clients SET openings = ? WHERE number = ?", moved_folder)

    def _records_key(self, lookup: bytes) -> bytes:
        return derive(self.secret, "records", lookup)

    # -- forgetting ----------------------------------------------------------------------------------------

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
                    if role == _IN_USE:
                        left += 1
                        entered = (
                            "INSERT INTO tombstones (lookup) VALUES (?) ON CONFLICT (lookup) DO UPDATE SET gone = 1"
                        )
                        connection.execute(entered, [lookup])
                        prepared = "SELECT number FROM clients WHERE lookup = ? AND role = ? AND marked = 0"
                        marked += [found for (found,) in connection.execute(prepared, [lookup, _SUCCESSOR])]
            if marked:
                change = "UPDATE clients SET marked = 1, sealed = NULL, openings = NULL WHERE number = ?"
                connection.executemany(change, [[number] for number in marked])
                connection.executemany("DELETE FROM asked WHERE client = ?", [[number] for number in marked])
                _changed(connection, more=-left)
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
            places = {place for (place,) in connection.execute("SELECT place FROM clients WHERE marked = 1")}
            if self._fact("registering"):
                used = {place for (place,) in connection.execute("SELECT place FROM clients")}
                places |= set(range(1, int(self._fact("places")) + 1)) - used
            for epoch in range(1, self.epoch + 1):
                self._write_keys(epoch, dict.fromkeys(places, NO_KEY), places=0)
            connection.execute("DELETE FROM clients WHERE marked = 1")
            connection.execute("UPDATE facts SET value = 0 WHERE name = 'registering'")
        with self._table.guard:
            self._present = None
        self._table.drop_deleted()

    # -- rotation, copies ----------------------------------------------------------------------------------

    def rotate(self) -> int:
        """Give every client a new key for the rounds recorded from now on.

        Whoever has seen the keys so far cannot tell who is who in those rounds. Keys of earlier rounds stay.

        Returns:
            The new epoch.

        """
        with self._writing() as connection:
            epoch, places = (
                self.epoch + 1,
                dict(connection.execute("SELECT number, place FROM clients WHERE marked = 0")),
            )
            new = {number: secrets.token_bytes(KEY_BYTES) for number in places}
            known = self._load(connection, _ROWS)
            keys = {places[number]: key for number, key in new.items()}
            self._write_keys(epoch, keys, places=int(self._fact("places")), new=True)
            sync_folder(self.folder)
            sealed = [
                (self._seal_id(ClientKey(each.number, each.id, (*each.keys, new[each.number]))), each.number)
                for each in known
            ]
            connection.executemany("UPDATE clients SET sealed = ? WHERE number = ?", sealed)
            connection.execute("UPDATE facts SET value = ? WHERE name = 'epoch'", [epoch])
            _changed(connection)
        with self._table.guard:
            self._present = None
        return epoch

    def copy(self, keys: Path) -> Keyring:
        """Copy it into another folder of keys: a backup, or the keyring of a copy of the run to try things on.

        Args:
            keys: The folder; it must hold no keyring of this run yet.

        Returns:
            The copy.

        Raises:
            ConfigError: There is one already, or it cannot be written.

        """
        made = Keyring(keys, self.run_id)
        try:
            _make_folders(made.folder.parent)
            made.folder.mkdir(mode=PRIVATE_FOLDER)
            with self._writing():  # nobody forgets or registers meanwhile
                for epoch in range(1, self.epoch + 1):
                    path = made._files.path(epoch)
                    shutil.copyfile(self._files.path(epoch), path)
                    path.chmod(PRIVATE_FILE)
                    sync_file(path)
                with (  # the connection that has locked the table cannot be copied from
                    closing(connect(self._table.path, "ro")) as source,
                    closing(connect(made._table.path, "rwc")) as target,
                ):
                    made._table.path.chmod(PRIVATE_FILE)
                    source.backup(target)
            sync_folder(made.folder)
        except OSError as error:
            raise ConfigError(f"the keyring cannot be copied to {made.folder}: {error.strerror}") from None
        made.finish_forgetting()
        return made

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
        in_use = {row[2] for row in rows.values() if not row[4] and row[5] == _IN_USE}
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
            if role == _SUCCESSOR and lookup not in in_use:
                found.append(f"the key at place {place} succeeds a client who is not there")
            try:
                client = self._open_id(ClientKey(number, "", keys), sealed)
            except ConfigError:
                found.append(f"the key at place {place} does not open the id of its client")
                continue
            if self._lookup(client) != lookup:
                found.append(f"the client at place {place} has the hash of another id")
        return found

    def unfinished(self) -> int:
        """Count clients who are marked as forgotten and whose keys may still be there."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM clients WHERE marked = 1").fetchone()[0])

    # -- the files -----------------------------------------------------------------------------------------

    def _read_keys(self, epoch: int, places: Iterable[int]) -> list[bytes]:
        try:
            return self._files.read(epoch, places)
        except OSError as error:
            raise self._table.unusable(error) from None

    def _read_files(self) -> list[list[bytes]]:
        """Read all keys of all epochs, by place."""
        places = int(self._fact("places"))
        try:
            return [self._files.read_all(epoch, places) for epoch in range(1, self.epoch + 1)]
        except OSError as error:
            raise self._table.unusable(error) from None

    def _write_keys(self, epoch: int, keys: Mapping[int, bytes], *, places: int, new: bool = False) -> None:
        self._files.write(epoch, keys, capacity=places, new=new)

    def _load(self, connection: sqlite3.Connection, query: str) -> list[ClientKey]:
        """Read all clients whose rows a query finds, with their keys."""
        rows = connection.execute(query).fetchall()
        files = self._read_files()
        return self._opened(connection, rows, [tuple(file[place] for file in files) for _, place, _ in rows])

    def _load_by(
        self, connection: sqlite3.Connection, column: str, values: Sequence[int | bytes]
    ) -> list[ClientKey]:
        """Read clients with their keys: those with one of these values in a column."""
        rows = list(_among(connection, _ROWS_BY[column], values))
        places = [place for _, place, _ in rows]
        keys = list(zip(*(self._read_keys(epoch, places) for epoch in range(1, self.epoch + 1)), strict=True))
        return self._opened(connection, rows, keys)

    def _opened(
        self,
        connection: sqlite3.Connection,
        rows: Sequence[tuple[int, int, bytes]],
        keys: Sequence[tuple[bytes, ...]],
    ) -> list[ClientKey]:
        """Open the ids of clients; whoever another process has forgotten since its row was read is left out."""
        found = []
        for (number, _, sealed), mine in zip(rows, keys, strict=True):
            try:
                client = self._open_id(ClientKey(number, "", mine), sealed)
            except ConfigError:
                query = "SELECT 1 FROM clients WHERE number = ? AND marked = 0"
                if connection.execute(query, [number]).fetchone() is None:
                    continue
                raise
            found.append(ClientKey(number, client, mine))
        return found

    def _lookup(self, client: str) -> bytes:
        return hmac.digest(self.secret, b"disavow/lookup/v1\x00" + client.encode(errors="surrogatepass"), "sha256")

    def _seal_id(self, client: ClientKey) -> bytes:
        return self._seal(_joined(client.keys), client.number, "id", client.id)

    def _open_id(self, client: ClientKey, sealed: bytes) -> str:
        return self._open_sealed(_joined(client.keys), client.number, "id", sealed)

    def _seal(self, key: bytes, number: int, purpose: str, text: str) -> bytes:
        data = text.encode()
        padded = data.ljust(len(data) + -len(data) % _PADDED, b"\0")
        return seal(key, f"{purpose}/{self.run_id}/{number}".encode(), padded)

    def _open_sealed(self, key: bytes, number: int, purpose: str, sealed: bytes) -> str:
        found = open_sealed(key, f"{purpose}/{self.run_id}/{number}".encode(), sealed)
        if found is None:
            raise ConfigError(f"the keyring {self.folder} is damaged: a key does not open the id of its client")
        return found.rstrip(b"\0").decode()


class KeyringView(Keyring):
    """One state of a keyring, for checks: whoever comes or leaves meanwhile changes nothing in it.

    Args:
        keyring: The keyring; it must be there.

    """

    def __init__(self, keyring: Keyring) -> None:
        super().__init__(keyring.folder.parent.parent, keyring.run_id)
        self._seen = keyring.generation, keyring.states()
        self._clients = keyring.present()
        self._numbers = {each.number: each for each in self._clients.values()} | keyring.not_in_use()

    def is_still(self, keyring: Keyring) -> bool:
        """Say whether the keyring is still as it was."""
        return self._seen == (keyring.generation, keyring.states())

    @property
    def generation(self) -> int:
        """See `Keyring`."""
        return self._seen[0]

    def states(self) -> tuple[RunState | None, RunState | None]:
        """See `Keyring`."""
        return self._seen[1]

    def present(self) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return dict(self._clients)

    def find_all(self, ids: Sequence[str]) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return {client: self._clients[client] for client in ids if client in self._clients}

    def by_number(self, numbers: Sequence[int]) -> dict[int, ClientKey]:
        """See `Keyring`."""
        return {number: self._numbers[number] for number in numbers if number in self._numbers}


# -- what was never finished -----------------------------------------------------------------------------------


def unfinished_in(keys: Path) -> list[Path]:
    """Find keyrings that were being made by processes that are no more. No run goes by them.

    Args:
        keys: The folder of the operator's keys.

    """
    found = []
    for path in sorted((keys / FOLDER).glob(".*.new")):
        if _UNFINISHED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            lock = _locked(path)
            if lock is not None:
                os.close(lock)
                found.append(path)
    return found


def never_opened_in(keys: Path) -> list[Path]:
    """Find keyrings whose run was never opened: its making may have been interrupted just before its last step.

    Args:
        keys: The folder of the operator's keys.

    """
    found = []
    for path in sorted((keys / FOLDER).iterdir()) if (keys / FOLDER).is_dir() else []:
        if _RUN_ID.fullmatch(path.name):
            keyring = Keyring(keys, path.name)
            with suppress(ConfigError), closing(keyring):
                if keyring._fact("pending") == _NEVER_OPENED:
                    found.append(path)
    return found


def _locked(folder: Path) -> int | None:
    """Lock a folder for this process; None where another one holds it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _holding(folder: Path) -> Iterator[None]:
    """Lock a folder, once whoever else holds it is done."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing: their owner's alone."""
    for each in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            each.mkdir(mode=PRIVATE_FOLDER)


# -- rows ------------------------------------------------------------------------------------------------------


def _look_up(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> dict[str, int]:
    """The numbers of clients who are in, by the hashes of their ids."""
    query = "SELECT lookup, number FROM clients WHERE marked = 0 AND role = 0 AND lookup"
    found = dict(_among(connection, query, list(lookups.values())))
    return {client: found[lookup] for client, lookup in lookups.items() if lookup in found}


def _gone(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> set[str]:
    """Those of these ids, by their hashes, whose clients were forgotten."""
    query = "SELECT lookup FROM tombstones WHERE gone = 1 AND lookup"
    found = {lookup for (lookup,) in _among(connection, query, list(lookups.values()))}
    return {client for client, lookup in lookups.items() if lookup in found}


def _refuse_gone(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> None:
    if gone := _gone(connection, lookups):
        raise LeaverReturns(f"{min(gone)!r} has asked to be forgotten and cannot return under this id")


def _among(connection: sqlite3.Connection, query: str, values: Sequence[int | bytes]) -> Iterator[tuple[Any, ...]]:
    """Run a query that ends in a column for the rows that have one of these values in it, some at a time."""
    for start in range(0, len(values), _BATCH):
        some = values[start : start + _BATCH]
        yield from connection.execute(f"{query} IN ({', '.join('?' * len(some))})", some)


def _changed(connection: sqlite3.Connection, *, more: int = 0) -> None:
    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
    connection.execute("UPDATE facts SET value = value + ? WHERE name = 'clients'", [more])


def _states(connection: sqlite3.Connection) -> tuple[RunState | None, RunState | None]:
    found = dict(connection.execute("SELECT name, value FROM facts WHERE name IN ('state', 'pending')"))
    state, pending = (found[name] for name in ("state", "pending"))
    return (
        RunState.from_text(state) if state else None,
        RunState.from_text(pending) if pending not in ("", _NEVER_OPENED) else None,
    )


def _note(connection: sqlite3.Connection, state: RunState, pending: str) -> None:
    told = [(str(state), "state"), (pending, "pending")]
    connection.executemany("UPDATE facts SET value = ? WHERE name = ?", told)


def _joined(keys: Sequence[bytes]) -> bytes:
    """What an id is sealed under: all keys of its client, so that damage to any of them is noticed."""
    return hashlib.sha256(b"disavow/keys/v1\x00" + b"".join(keys)).digest()


def _check_value(secret: bytes) -> str:
    return derive(secret, "check", b"").hex()
