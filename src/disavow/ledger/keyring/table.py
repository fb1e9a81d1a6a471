"""The SQLite file of a keyring: opened on first use, by its owner alone, and never carried across a fork."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from disavow.errors import ConfigError, DisavowError, RunInUse, StorageError, StorageFull

TABLE = "clients.sqlite3"
_BUSY_SECONDS = 30
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_OF_THE_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
_SMALL = 4 << 20
"""A table of so many bytes is rewritten in some milliseconds."""


class KeyringTable:
    """The table of a keyring, for any number of threads.

    SQLite's connections must not live on in a child process: the child, closing what it got from its parent, may
    delete the write-ahead log that the parent goes on writing to. So they are closed before a fork; parent and
    child open their own when they next need one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        _TABLES.add(self)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder / TABLE

    def close(self) -> None:
        """Let go of the file; it is opened again when it is used."""
        with self.guard:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Use the file. What SQLite refuses becomes one of disavow's errors."""
        with self.guard:
            try:
                if self._connection is None:
                    self.refuse_exposed()
                    writable = os.access(self.folder, os.W_OK) and os.access(self.path, os.W_OK)
                    self._connection = connect(self.path, "rw" if writable else "ro")
                yield self._connection
            except sqlite3.DatabaseError as error:
                raise self.unusable(error) from error

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Change the file: all of it, or nothing.

        Args:
            durable: Whether a power cut right after it must not undo it. A killed process never does.

        """
        with self.reading() as connection:
            if not durable:
                connection.execute("PRAGMA synchronous = NORMAL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # after some failures SQLite has rolled back itself
                        connection.execute("ROLLBACK")
                    raise
            finally:
                if not durable:
                    connection.execute("PRAGMA synchronous = FULL")

    def drop_deleted(self) -> None:
        """Rewrite a small table, so that no free page tells what was deleted; a large one is left as it is.

        Whoever reads meanwhile keeps an older state in the write-ahead log until it is done.
        """
        with self.reading() as connection:
            [pages], [size] = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
            if pages * size > _SMALL:
                return
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                with suppress(sqlite3.OperationalError):  # somebody else is writing, and may do it
                    connection.execute("VACUUM")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")

    def refuse_exposed(self) -> None:
        """Refuse a keyring that others than whoever uses it own or may use."""
        for path in (self.folder, *self.folder.iterdir()):
            try:
                found = path.lstat()
            except FileNotFoundError:  # SQLite removes its working files when the last process closes the table
                continue
            mode = stat.S_IMODE(found.st_mode)
            if found.st_uid != os.geteuid():
                raise ConfigError(
                    f"{path} belongs to user {found.st_uid}, and you are user {os.geteuid()}; "
                    f"`chown -R` the folder {self.folder} to whoever uses it, or use it as its owner"
                )
            if mode & 0o077:
                raise ConfigError(
                    f"{path} may be used by others than its owner (mode {mode:o}); "
                    f"`chmod -R go= {self.folder}` takes it away from them"
                )

    def unusable(self, error: Exception) -> DisavowError:
        """Say what is wrong with the keyring, where the system or SQLite refused."""
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_OF_THE_DISK):
            kind = StorageFull if name.startswith("SQLITE_FULL") else StorageError
            return kind(f"the keyring {self.folder} cannot be read or written: {error} ({name}); look at the disk")
        if name.startswith(_BUSY):
            return RunInUse(f"the keyring {self.folder} is being written by another process; try again")
        if name.startswith("SQLITE_READONLY"):
            return ConfigError(f"the keyring {self.folder} cannot be written: Permission denied")
        return ConfigError(f"the keyring {self.folder} cannot be used: {error}; restore it from a backup")

    # -- forks ---------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the connection, unless the forking thread itself is in the middle of a change."""
        self.guard.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._connection.close()
            self._connection = None

    def after_fork(self, *, child: bool) -> None:
        """Let others use it again."""
        if child and self._connection is not None:
            _ABANDONED.append(self._connection)  # closing it would end the parent's transaction
            self._connection = None
        self.guard.release()


_TABLES: weakref.WeakSet[KeyringTable] = weakref.WeakSet()
_ABANDONED: list[sqlite3.Connection] = []
_forking: list[KeyringTable] = []
_FORK = threading.Lock()


def _before_fork() -> None:
    _FORK.acquire()  # another thread may fork at the same time
    _forking[:] = list(_TABLES)
    for table in _forking:
        table.before_fork()


def _after_fork(*, child: bool) -> None:
    for table in _forking:
        table.after_fork(child=child)
    _forking.clear()
    _FORK.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(child=False),
    after_in_child=lambda: _after_fork(child=True),
)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a connection to the SQLite file of a keyring.

    Args:
        path: The file.
        mode: SQLite's: `ro`, `rw`, or `rwc` to make it.

    """
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(
        f"file:{quoted}?mode={mode}", uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection
