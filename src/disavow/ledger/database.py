"""The database of a run: which one it is, transactions, and errors that say what to do.

A run directory holds the rows itself (`sqlite`), or a small file that names where they are (`postgres`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy as sa

from disavow.errors import NO_ROOM, REFUSED, LedgerVersion, RunError, RunMissing
from disavow.ledger.backend import Backend, backend_of, storage_error
from disavow.ledger.files import kind_of
from disavow.ledger.lock import Lock
from disavow.ledger.sqlite import NAME, OF_THE_DISK, SQLite

HEAD = "0300"
"""The revision this version of disavow reads and writes: the newest file in migrations/versions."""

ADDRESS = "database.json"
"""The file of a run whose rows are elsewhere; it says where, without a password."""

LOCAL = "sqlite"
"""In place of a URL: the rows are kept in the run directory."""

VARIABLE = "DISAVOW_DATABASE"

FILES = (NAME, f"{NAME}-wal", f"{NAME}-shm", ADDRESS)
"""What any database may have in a run directory."""

_MIGRATIONS = Path(__file__).parent / "migrations"


def of(directory: Path) -> Backend:
    """The database of a run, as its directory says.

    Args:
        directory: The folder of the run.

    Raises:
        RunError: What says where the rows are cannot be used.

    """
    local = SQLite(directory)
    if kind_of(directory / ADDRESS) is None:
        return local
    if local.exists():
        raise RunError(f"{directory} holds {NAME} and {ADDRESS}: its ledger can be in one of them only")
    from disavow.ledger.postgres import Postgres

    return Postgres.of(directory, os.environ.get(VARIABLE))


def chosen(url: str | None) -> str:
    """Where a new run keeps its rows: what was asked for, or else what the environment says.

    Args:
        url: A database URL, or "sqlite" for the run directory; None where nothing was asked for.

    Returns:
        A database URL, or "sqlite".

    Raises:
        ConfigError: It is no such URL.

    """
    url = url or os.environ.get(VARIABLE) or LOCAL
    if url != LOCAL:
        from disavow.ledger.postgres import parse

        parse(url)
    return url


def has_password(url: str) -> bool:
    """Whether a URL says more than may be kept in a file.

    Args:
        url: A database URL, or "sqlite".

    Raises:
        ConfigError: It is no such URL.

    """
    if url == LOCAL:
        return False
    from disavow.ledger.postgres import parse, without_secrets

    return without_secrets(parse(url)) != parse(url)


def refuse_unreachable(url: str, directory: Path) -> None:
    """Refuse a database that cannot be used, before data is loaded for a run that would keep its rows in it.

    Args:
        url: As `chosen` gives it.
        directory: The run that is to be made.

    Raises:
        DatabaseUnavailable: It does not answer, or not to this role.

    """
    if url != LOCAL:
        from disavow.ledger.postgres import Postgres, parse

        Postgres(directory, parse(url), "public").probe()


def new(directory: Path, url: str, run_id: str) -> Backend:
    """The database of a run that is being made; what names it is written into its directory.

    Args:
        directory: The folder of the run.
        url: As `chosen` gives it.
        run_id: The run.

    """
    if url == LOCAL:
        return SQLite(directory)
    from disavow.ledger.postgres import Postgres

    return Postgres.new(directory, url, run_id)


def exists(directory: Path) -> bool:
    """Whether a directory holds a ledger, or names one."""
    return any(path.exists() for path in rows_at(directory))


def rows_at(directory: Path) -> tuple[Path, Path]:
    """Where the rows of a run may be, or the file that names where they are; one of the two is there."""
    return directory / NAME, directory / ADDRESS


def connect(directory: Path, *, write: bool) -> sa.Engine:
    """Make an engine on the ledger of a run. Without `write`, nothing can be changed through it."""
    return of(directory).connect(write=write)


def lock(directory: Path) -> Lock:
    """Take the lock of a run: its directory's, and that of its database where other machines can reach it."""
    return of(directory).lock()


def unsafe_files(directory: Path) -> Iterator[tuple[Path, str]]:
    """What of a ledger's files is not a file, and what it is instead."""
    address = directory / ADDRESS
    kind = kind_of(address)
    if kind not in (None, "a file"):
        yield address, kind
    yield from SQLite(directory).unsafe_files()


@contextmanager
def writing(engine: sa.Engine, held: Lock | None = None) -> Iterator[sa.Connection]:
    """A transaction that writes: committed at the end, rolled back by any exception.

    Args:
        engine: As `connect` makes it.
        held: The lock of the run, where this process holds it; a lock that was lost writes nothing.

    Raises:
        RunInUse: Others are writing for too long, or have taken the lock.

    """
    backend: Backend = engine.get_execution_options()["backend"]
    with engine.execution_options(**backend.writing).begin() as connection:
        if held is not None:
            held.refuse_lost(connection)
        yield connection


def reading(directory: Path) -> AbstractContextManager[None]:
    """Turn what the driver says of a damaged database into an error that says what to do."""
    return of(directory).reading()


@contextmanager
def room_to_write(directory: Path) -> Iterator[None]:
    """Turn a full or a failing disk into an error that says how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM | REFUSED:
            raise
        raise storage_error(directory, error) from error
    except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
        original = getattr(error, "orig", error)
        if not getattr(original, "sqlite_errorname", "").startswith(OF_THE_DISK):
            raise
        raise storage_error(directory, original) from error


def check_revision(directory: Path) -> None:
    """Refuse a ledger whose format this version does not read, saying what to do about it."""
    backend = of(directory)
    engine = backend.connect(write=False)
    try:
        found = backend.revision_of(engine)
    finally:
        engine.dispose()
    if found is None:
        raise RunMissing(f"{directory / backend.name} is not a disavow ledger")
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


def make_empty(backend: Backend) -> None:
    """Make an empty ledger of the newest format, where there is none."""
    backend.make_empty(HEAD)


def copy_rows(directory: Path, target: Path) -> None:
    """Copy the rows of a run in the state of one moment into an SQLite file in another directory."""
    of(directory).copy_to(target, HEAD)


def migrate(engine: sa.Engine) -> None:
    """Bring a ledger to the newest format, in one transaction; a new database becomes an empty ledger."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


__all__ = [
    "ADDRESS",
    "FILES",
    "HEAD",
    "LOCAL",
    "NAME",
    "VARIABLE",
    "backend_of",
    "check_revision",
    "chosen",
    "connect",
    "copy_rows",
    "exists",
    "has_password",
    "lock",
    "make_empty",
    "migrate",
    "new",
    "of",
    "reading",
    "refuse_unreachable",
    "room_to_write",
    "rows_at",
    "unsafe_files",
    "writing",
]
