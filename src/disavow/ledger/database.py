"""SQLite as the ledger needs it: write-ahead log, full durability, foreign keys, deleted bytes overwritten."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, ExceptionContext
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool
from sqlalchemy.util import LRUCache

from disavow.errors import (
    NO_ROOM,
    REFUSED,
    LedgerError,
    LedgerVersion,
    RunError,
    RunInUse,
    RunMissing,
    StorageError,
    StorageFull,
)
from disavow.ledger.files import PRIVATE_FILE, kind_of, unsafe
from disavow.ledger.schema import metadata

NAME = "ledger.sqlite3"
HEAD = "0300"
"""The revision this version of disavow reads and writes: the newest file in migrations/versions."""

_REVISION_TABLE = """CREATE TABLE alembic_version (
\tversion_num VARCHAR(32) NOT NULL, 
\tCONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""
"""As Alembic makes it."""

_MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 30
"""How long a process waits for others who write, unless it says otherwise."""

_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_FULL = "SQLITE_FULL"
_REFUSED = ("SQLITE_IOERR", "SQLITE_CANTOPEN")
_READ_ONLY = "SQLITE_READONLY"
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")


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


def connect(path: Path, *, write: bool) -> sa.Engine:
    """An engine on a ledger file. Without `write`, nothing can be changed through it; with it, it may be new."""
    refuse_unsafe(path)
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
        opened = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
        if not os.path.samestat(before, path.lstat()):
            opened.close()
            raise unsafe(path, "no longer the same file")
        return opened

    engine = sa.create_engine(
        "disavow://",
        creator=open_file,
        poolclass=QueuePool,
        hide_parameters=True,
        execution_options={"compiled_cache": _COMPILED},
    )

    @sa.event.listens_for(engine, "handle_error")
    def translate(context: ExceptionContext) -> None:
        original = context.original_exception
        name = getattr(original, "sqlite_errorname", "")
        if name.startswith(_DAMAGED):
            raise _damaged(path.parent, original) from original
        if name.startswith((_FULL, *_REFUSED)):
            raise _storage(path.parent, original) from original
        if name.startswith(_READ_ONLY):
            raise RunError(f"{path.parent} cannot be written: Permission denied") from original
        if name.startswith(_BUSY):
            raise RunInUse(f"{path.parent} is being written by another process; try again") from original

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        with reading(path.parent), closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA secure_delete = ON")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("PRAGMA fullfsync = ON")  # macOS; elsewhere it does nothing
            if write:
                cursor.execute("PRAGMA journal_mode = WAL")
            else:
                cursor.execute("PRAGMA query_only = ON")
        refuse_unsafe(path)  # SQLite has opened, or made, the files beside it meanwhile

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # a writer takes its lock at once: upgrading a read lock later could fail halfway
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def unsafe_files(path: Path) -> Iterator[tuple[Path, str]]:
    """What of a ledger's files is not a file, and what it is instead."""
    for end in ("", "-wal", "-shm"):
        file = path.with_name(path.name + end)
        kind = kind_of(file)
        if kind == "a file" and file.lstat().st_nlink > 1:
            kind = "a hard link"
        if kind not in (None, "a file"):
            yield file, kind
    # A ledger has a write-ahead log instead. A journal can name any other file, which SQLite then deletes.
    journal = path.with_name(path.name + "-journal")
    if kind_of(journal) is not None:
        yield journal, "a rollback journal"


def refuse_unsafe(path: Path) -> None:
    """Refuse a ledger with links or special files, or with a rollback journal."""
    for file, kind in unsafe_files(path):
        raise unsafe(file, kind)


def _create(path: Path) -> None:
    """Make the empty file, so that it is private from the first: SQLite gives the files beside it the same mode."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that writes: committed at the end, rolled back by any exception."""
    with engine.execution_options(immediate=True).begin() as connection:
        yield connection


@contextmanager
def busy_for(connection: sa.PoolProxiedConnection, seconds: float) -> Iterator[DBAPICursor]:
    """A cursor whose statements wait at most so long for others."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {max(0, round(1000 * seconds))}")
        try:
            yield cursor
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_SECONDS)}")


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


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Turn what SQLite says of a damaged file into an error that says what to do."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        name = getattr(error, "sqlite_errorname", _DAMAGED[0])  # its words may not even be text
        if name.startswith((_FULL, *_REFUSED)):
            raise _storage(directory, error) from error
        if not name.startswith(_DAMAGED) or "not a database" in str(error):
            raise
        raise _damaged(directory, error) from error


def _damaged(directory: Path, reason: BaseException) -> LedgerError:
    return LedgerError(f"the ledger of {directory} is damaged: {reason}; `disavow fsck {directory}` says more")


@contextmanager
def room_to_write(directory: Path) -> Iterator[None]:
    """Turn a full or a failing disk into an error that says how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM | REFUSED:
            raise
        raise _storage(directory, error) from error
    except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
        original = getattr(error, "orig", error)
        if not getattr(original, "sqlite_errorname", "").startswith((_FULL, *_REFUSED)):
            raise
        raise _storage(directory, original) from error


def _storage(directory: Path, error: BaseException) -> StorageError:
    """What SQLite or the system says of the disk. SQLite does not tell why it could not read, write or open."""
    name = getattr(error, "sqlite_errorname", "")
    reason = f"{error} ({name})" if name else getattr(error, "strerror", None) or str(error)
    told = f"{directory} cannot be read or written: {reason}; the run stays at its last good state: "
    if name.startswith(_FULL) or getattr(error, "errno", None) in NO_ROOM:
        return StorageFull(f"{told}make room, then `disavow resume {directory}` goes on")
    look = "look at the disk, at permissions and at limits (`ulimit -a`)"
    return StorageError(f"{told}{look}, then `disavow resume {directory}` goes on")


def revision_of(engine: sa.Engine) -> str | None:
    """The format of a ledger file; None where there is no ledger in it."""
    try:
        with engine.connect() as connection:
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    except (sa.exc.DatabaseError, sqlite3.DatabaseError, LedgerError) as error:
        if "no such table" in str(error) or "file is not a database" in str(error):
            return None
        raise
    return None if found is None else str(found)


def check_revision(directory: Path) -> None:
    """Refuse a ledger whose format this version does not read, saying what to do about it."""
    engine = connect(directory / NAME, write=False)
    try:
        found = revision_of(engine)
    finally:
        engine.dispose()
    if found is None:
        raise RunMissing(f"{directory / NAME} is not a disavow ledger")
    if found == HEAD:
        return
    if found < HEAD:
        raise LedgerVersion(
            f"{directory} has ledger format {found}, which was never released; this version reads {HEAD}: "
            "read the run with the version that wrote it, or train a new one"
        )
    raise LedgerVersion(
        f"{directory} has ledger format {found}; this version of disavow reads {HEAD}: "
        "it was written by a newer disavow, use that one"
    )


def make_empty(path: Path) -> None:
    """Make a new file an empty ledger of the newest format, page by page.

    It is safe on disk once its first transaction is: whoever writes that closes the file, which syncs it whole.
    """
    _create(path)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = OFF")
        file.execute("PRAGMA synchronous = OFF")
        _empty().backup(file)


SCHEMA_OBJECTS = "SELECT type, name, sql FROM sqlite_master"
"""Every table, index, view and trigger of a database, with the statement that made it."""


@cache
def schema_objects() -> dict[tuple[str, str], str | None]:
    """Those of this format."""
    return {(kind, name): definition for kind, name, definition in _empty().execute(SCHEMA_OBJECTS)}


@cache
def _empty() -> sqlite3.Connection:
    """An empty ledger in memory, made once a process: an audit makes a ledger for each of its worlds.

    It is what `migrate` makes of an empty file (a test compares them), without loading Alembic.
    """
    kept = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    engine = sa.create_engine("sqlite://", creator=lambda: kept, poolclass=StaticPool)
    with writing(engine) as connection:
        connection.exec_driver_sql(_REVISION_TABLE)
        connection.exec_driver_sql("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))
        metadata.create_all(connection, checkfirst=False)
    return kept


def migrate(engine: sa.Engine) -> None:
    """Bring a ledger to the newest format, in one transaction; a new file becomes an empty ledger."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
