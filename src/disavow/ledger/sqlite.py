"""SQLite as the ledger needs it: write-ahead log, full durability, foreign keys, deleted bytes overwritten."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool
from sqlalchemy.util import LRUCache

from disavow.errors import LedgerError, RunError, RunInUse
from disavow.ledger import backend
from disavow.ledger.backend import Backend, Objects, damaged, storage_error
from disavow.ledger.files import PRIVATE_FILE, kind_of, unsafe
from disavow.ledger.lock import Lock
from disavow.ledger.schema import metadata

NAME = "ledger.sqlite3"

_REVISION_TABLE = """CREATE TABLE alembic_version (
\tversion_num VARCHAR(32) NOT NULL, 
\tCONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""
"""As Alembic makes it."""

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
OF_THE_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""Names of errors by which SQLite says that the disk is full or fails."""

_READ_ONLY = "SQLITE_READONLY"
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_OBJECTS = "SELECT type, name, sql FROM sqlite_master"


class _Dialect(SQLiteDialect_pysqlite):
    """SQLite's, one as good as another: statements compiled for one ledger serve the next one that is opened."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


sa.dialects.registry.register("disavow", __name__, "_Dialect")
_COMPILED: LRUCache[Any, Any] = LRUCache(500)
"""Statements that were compiled in this process: most of the time of a short command is compiling them."""


class SQLite(Backend):
    """A file in the run directory."""

    name = NAME
    unreadable: ClassVar[tuple[type[Exception], ...]] = (*Backend.unreadable, sqlite3.DatabaseError)
    writing: ClassVar[Mapping[str, Any]] = {"immediate": True}

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / NAME

    def exists(self) -> bool:
        """See `Backend`."""
        return self.path.exists()

    def unsafe_files(self) -> Iterator[tuple[Path, str]]:
        """See `Backend`."""
        for end in ("", "-wal", "-shm"):
            file = self.path.with_name(NAME + end)
            kind = kind_of(file)
            if kind == "a file" and file.lstat().st_nlink > 1:
                kind = "a hard link"
            if kind not in (None, "a file"):
                yield file, kind
        # A ledger has a write-ahead log instead. A journal can name any other file, which SQLite then deletes.
        journal = self.path.with_name(NAME + "-journal")
        if kind_of(journal) is not None:
            yield journal, "a rollback journal"

    def _refuse_unsafe(self) -> None:
        """Refuse a ledger with links or special files, or with a rollback journal."""
        for file, kind in self.unsafe_files():
            raise unsafe(file, kind)

    def connect(self, *, write: bool) -> sa.Engine:
        """See `Backend`. With `write`, the file may be new."""
        path = self.path
        self._refuse_unsafe()
        if write and not path.exists():
            _create(path)
        query = "mode=rw" if write else _reading(path)
        place = str(path.parent.resolve() / path.name)
        quoted = place.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        uri = f"file:{quoted}?{query}"

        def open_file() -> sqlite3.Connection:
            # SQLite opens by name and follows links: what it opened must be what was looked at before
            before = path.lstat()
            # isolation_level None: no implicit transactions; `begin` below opens them explicitly
            opened = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=backend.BUSY_SECONDS, check_same_thread=False
            )
            if not os.path.samestat(before, path.lstat()):
                opened.close()
                raise unsafe(path, "no longer the same file")
            return opened

        engine = sa.create_engine(
            "disavow://",
            creator=open_file,
            poolclass=QueuePool,
            hide_parameters=True,
            execution_options={"compiled_cache": _COMPILED, "backend": self},
        )

        @sa.event.listens_for(engine, "handle_error")
        def translate(context: ExceptionContext) -> None:
            original = context.original_exception
            name = getattr(original, "sqlite_errorname", "")
            if name.startswith(_DAMAGED):
                raise damaged(path.parent, original) from original
            if name.startswith(OF_THE_DISK):
                raise storage_error(path.parent, original) from original
            if name.startswith(_READ_ONLY):
                raise RunError(f"{path.parent} cannot be written: Permission denied") from original
            if name.startswith(_BUSY):
                raise RunInUse(f"{path.parent} is being written by another process; try again") from original

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
            with self.reading(), closing(connection.cursor()) as cursor:
                cursor.execute("PRAGMA foreign_keys = ON")
                cursor.execute("PRAGMA secure_delete = ON")
                cursor.execute("PRAGMA synchronous = FULL")
                cursor.execute("PRAGMA fullfsync = ON")  # macOS; elsewhere it does nothing
                if write:
                    cursor.execute("PRAGMA journal_mode = WAL")
                else:
                    cursor.execute("PRAGMA query_only = ON")
            self._refuse_unsafe()  # SQLite has opened, or made, the files beside it meanwhile

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            # a writer takes its lock at once: upgrading a read lock later could fail halfway
            immediate = connection.get_execution_options().get("immediate", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

        return engine

    def lock(self) -> Lock:
        """See `Backend`."""
        return Lock(self.directory)

    def make_empty(self, revision: str) -> None:
        """Make the file, page by page.

        It is safe on disk once its first transaction is: whoever writes that closes the file, which syncs it whole.
        """
        _create(self.path)
        with closing(sqlite3.connect(self.path)) as file:
            file.execute("PRAGMA journal_mode = OFF")
            file.execute("PRAGMA synchronous = OFF")
            _empty(revision).backup(file)

    def remove(self) -> None:
        """See `Backend`: the file goes with its directory."""

    def revision_of(self, engine: sa.Engine) -> str | None:
        """See `Backend`."""
        try:
            with engine.connect() as connection:
                found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        except (sa.exc.DatabaseError, sqlite3.DatabaseError, LedgerError) as error:
            if "no such table" in str(error) or "file is not a database" in str(error):
                return None
            raise
        return None if found is None else str(found)

    def copy_to(self, target: Path, revision: str) -> None:  # noqa: ARG002 (a copy has the format of the ledger)
        """See `Backend`."""
        source, copied = self.connect(write=False), SQLite(target).connect(write=True)
        try:
            with (
                self.reading(),
                closing(source.raw_connection()) as here,
                closing(copied.raw_connection()) as there,
            ):
                here.driver_connection.backup(there.driver_connection)  # type: ignore[union-attr]
        finally:
            source.dispose()
            copied.dispose()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See `Backend`."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            name = getattr(error, "sqlite_errorname", _DAMAGED[0])  # its words may not even be text
            if name.startswith(OF_THE_DISK):
                raise storage_error(self.directory, error) from error
            if not name.startswith(_DAMAGED) or "not a database" in str(error):
                raise
            raise damaged(self.directory, error) from error

    # -- through a connection of it ------------------------------------------------------------------------

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], **same: Any
    ) -> None:
        """See `Backend`."""
        columns, first = [*same, *rows[0]], tuple(same.values())
        statement = table.insert().compile(dialect=connection.dialect, column_keys=columns)
        in_order = itemgetter(*(columns.index(column) for column in statement.positiontup or ()))
        connection.exec_driver_sql(str(statement), [in_order((*first, *row.values())) for row in rows])

    def last_number(self, connection: sa.Connection, table: sa.Table) -> int:
        """See `Backend`."""
        query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return int(connection.execute(query, {"name": table.name}).scalar() or 0)

    def faults(self, connection: sa.Connection) -> Iterator[tuple[str, str]]:
        """See `Backend`."""
        pages, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("page_count", "page_size")
        )
        log = self.path.with_name(NAME + "-wal")
        has = self.path.stat().st_size
        if not (log.exists() and log.stat().st_size) and has != (pages or 0) * (size or 0):
            yield NAME, f"is damaged: it has {has} bytes, not {pages} pages of {size}"
        for (message,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if message != "ok":
                yield NAME, f"is damaged: {message}"
        for table, _, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"table {table}", f"a row refers to a row of {parent} that is not there"

    def objects(self, connection: sa.Connection) -> Objects:
        """See `Backend`: every table, index, view and trigger, with the statement that made it."""
        found = connection.exec_driver_sql(_OBJECTS)
        return {(str(kind), str(name)): definition for kind, name, definition in found}

    def expected_objects(self, connection: sa.Connection, revision: str) -> Objects:  # noqa: ARG002
        """See `Backend`."""
        return _objects_of_format(revision)

    def stored_bytes(self, connection: sa.Connection) -> int:  # noqa: ARG002
        """See `Backend`: the file is in the run directory."""
        return 0

    def contents(self) -> Iterator[tuple[str, BinaryIO]]:
        """See `Backend`: the file is in the run directory."""
        return iter(())


def _create(path: Path) -> None:
    """Make the empty file, so that it is private from the first: SQLite gives the files beside it the same mode."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


def _reading(path: Path) -> str:
    """How to open a ledger so that looking at it changes none of its bytes."""
    log = path.with_name(path.name + "-wal")
    unread = log.exists() and log.stat().st_size > 0
    if os.access(path.parent, os.W_OK):
        # with a log beside it (a writer at work, or a crash) closing must not move the log into the file
        return "mode=ro" if unread else "mode=rw"
    if unread:
        raise LedgerError(
            f"{path.parent} is read-only and {log.name} is not empty: copy the run, then read the copy"
        )
    return "immutable=1"  # SQLite cannot keep its shared-memory file there


@cache
def _objects_of_format(revision: str) -> Objects:
    return {(kind, name): definition for kind, name, definition in _empty(revision).execute(_OBJECTS)}


@cache
def _empty(revision: str) -> sqlite3.Connection:
    """An empty ledger in memory, made once a process: an audit makes a ledger for each of its worlds.

    It is what `database.migrate` makes of an empty file (a test compares them), without loading Alembic.
    """
    kept = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    engine = sa.create_engine("sqlite://", creator=lambda: kept, poolclass=StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(_REVISION_TABLE)
        connection.exec_driver_sql("INSERT INTO alembic_version (version_num) VALUES (?)", (revision,))
        metadata.create_all(connection, checkfirst=False)
    return kept
