"""The keyring: who the clients of a run are. It lies with the operator's keys, outside the run, and nowhere else.

    KEYS/keyring/RUN_ID/keys.1           32 bytes for each client, at a place of its own; the first are the secret
                        keys.2 ...       the same after a rotation: rounds recorded since go by these
                        clients.sqlite3  place, keyed hash and sealed id of each client; tombstones; newest head

The run knows a client by pseudonyms that derive from its key (`pseudonyms`), and the table here has its id sealed
under that key. So whoever is to be forgotten is forgotten by overwriting 32 bytes: what is left of it, in the run,
in its backups, in free pages and journals of the table, cannot be opened or linked any more. Its keyed hash stays
as its *tombstone*: it makes out whoever comes back under the same id, and says nothing about anybody else.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from disavow.errors import (
    ConfigError,
    DisavowError,
    KeyringMissing,
    KeyringOutdated,
    LeaverReturns,
    LedgerError,
    RunInUse,
    StorageError,
    StorageFull,
)
from disavow.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_file, sync_folder
from disavow.ledger.pseudonyms import KEY_BYTES, open_sealed, seal

FOLDER = "keyring"
TABLE = "clients.sqlite3"
_FORMAT = "1"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_NUMBER_BITS = 63
_NO_KEY = bytes(KEY_BYTES)
_BUSY_SECONDS = 30
_TRIES = 20
_BATCH = 500
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_OF_THE_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
_MARKED, _DESTROYED = 1, 2
"""How far forgetting has come: noted, so that a crash cannot lose it; done."""

_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE clients (
    number INTEGER PRIMARY KEY,  -- random: what the run calls a client while its request waits
    place INTEGER NOT NULL UNIQUE,  -- of its key in each file of keys
    lookup BLOB NOT NULL UNIQUE,  -- keyed hash of its id; a leaver's tombstone
    sealed BLOB,  -- its id, sealed under its key
    openings BLOB,  -- the folder asked for its opening, likewise
    request INTEGER,  -- the request by which it left
    gone INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX unfinished ON clients (number) WHERE gone = {_MARKED};
"""


_PRESENT_BY = {
    column: f"SELECT number, place, sealed FROM clients WHERE gone = 0 AND {column}"  # noqa: S608
    for column in ("number", "lookup")
}


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
        return next((key for key in self.keys if key != _NO_KEY), _NO_KEY)


@dataclass(frozen=True)
class Head:
    """How far the log of a run had come."""

    size: int
    root: bytes


class Keyring:
    """The keyring of one run. Opened on first use; nothing is read before that."""

    def __init__(self, keys: Path, run_id: str) -> None:
        if not _RUN_ID.fullmatch(run_id):
            raise LedgerError("the ledger is damaged: the id of the run is not 32 hexadecimal digits")
        self.folder, self.run_id = keys / FOLDER / run_id, run_id
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
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
        made = cls(keys, run_id)
        try:
            _make_folder(made.folder)
            made._write_keys(1, [secrets.token_bytes(KEY_BYTES)], start=0)
            with closing(_connect(made.folder / TABLE, "rwc")) as connection:
                (made.folder / TABLE).chmod(PRIVATE_FILE)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
                facts = {"format": _FORMAT, "run": run_id, "generation": 1, "epoch": 1, "clients": 0}
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            for folder in (made.folder, made.folder.parent, keys):
                sync_folder(folder)
        except OSError as error:
            raise ConfigError(
                f"{keys} cannot hold a keyring: {error.strerror}; DISAVOW_KEYS names a folder that can be written"
            ) from None
        return made

    @property
    def exists(self) -> bool:
        """Whether there is one, readable or not."""
        return (self.folder / TABLE).exists()

    def close(self) -> None:
        """Let go of its files; it is opened again when it is used."""
        with self._guard:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = self._present = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            if self._connection is None or self._process != os.getpid():  # a fork must not use its parent's
                self._connection, self._process = self._open(), os.getpid()
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                raise self._unusable(error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # after some failures SQLite has rolled back itself
                    connection.execute("ROLLBACK")
                raise

    def _open(self) -> sqlite3.Connection:
        if not self.exists:
            raise KeyringMissing(
                f"there is no keyring of run {self.run_id} in {self.folder.parent.parent}: without it nobody can "
                "be identified; point DISAVOW_KEYS to the folder that holds it, or restore it from a backup"
            )
        self._refuse_exposed()
        writable = os.access(self.folder, os.W_OK) and os.access(self.folder / TABLE, os.W_OK)
        try:
            connection = _connect(self.folder / TABLE, "rw" if writable else "ro")
            facts = dict(connection.execute("SELECT name, value FROM facts"))
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None
        if facts.get("format") != _FORMAT or facts.get("run") != self.run_id:
            connection.close()
            raise ConfigError(f"{self.folder} is not the keyring of run {self.run_id}, or is of another format")
        return connection

    def _refuse_exposed(self) -> None:
        for path in (self.folder, *self.folder.iterdir()):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & 0o077:
                raise ConfigError(
                    f"{path} may be used by others than its owner (mode {mode:o}); "
                    f"`chmod -R go= {self.folder}` takes it away from them"
                )

    def _unusable(self, error: Exception) -> DisavowError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_OF_THE_DISK):
            kind = StorageFull if name.startswith("SQLITE_FULL") else StorageError
            return kind(f"the keyring {self.folder} cannot be read or written: {error} ({name}); look at the disk")
        if name.startswith(_BUSY):
            return RunInUse(f"the keyring {self.folder} is being written by another process; try again")
        if name.startswith("SQLITE_READONLY"):
            return ConfigError(f"the keyring {self.folder} cannot be written: Permission denied")
        return ConfigError(f"the keyring {self.folder} cannot be used: {error}; restore it from a backup")

    # -- facts about the run -------------------------------------------------------------------------------

    @cached_property
    def secret(self) -> bytes:
        """What the hashes of ids, participation and the names of kept updates derive from."""
        with self._reading():
            return self._read_keys(1, 0, 1)[0]

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

    def heads(self) -> tuple[Head, ...]:
        """Read the newest head of the run's log, and the one before it; none before the first.

        A crash between noting a head and committing it to the run leaves the run with the one before.
        """
        with self._reading() as connection:
            found = dict(connection.execute("SELECT name, value FROM facts WHERE name IN ('head', 'head before')"))
        return tuple(_head(found[name]) for name in ("head", "head before") if found.get(name))

    def note_head(self, head: Head, before: Head | None) -> None:
        """Note a head durably, before the run commits to it.

        Args:
            head: The head as it will be.
            before: The head as it is.

        """
        with self._writing() as connection:
            told = {"head": _text(head), "head before": "" if before is None else _text(before)}
            connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", told.items())

    def refuse_outdated(self, generation: int, head: Head) -> bool:
        """Compare the keyring with the run that it belongs to.

        Args:
            generation: That of the keyring when the run was written last.
            head: The head of the run's log.

        Returns:
            Whether the run may lack what the keyring knows: it was restored from a backup, or stopped by a crash.

        Raises:
            KeyringOutdated: The keyring is older than the run, or belongs to another history of it.

        """
        heads = self.heads()
        if generation > self.generation or (heads and head.size > heads[0].size):
            raise KeyringOutdated(
                f"the keyring {self.folder} is older than its run, as if restored from a backup: clients who were "
                "forgotten since would be known again; restore the newest copy of it"
            )
        if not heads or head == heads[0]:
            return False
        if head in heads and generation == self.generation:
            return False  # one step behind, as a crash leaves it, and nobody was forgotten meanwhile
        if head.size >= heads[0].size:
            raise KeyringOutdated(
                f"the keyring {self.folder} knows another history of this run: its log has another head of the "
                "same length; bring run and keyring together that belong together"
            )
        return True

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
        with self._writing() as connection:
            known, gone = _look_up(connection, lookups)
            if gone:
                raise LeaverReturns(f"{min(gone)!r} has asked to be forgotten and cannot return under this id")
            new = [client for client in wanted if client not in known]
            if new:
                epoch = int(connection.execute("SELECT value FROM facts WHERE name = 'epoch'").fetchone()[0])
                last = connection.execute("SELECT coalesce(max(place), 0) FROM clients").fetchone()[0]
                keys = [secrets.token_bytes(KEY_BYTES) for _ in new]
                self._write_keys(epoch, keys, start=last + 1)
                rows = []
                for place, (client, key) in enumerate(zip(new, keys, strict=True), last + 1):
                    number = secrets.randbits(_NUMBER_BITS) or 1
                    rows.append((number, place, lookups[client], self._seal(key, number, "id", client)))
                    known[client] = number
                connection.executemany(
                    "INSERT INTO clients (number, place, lookup, sealed) VALUES (?, ?, ?, ?)", rows
                )
                _changed(connection, more=len(rows))
        return known

    def find(self, client: str) -> ClientKey | None:
        """Find a client who is in the keyring by its id."""
        return next(iter(self.find_all([client]).values()), None)

    def find_all(self, ids: Sequence[str]) -> dict[str, ClientKey]:
        """Find those of these clients who are in the keyring."""
        if self._present is not None and self._present[0] == self.generation:
            known_ids = self._present[1]
            return {client: known_ids[client] for client in ids if client in known_ids}
        lookups = {client: self._lookup(client) for client in ids}
        with self._reading() as connection:
            found = {each.id: each for each in self._load(connection, "lookup", list(lookups.values()))}
        return {client: found[client] for client in ids if client in found}

    def by_number(self, numbers: Sequence[int]) -> dict[int, ClientKey]:
        """Find those of these clients, by their numbers, who are in the keyring."""
        with self._reading() as connection:
            return {each.number: each for each in self._load(connection, "number", numbers)}

    def present(self) -> dict[str, ClientKey]:
        """All clients in the keyring by id, in the order of ids. Linear in their number; kept until it changes."""
        with self._reading() as connection:
            generation = self.generation
            if self._present is None or self._present[0] != generation:
                found = self._load(connection)
                self._present = generation, {each.id: each for each in sorted(found, key=lambda each: each.id)}
            return dict(self._present[1])

    def count(self) -> int:
        """How many clients are in the keyring."""
        return int(self._fact("clients"))

    def some(self, count: int) -> list[int]:
        """Give the numbers of so many clients: always the same ones, and a fair sample, as numbers are random."""
        with self._reading() as connection:
            query = "SELECT number FROM clients WHERE gone = 0 ORDER BY number LIMIT ?"
            return [number for (number,) in connection.execute(query, [count])]

    def left(self, client: str) -> int | None:
        """Find the request by which somebody of this id was forgotten; None where nobody was."""
        with self._reading() as connection:
            query = "SELECT request FROM clients WHERE lookup = ? AND gone != 0"
            found = connection.execute(query, [self._lookup(client)]).fetchone()
        return None if found is None else found[0] or 0

    def tombstones(self) -> int:
        """How many clients were forgotten."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM clients WHERE gone != 0").fetchone()[0])

    def ask_openings(self, number: int, folder: str) -> None:
        """Keep the folder that was asked for a client's opening, sealed under its key."""
        with self._writing() as connection:
            for client in self._load(connection, "number", [number]):
                sealed = self._seal(client.first, number, "openings", folder)
                connection.execute("UPDATE clients SET openings = ? WHERE number = ?", [sealed, number])

    def openings(self, number: int) -> str | None:
        """The folder that was asked for a client's opening; None where none was."""
        with self._reading() as connection:
            found = connection.execute("SELECT openings FROM clients WHERE number = ?", [number]).fetchone()
            if found is None or found[0] is None:
                return None
            [client] = self._load(connection, "number", [number])
            return self._open_sealed(client.first, number, "openings", found[0])

    # -- forgetting ----------------------------------------------------------------------------------------

    def forget(self, leavers: Mapping[int, int]) -> None:
        """Destroy the keys of clients, durably. Forgetting one twice is forgetting it once.

        Args:
            leavers: The clients by their numbers, and the request of each.

        """
        with self._writing() as connection:
            marked = connection.executemany(
                "UPDATE clients SET gone = ?, request = ?, sealed = NULL, openings = NULL"
                " WHERE number = ? AND gone = 0",
                [(_MARKED, request, number) for number, request in leavers.items()],
            )
            if marked.rowcount > 0:
                _changed(connection, more=-marked.rowcount)
        self.finish_forgetting()

    def finish_forgetting(self) -> None:
        """Overwrite the keys of clients who are marked as forgotten: a crash may have come between."""
        if not self.unfinished():
            return
        with self._writing() as connection:  # nobody else marks a client between the look and the last step
            query = "SELECT place FROM clients WHERE gone = 1"  # as the index has it
            places = [place for (place,) in connection.execute(query)]
            for epoch in range(1, self.epoch + 1):
                for place in places:
                    self._write_keys(epoch, [_NO_KEY], start=place)
            connection.execute("UPDATE clients SET gone = ? WHERE gone = 1", [_DESTROYED])
        self._present = None

    def drop_requests(self, after: int) -> None:
        """Give up the numbers of leavers' requests that a run restored from a backup does not have.

        Args:
            after: The last request that the run has; numbers beyond it will be given to others.

        """
        with self._writing() as connection:
            connection.execute("UPDATE clients SET request = NULL WHERE gone != 0 AND request > ?", [after])

    # -- rotation, copies ----------------------------------------------------------------------------------

    def rotate(self) -> int:
        """Give every client a new key for the rounds recorded from now on.

        Whoever has seen the keys so far cannot tell who is who in those rounds. Keys of earlier rounds stay.

        Returns:
            The new epoch.

        """
        with self._writing() as connection:
            epoch = int(connection.execute("SELECT value FROM facts WHERE name = 'epoch'").fetchone()[0]) + 1
            query = "SELECT place, gone FROM clients ORDER BY place"
            gone = dict(connection.execute(query))
            new = [
                _NO_KEY if gone.get(place, 1) else secrets.token_bytes(KEY_BYTES)
                for place in range(max(gone, default=0) + 1)
            ]
            self._write_keys(epoch, new, start=0)
            sync_folder(self.folder)
            connection.execute("UPDATE facts SET value = ? WHERE name = 'epoch'", [epoch])
            _changed(connection)
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
            _make_folder(made.folder)
            with self._writing():  # nobody forgets or registers meanwhile
                for path in self._key_files():
                    shutil.copyfile(path, made.folder / path.name)
                    (made.folder / path.name).chmod(PRIVATE_FILE)
                    sync_file(made.folder / path.name)
                with (  # the connection that has locked the table cannot be copied from
                    closing(_connect(self.folder / TABLE, "ro")) as source,
                    closing(_connect(made.folder / TABLE, "rwc")) as target,
                ):
                    (made.folder / TABLE).chmod(PRIVATE_FILE)
                    source.backup(target)
            sync_folder(made.folder)
        except OSError as error:
            raise ConfigError(f"the keyring cannot be copied to {made.folder}: {error.strerror}") from None
        made.finish_forgetting()
        return made

    def faults(self) -> list[str]:
        """Check that every client's key is there and opens its id, and that no leaver's is."""
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
        # rows before keys: a key is there before its row says so, and overwritten before its row says that
        query = "SELECT number, place, lookup, sealed, gone FROM clients ORDER BY place"
        rows = connection.execute(query).fetchall()
        count = max((row[1] for row in rows), default=0) + 1
        files = [self._read_keys(epoch, 0, count) for epoch in range(1, self.epoch + 1)]
        present = sum(not row[4] for row in rows)
        found = (
            [] if self.count() == present else [f"it says that it has {self.count()} clients, and has {present}"]
        )
        for number, place, lookup, sealed, gone in rows:
            keys = tuple(file[place] for file in files)
            if gone:
                kept = gone == _DESTROYED and any(key != _NO_KEY for key in keys)
                if kept or sealed is not None:
                    found.append(f"the key at place {place} is still there, though its client was forgotten")
                continue
            try:
                client = self._open_sealed(ClientKey(number, "", keys).first, number, "id", sealed)
            except ConfigError:
                found.append(f"the key at place {place} does not open the id of its client")
                continue
            if self._lookup(client) != lookup:
                found.append(f"the client at place {place} has the hash of another id")
        return found

    def unfinished(self) -> int:
        """Count clients who are marked as forgotten and whose keys may still be there."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM clients WHERE gone = 1").fetchone()[0])

    # -- the files -----------------------------------------------------------------------------------------

    def _key_files(self) -> list[Path]:
        return [self.folder / f"keys.{epoch}" for epoch in range(1, self.epoch + 1)]

    def _read_keys(self, epoch: int, start: int, count: int) -> list[bytes]:
        """Read keys; zeros where a file ends before them."""
        try:
            with (self.folder / f"keys.{epoch}").open("rb") as file:
                file.seek(start * KEY_BYTES)
                data = file.read(count * KEY_BYTES).ljust(count * KEY_BYTES, b"\0")
        except OSError as error:
            raise self._unusable(error) from None
        return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]

    def _read_keys_at(self, epoch: int, places: Sequence[int]) -> list[bytes]:
        """Read the keys at some places."""
        if len(places) == 1:
            return self._read_keys(epoch, places[0], 1)
        try:
            with (self.folder / f"keys.{epoch}").open("rb", buffering=0) as file:
                found = [os.pread(file.fileno(), KEY_BYTES, place * KEY_BYTES) for place in places]
        except OSError as error:
            raise self._unusable(error) from None
        return [key.ljust(KEY_BYTES, b"\0") for key in found]

    def _write_keys(self, epoch: int, keys: Sequence[bytes], *, start: int) -> None:
        """Write keys to their places, durably: what was there is overwritten where it lies."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self.folder / f"keys.{epoch}", flags, PRIVATE_FILE), "wb") as file:
            file.seek(start * KEY_BYTES)
            file.write(b"".join(keys))
        sync_file(self.folder / f"keys.{epoch}")

    def _load(
        self, connection: sqlite3.Connection, column: str = "", values: Sequence[int | bytes] = ()
    ) -> list[ClientKey]:
        """Read clients with their keys: those with one of these values in a column, or all."""
        epochs = range(1, self.epoch + 1)
        if not column:
            rows = connection.execute("SELECT number, place, sealed FROM clients WHERE gone = 0").fetchall()
            count = max((place for _, place, _ in rows), default=0) + 1
            files = [self._read_keys(epoch, 0, count) for epoch in epochs]
            keys = [tuple(file[place] for file in files) for _, place, _ in rows]
        else:
            rows = list(_among(connection, _PRESENT_BY[column], values))
            files = [self._read_keys_at(epoch, [place for _, place, _ in rows]) for epoch in epochs]
            keys = list(zip(*files, strict=True))
        found = []
        for (number, _, sealed), mine in zip(rows, keys, strict=True):
            each = ClientKey(number, "", mine)
            try:
                client = self._open_sealed(each.first, number, "id", sealed)
            except ConfigError:
                query = "SELECT gone FROM clients WHERE number = ?"
                if connection.execute(query, [number]).fetchone()[0]:
                    continue  # forgotten by another process since its row was read
                raise
            found.append(ClientKey(number, client, mine))
        return found

    def _lookup(self, client: str) -> bytes:
        return hmac.digest(self.secret, b"disavow/lookup/v1\x00" + client.encode(errors="surrogatepass"), "sha256")

    def _seal(self, key: bytes, number: int, purpose: str, text: str) -> bytes:
        return seal(key, f"{purpose}/{self.run_id}/{number}".encode(), text.encode())

    def _open_sealed(self, key: bytes, number: int, purpose: str, sealed: bytes) -> str:
        found = open_sealed(key, f"{purpose}/{self.run_id}/{number}".encode(), sealed)
        if found is None:
            raise ConfigError(f"the keyring {self.folder} is damaged: a key does not open the id of its client")
        return found.decode()


class KeyringView(Keyring):
    """One state of a keyring, for checks: whoever comes or leaves meanwhile changes nothing in it.

    Args:
        keyring: The keyring; it must be there.

    """

    def __init__(self, keyring: Keyring) -> None:
        super().__init__(keyring.folder.parent.parent, keyring.run_id)
        self._state = keyring.generation, keyring.heads()
        self._clients = keyring.present()
        self._numbers = {each.number: each for each in self._clients.values()}

    def is_still(self, keyring: Keyring) -> bool:
        """Say whether the keyring is still as it was."""
        return self._state == (keyring.generation, keyring.heads())

    @property
    def generation(self) -> int:
        """See `Keyring`."""
        return self._state[0]

    def heads(self) -> tuple[Head, ...]:
        """See `Keyring`."""
        return self._state[1]

    def present(self) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return dict(self._clients)

    def find_all(self, ids: Sequence[str]) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return {client: self._clients[client] for client in ids if client in self._clients}

    def by_number(self, numbers: Sequence[int]) -> dict[int, ClientKey]:
        """See `Keyring`."""
        return {number: self._numbers[number] for number in numbers if number in self._numbers}


def _make_folder(folder: Path) -> None:
    """Make a folder that must not be there yet, and those above it that are missing: their owner's alone."""
    for above in reversed(folder.parents):
        with suppress(FileExistsError):
            above.mkdir(mode=PRIVATE_FOLDER)
    folder.mkdir(mode=PRIVATE_FOLDER)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(
        f"file:{quoted}?mode={mode}", uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _look_up(connection: sqlite3.Connection, lookups: Mapping[str, bytes]) -> tuple[dict[str, int], list[str]]:
    """The numbers of clients by the hashes of their ids, and those of them who were forgotten."""
    query = "SELECT lookup, number, gone FROM clients WHERE lookup"
    found = {lookup: (number, left) for lookup, number, left in _among(connection, query, list(lookups.values()))}
    known, gone = {}, []
    for client, lookup in lookups.items():
        number, left = found.get(lookup, (0, 0))
        if left:
            gone.append(client)
        elif number:
            known[client] = number
    return known, gone


def _among(connection: sqlite3.Connection, query: str, values: Sequence[int | bytes]) -> Iterator[tuple[Any, ...]]:
    """Run a query that ends in a column for the rows that have one of these values in it, some at a time."""
    for start in range(0, len(values), _BATCH):
        some = values[start : start + _BATCH]
        yield from connection.execute(f"{query} IN ({', '.join('?' * len(some))})", some)


def _changed(connection: sqlite3.Connection, *, more: int = 0) -> None:
    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
    connection.execute("UPDATE facts SET value = value + ? WHERE name = 'clients'", [more])


def _text(head: Head) -> str:
    return f"{head.size} {head.root.hex()}"


def _head(text: str) -> Head:
    size, root = text.split()
    return Head(int(size), bytes.fromhex(root))
