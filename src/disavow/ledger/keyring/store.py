"""The files of a keyring: opened and checked on first use, read, written, and what is sealed in them opened.

One table of SQLite (`table`, `schema`) and one file of keys for each epoch (`key_files`). A client's id is sealed
under all of its keys, so that damage to any of them is noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from disavow.errors import ConfigError, KeyringMissing, LedgerError
from disavow.ledger.keyring.key_files import NO_KEY, SECRET, KeyFiles
from disavow.ledger.keyring.schema import FORMAT, ROWS_BY, rows_among
from disavow.ledger.keyring.table import KeyringTable
from disavow.ledger.pseudonyms import derive, open_sealed, seal

FOLDER = "keyring"
RUN_ID = re.compile(r"[0-9a-f]{32}")
_PADDED = 64
"""Sealed texts are padded to a multiple of so many bytes."""


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


class KeyringStore:
    """The table and the key files of one keyring. Nothing is read before it is used."""

    def __init__(self, keys: Path, run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id):
            raise LedgerError("the ledger is damaged: the id of the run is not 32 hexadecimal digits")
        self.run_id = run_id
        self._lies_in(keys / FOLDER / run_id)

    def _lies_in(self, folder: Path) -> None:
        self.folder = folder
        self._table, self._files = KeyringTable(folder), KeyFiles(folder)
        self._checked = False
        self._present: tuple[int, dict[str, ClientKey]] | None = None

    @property
    def table(self) -> Path:
        """Where its table lies."""
        return self._table.path

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
        if facts.get("format") != FORMAT or facts.get("run") != self.run_id:
            raise ConfigError(f"{self.folder} is not the keyring of run {self.run_id}, or is of another format")
        epochs, capacity = range(1, int(str(facts["epoch"])) + 1), int(str(facts["capacity"]))
        for epoch in epochs:
            if not self._files.holds(epoch, capacity):
                raise ConfigError(
                    f"the keyring {self.folder} is damaged: {self._files.path(epoch).name} is missing or was cut; "
                    "restore the keyring from a backup"
                )
        [secret] = self._read_keys(1, [SECRET])
        if check_value(secret) != facts.get("check"):
            raise ConfigError(
                f"the keyring {self.folder} is damaged: its secret is not the one it was made with; restore it "
                "from a backup"
            )

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

    def count(self) -> int:
        """How many clients are in the keyring."""
        return int(self._fact("clients"))

    def _fact(self, name: str) -> str | int:
        with self._reading() as connection:
            [value] = connection.execute("SELECT value FROM facts WHERE name = ?", [name]).fetchone()
        found: str | int = value
        return found

    def _read_keys(self, epoch: int, positions: Iterable[int]) -> list[bytes]:
        try:
            return self._files.read(epoch, positions)
        except OSError as error:
            raise self._table.unusable(error) from None

    def _read_files(self) -> list[list[bytes]]:
        """Read all keys of all epochs, by place."""
        capacity = int(self._fact("capacity"))
        try:
            return [self._files.read_all(epoch, capacity) for epoch in range(1, self.epoch + 1)]
        except OSError as error:
            raise self._table.unusable(error) from None

    def _write_keys(self, epoch: int, keys: Mapping[int, bytes], *, capacity: int, new: bool = False) -> None:
        self._files.write(epoch, keys, capacity=capacity, new=new)

    def _load(self, connection: sqlite3.Connection, query: str) -> list[ClientKey]:
        """Read all clients whose rows a query finds, with their keys."""
        rows = connection.execute(query).fetchall()
        files = self._read_files()
        return self._opened(connection, rows, [tuple(file[place] for file in files) for _, place, _ in rows])

    def _load_by(
        self, connection: sqlite3.Connection, column: str, values: Sequence[int | bytes]
    ) -> list[ClientKey]:
        """Read clients with their keys: those with one of these values in a column."""
        rows = list(rows_among(connection, ROWS_BY[column], values))
        positions = [place for _, place, _ in rows]
        keys = list(zip(*(self._read_keys(epoch, positions) for epoch in range(1, self.epoch + 1)), strict=True))
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

    def keyed_hash(self, client: str) -> bytes:
        """Compute what an id is found by: its hash, keyed with the secret."""
        return self._lookup(client)

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


def _joined(keys: Sequence[bytes]) -> bytes:
    """What an id is sealed under: all keys of its client, so that damage to any of them is noticed."""
    return hashlib.sha256(b"disavow/keys/v1\x00" + b"".join(keys)).digest()


def check_value(secret: bytes) -> str:
    """Derive what a keyring notes of its secret, to notice another one."""
    return derive(secret, "check", b"").hex()
