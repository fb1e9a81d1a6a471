"""The service's own database: what it must remember that is no part of any run.

Tokens, sessions, idempotency keys, webhooks and what is still to be sent, OpenDSR requests, progress of workers. It
holds no client id, and nothing that derives from one without the service's key, which lies beside it.

SQLite with a write-ahead log and full durability: whatever was acknowledged survives a kill and a power cut.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from disavow.errors import ConfigError, StorageError, StorageFull
from disavow.ledger.files import PRIVATE_FILE, write_durably

DATABASE = "service.sqlite3"
KEY = "service.key"
_KEY_BYTES = 32
_BUSY_SECONDS = 30
_FORMAT = 1

_SCHEMA = """
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    prefix TEXT NOT NULL,  -- its first letters, by which people tell tokens apart
    hash BLOB NOT NULL UNIQUE,  -- SHA-256 of the token, which has 256 random bits
    name TEXT NOT NULL,
    roles TEXT NOT NULL,  -- separated by commas
    runs TEXT,  -- those it may be used for, separated by commas; NULL for all
    created_at REAL NOT NULL,  -- seconds since 1970, as all times here
    expires_at REAL,
    used_at REAL,
    revoked_at REAL
);
CREATE TABLE logins (
    hash BLOB PRIMARY KEY,  -- of what a single-use log-in link or an unfinished OpenID Connect log-in carries
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE sessions (
    hash BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    runs TEXT,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE nonces (hash BLOB PRIMARY KEY, expires_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE idempotency (
    hash BLOB PRIMARY KEY,  -- of who asked and the key
    fingerprint BLOB NOT NULL,  -- of what was asked, under the service's key
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE forecasts (
    run TEXT NOT NULL,  -- its id
    number INTEGER NOT NULL,
    forecast TEXT NOT NULL,  -- JSON, of the forecast that the request was filed or approved by; it names no client
    seen_at REAL NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    url TEXT NOT NULL,
    salt BLOB NOT NULL,  -- what deliveries are signed with derives from it and the service's key
    events TEXT NOT NULL,  -- separated by commas; * for all
    created_at REAL NOT NULL,
    removed_at REAL
);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook INTEGER REFERENCES webhooks (id),  -- NULL for a callback of OpenDSR
    url TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL,  -- NULL once it was delivered or given up
    delivered_at REAL,
    failure TEXT
);
CREATE INDEX deliveries_due ON deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE TABLE opendsr (
    id TEXT PRIMARY KEY,  -- subject_request_id
    controller TEXT NOT NULL,
    fingerprint BLOB NOT NULL,  -- of the body, under the service's key
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    received_at REAL NOT NULL,
    callbacks TEXT NOT NULL,  -- JSON list of URLs
    status TEXT NOT NULL  -- the last one that the callbacks were told
) WITHOUT ROWID;
CREATE INDEX opendsr_request ON opendsr (run, number);
CREATE TABLE watched (  -- requests that are not complete, in the last state that webhooks were told
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE watermarks (
    run TEXT PRIMARY KEY,
    newest INTEGER NOT NULL,  -- the request up to which all were seen
    purge INTEGER NOT NULL  -- the event up to which all purges were seen
) WITHOUT ROWID;
CREATE TABLE purges (  -- that somebody has asked for, and no worker has begun
    run TEXT PRIMARY KEY,
    forecast TEXT NOT NULL,  -- the digest of what was forecast
    by TEXT NOT NULL,
    asked_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE progress (
    run TEXT PRIMARY KEY,
    phase TEXT NOT NULL,  -- training, rebuilding, answering, purging, idle, refused
    done INTEGER NOT NULL,
    total INTEGER NOT NULL,
    detail TEXT NOT NULL,  -- a code of an error, or nothing
    updated_at REAL NOT NULL
) WITHOUT ROWID;
"""


class State:
    """The service's own database, for any number of threads; several processes may use it at once.

    Args:
        folder: Where it lies; made where it is not there.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._guard = threading.RLock()
        self.key = _service_key(folder)
        path = folder / DATABASE
        if not path.exists():
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE))
        self._connection = _connect(path)
        for name, value in {
            "journal_mode": "WAL",
            "synchronous": "FULL",
            "fullfsync": "ON",
            "secure_delete": "ON",
            "foreign_keys": "ON",
        }.items():
            self._connection.execute(f"PRAGMA {name} = {value}")
        self._make_tables()
        # who reads does not wait until what somebody else writes is durable
        self._reading, self._reader = threading.Lock(), _connect(path)

    def _make_tables(self) -> None:
        with self.writing() as connection:
            [found] = connection.execute("PRAGMA user_version").fetchone()
            if found == 0:
                for statement in filter(str.strip, _without_comments(_SCHEMA).split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
            elif found != _FORMAT:
                raise ConfigError(
                    f"{self.folder / DATABASE} has format {found}; this version of disavow reads {_FORMAT}"
                )

    def close(self) -> None:
        """Let go of the file."""
        with self._guard, self._reading:
            self._connection.close()
            self._reader.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change it: all of it, or nothing; what was changed is durable at the end.

        Raises:
            StorageError: The disk is full or fails.

        """
        with self._guard, _translated(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Read all rows of a query: of what was committed before."""
        with self._reading, _translated(self.folder):
            return self._reader.execute(query, values).fetchall()

    def row(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        """Read the first row of a query."""
        return next(iter(self.rows(query, values)), None)

    def keyed_hash(self, purpose: str, *parts: bytes) -> bytes:
        """Hash what must not be stored, under the service's key.

        Args:
            purpose: What the hash is for: hashes of two purposes are never alike.
            parts: What is hashed; each is hashed first, so that their limits count.

        """
        joined = b"".join(hashlib.sha256(part).digest() for part in (purpose.encode(), *parts))
        return hmac.digest(self.key, joined, "sha256")

    def tidy(self, now: float, *, keep: float) -> None:
        """Delete what has expired, and deliveries and idempotency keys older than so many seconds."""
        with self.writing() as connection:
            for table in ("logins", "sessions", "nonces"):
                connection.execute(f"DELETE FROM {table} WHERE expires_at < ?", (now,))  # noqa: S608
            connection.execute("DELETE FROM idempotency WHERE created_at < ?", (now - keep,))
            connection.execute("DELETE FROM deliveries WHERE delivered_at < ?", (now - keep,))


def _connect(path: Path) -> sqlite3.Connection:
    found = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False)
    found.row_factory = sqlite3.Row
    return found


def _without_comments(schema: str) -> str:
    return "\n".join(line.partition("--")[0] for line in schema.splitlines())


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = StorageFull if getattr(error, "sqlite_errorname", "").startswith("SQLITE_FULL") else StorageError
        raise kind(f"the service's database in {folder} cannot be used: {error}") from error


def _service_key(folder: Path) -> bytes:
    """Read the service's key, or make one; of two processes that make one, both use the first."""
    path = folder / KEY
    if not path.exists():
        write_durably(path, secrets.token_bytes(_KEY_BYTES), mode=PRIVATE_FILE, replace=False)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path} is damaged: a key has {_KEY_BYTES} bytes")
    return key
