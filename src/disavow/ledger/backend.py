"""What the ledger asks of a database: one implementation for SQLite, one for PostgreSQL.

Nothing else in this package knows which of them holds the rows of a run. A connection finds its backend in its
execution options (`backend_of`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import sqlalchemy as sa

from disavow.errors import NO_ROOM, LedgerError, StorageError, StorageFull
from disavow.ledger.lock import Lock

BUSY_SECONDS = 30
"""How long a process waits for others who write, unless it says otherwise."""

Objects = dict[tuple[str, str], str | None]
"""What a schema is made of: the definition of each table, index and so on, by its kind and its name."""


class Backend(ABC):
    """The rows of one run, wherever they are kept.

    Args:
        directory: The folder of the run.

    """

    name: str
    """What holds the rows, as fsck calls it."""

    unreadable: ClassVar[tuple[type[Exception], ...]] = (sa.exc.DatabaseError, UnicodeDecodeError, LedgerError)
    """What is raised where stored bytes make no sense."""

    writing: ClassVar[Mapping[str, Any]]
    """Execution options of a connection whose transaction writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def exists(self) -> bool:
        """Whether the run directory has, or names, a ledger."""

    @abstractmethod
    def unsafe_files(self) -> Iterator[tuple[Path, str]]:
        """What of its files is not a file, and what it is instead."""

    @abstractmethod
    def connect(self, *, write: bool) -> sa.Engine:
        """Make an engine. Without `write`, nothing can be changed through it."""

    @abstractmethod
    def lock(self) -> Lock:
        """Take the lock of the run.

        Raises:
            RunInUse: Another process holds it.

        """

    @abstractmethod
    def make_empty(self, revision: str) -> None:
        """Make an empty ledger of this format, where there is none."""

    @abstractmethod
    def remove(self) -> None:
        """Remove what was made of a ledger beside the files in its directory: the run did not come into being."""

    @abstractmethod
    def revision_of(self, engine: sa.Engine) -> str | None:
        """Read the format of the ledger; None where there is none."""

    @abstractmethod
    def copy_to(self, target: Path, revision: str) -> None:
        """Copy the rows in the state of one moment into an SQLite file in another run directory."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Turn what the driver says of a damaged database into an error that says what to do."""

    # -- through a connection of it ------------------------------------------------------------------------

    @abstractmethod
    def insert_many(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], **same: Any
    ) -> None:
        """Store rows as they are: converting the values of a large round would take longer than storing them.

        Args:
            connection: Where.
            table: The table.
            rows: Rows that all have the same columns, in the same order.
            same: Columns that have the same value in all of them.

        """

    @abstractmethod
    def last_number(self, connection: sa.Connection, table: sa.Table) -> int:
        """Read the last number that was given to a row of a table whose numbers are never given twice."""

    @abstractmethod
    def faults(self, connection: sa.Connection) -> Iterator[tuple[str, str]]:
        """Check what the database itself can check: where a fault is, and what it is."""

    @abstractmethod
    def objects(self, connection: sa.Connection) -> Objects:
        """Read what the ledger's schema is made of."""

    @abstractmethod
    def expected_objects(self, connection: sa.Connection, revision: str) -> Objects | None:
        """What the schema of this format is made of; None where that cannot be told."""

    @abstractmethod
    def stored_bytes(self, connection: sa.Connection) -> int:
        """How much the rows take outside the run directory."""

    @abstractmethod
    def contents(self) -> Iterator[tuple[str, BinaryIO]]:
        """Every byte of every row that is not in a file of the run directory, by what holds it."""


def backend_of(connection: sa.Connection) -> Backend:
    """The backend that a connection was made by."""
    found: Backend = connection.get_execution_options()["backend"]
    return found


def damaged(directory: Path, reason: BaseException) -> LedgerError:
    """Say of a ledger that its stored bytes make no sense."""
    return LedgerError(f"the ledger of {directory} is damaged: {reason}; `disavow fsck {directory}` says more")


def storage_error(directory: Path, error: BaseException) -> StorageError:
    """What SQLite or the system says of the disk. SQLite does not tell why it could not read, write or open."""
    name = getattr(error, "sqlite_errorname", "")
    reason = f"{error} ({name})" if name else getattr(error, "strerror", None) or str(error)
    prefix = f"{directory} cannot be read or written: {reason}; the run stays at its last good state: "
    if name.startswith("SQLITE_FULL") or getattr(error, "errno", None) in NO_ROOM:
        return StorageFull(f"{prefix}make room, then `disavow resume {directory}` goes on")
    look = "look at the disk, at permissions and at limits (`ulimit -a`)"
    return StorageError(f"{prefix}{look}, then `disavow resume {directory}` goes on")
