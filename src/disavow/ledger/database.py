"""SQLite as the ledger needs it: write-ahead log, full durability, foreign keys, deleted bytes overwritten."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from disavow.errors import LedgerVersion, RunMissing

NAME = "ledger.sqlite3"
HEAD = "0001"
"""The revision this version of disavow reads and writes: the newest file in migrations/versions."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_SECONDS = 30


def connect(path: Path, *, write: bool) -> sa.Engine:
    """An engine on a ledger file. Without `write`, nothing can be changed through it."""
    query = "mode=rwc" if write else "mode=rw"
    if not write and not os.access(path.parent, os.W_OK):
        query = "immutable=1"  # on a read-only medium SQLite cannot keep its shared-memory file
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{quoted}?{query}"

    def open_file() -> sqlite3.Connection:
        # isolation_level None: no implicit transactions; `begin` below opens them explicitly
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False)

    engine = sa.create_engine("sqlite://", creator=open_file, poolclass=QueuePool)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA secure_delete = ON")
            cursor.execute("PRAGMA synchronous = FULL")
            if write:
                cursor.execute("PRAGMA journal_mode = WAL")
            else:
                cursor.execute("PRAGMA query_only = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # a writer takes its lock at once: upgrading a read lock later could fail halfway
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def revision_of(engine: sa.Engine) -> str | None:
    """The format of a ledger file; None where there is no ledger in it."""
    try:
        with engine.connect() as connection:
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    except sa.exc.DatabaseError:
        return None
    return None if found is None else str(found)


def known_revisions() -> list[str]:
    """All formats that can be migrated to the newest, oldest first."""
    return sorted(path.stem[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def check_revision(engine: sa.Engine, directory: Path) -> str:
    """The format of a ledger that this version can read or migrate; otherwise what to do about it."""
    found = revision_of(engine)
    if found is None:
        raise RunMissing(f"{directory / NAME} is not a disavow ledger")
    if found not in known_revisions():
        raise LedgerVersion(
            f"{directory} has ledger format {found}; this version of disavow reads {HEAD} and older: "
            "it was written by a newer disavow, use that one"
        )
    return found


def migrate(engine: sa.Engine) -> None:
    """Bring a ledger to the newest format, in one transaction; a new file becomes an empty ledger."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
