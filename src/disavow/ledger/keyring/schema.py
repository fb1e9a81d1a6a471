"""The table of a keyring: its columns, and the queries that every part of the keyring makes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

FORMAT = "4"
"""Which tables and files a keyring has."""

_BATCH = 500
"""How many rows one query looks up."""

SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE clients (
    number INTEGER PRIMARY KEY,  -- random: what the run calls a client while its request waits
    place INTEGER NOT NULL UNIQUE,  -- of its key in each file of keys
    lookup BLOB NOT NULL,  -- keyed hash of its id
    sealed BLOB,  -- its id, sealed under its keys
    openings BLOB,  -- the folder for its opening, sealed under its first key
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
CREATE TABLE requests (
    request BLOB PRIMARY KEY,  -- drawn for the request; the run has it, too
    client INTEGER NOT NULL,  -- its number
    sealed BLOB NOT NULL  -- the records that it names, if any, sealed under the client's first key
) WITHOUT ROWID;
CREATE INDEX requests_of ON requests (client);
CREATE TABLE excluded (
    client BLOB NOT NULL,  -- keyed hash of its id
    record BLOB NOT NULL,  -- keyed hash of a record; see domain.records
    PRIMARY KEY (client, record)
) WITHOUT ROWID;
"""

IN_USE, SUCCESSOR, PREDECESSOR = 0, 1, 2
"""What `clients.role` may be."""

ROWS = "SELECT number, place, sealed FROM clients WHERE marked = 0"
ROWS_IN_USE = f"{ROWS} AND role = 0"
ROWS_BY = {"number": f"{ROWS} AND number", "lookup": f"{ROWS_IN_USE} AND lookup"}


def rows_among(
    connection: sqlite3.Connection, query: str, values: Sequence[int | bytes]
) -> Iterator[tuple[Any, ...]]:
    """Run a query that ends in a column for the rows that have one of these values in it, some at a time."""
    for start in range(0, len(values), _BATCH):
        some = values[start : start + _BATCH]
        yield from connection.execute(f"{query} IN ({', '.join('?' * len(some))})", some)


def note_change(connection: sqlite3.Connection, *, more: int = 0) -> None:
    """Note that the keyring was changed in a way that an older copy would undo, and by how many clients."""
    connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")
    connection.execute("UPDATE facts SET value = value + ? WHERE name = 'clients'", [more])
