"""PostgreSQL as the ledger needs it: one schema for each run, so that one database holds many.

Every connection has the schema of its run, and no other, as its search path: the tables, the migration and the SQL
are those of SQLite. Reading is `REPEATABLE READ`, one state for each transaction. Writing is `READ COMMITTED`,
behind an advisory lock that every writer of the run takes first, as `BEGIN IMMEDIATE` does on SQLite. Whoever holds
the run has a second advisory lock, in a session of its own; `holder` says who, and a writer that has lost that lock
to somebody else is refused. See docs/design/0022-databases.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from sqlalchemy.util import LRUCache

from disavow.errors import (
    ConfigError,
    DatabaseUnavailable,
    DisavowError,
    MissingExtra,
    RunError,
    RunInUse,
    RunMissing,
    StorageFull,
    how_to_install,
)
from disavow.ledger import backend
from disavow.ledger.backend import Backend, Objects, damaged
from disavow.ledger.files import PRIVATE_FILE, write_durably
from disavow.ledger.lock import Lock
from disavow.ledger.schema import erasures, metadata, releases, request_events, requests, rounds
from disavow.ledger.sqlite import SQLite

_ADDRESS = "database.json"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRETS = ("password", "sslpassword", "sslkey", "passfile")
"""Parameters of a URL that a run directory does not keep."""

_CONNECT_SECONDS = 10
_KEEPALIVE_SECONDS = 60
_BATCH = 1000
_GIVEN: dict[tuple[object, ...], sa.URL] = {}
"""URLs, maybe with a password, by which this process has made runs: it opens them by the same."""

_EXPECTED: dict[tuple[str, str], Objects] = {}
"""What servers said of a schema of a format; asked once a process."""

_LARGEST_ADDRESS = 1 << 16

_NUMBERED = (rounds, erasures, requests, request_events, releases)

_COMPLETION = "\n".join(
    [
        "CREATE TABLE numbers (name TEXT PRIMARY KEY, last INTEGER NOT NULL);",
        *(f"INSERT INTO numbers VALUES ('{table.name}', 0);" for table in _NUMBERED),  # noqa: S608 - ours
        "CREATE FUNCTION next_number(TEXT) RETURNS INTEGER LANGUAGE SQL AS "
        "'UPDATE numbers SET last = last + 1 WHERE name = $1 RETURNING last';",
        *(
            f"ALTER TABLE {table.name} ALTER id SET DEFAULT next_number('{table.name}'); "
            f"DROP SEQUENCE {table.name}_id_seq;"
            for table in _NUMBERED
        ),
        "CREATE TABLE holder (token TEXT NOT NULL, process TEXT NOT NULL);",
        "INSERT INTO holder VALUES ('', '');",
    ]
)
"""What SQLite has of its own. Numbers are given within a transaction: a sequence would leave gaps behind those that
were rolled back, and a gap is how fsck notices that a row was deleted."""


@sa.event.listens_for(metadata, "after_create")
def _complete(_: sa.MetaData, connection: sa.Connection, **__: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.DDL(_COMPLETION))  # type: ignore[no-untyped-call]


class _Dialect(PGDialect_psycopg):
    """PostgreSQL's; statements compiled for one ledger serve the next one on a server of the same version."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.server_version_info == self.server_version_info

    def __hash__(self) -> int:
        return hash(type(self))


sa.dialects.registry.register("postgresql.disavow", __name__, "_Dialect")
for _table in metadata.tables.values():
    for _index in _table.indexes:  # what is an index of some rows alone is that here, too
        _index.dialect_options["postgresql"]["where"] = _index.dialect_options["sqlite"]["where"]
_COMPILED: LRUCache[Any, Any] = LRUCache(500)
"""Statements that were compiled in this process."""


def parse(url: str) -> sa.URL:
    """Read a database URL.

    Args:
        url: Such as `postgresql+psycopg://role@host:5432/database`.

    Raises:
        ConfigError: It is none of a PostgreSQL database.

    """
    try:
        found = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        found = None
    if found is None or found.drivername not in ("postgresql", "postgresql+psycopg"):
        # what was given is not repeated: it may hold a password
        raise ConfigError(
            'the database is no URL that can be used; allowed: "sqlite" (a file in the run directory), or one like '
            "postgresql+psycopg://role@host:5432/database"
        )
    if not found.database:
        raise ConfigError("the database URL names no database; allowed: one that ends with /NAME")
    return found.set(drivername="postgresql+psycopg")


def without_secrets(url: sa.URL) -> sa.URL:
    """A URL without its passwords, to be kept and shown."""
    return url._replace(password=None).difference_update_query(_SECRETS)


def _place(url: sa.URL) -> tuple[object, ...]:
    """The server and the database that a URL leads to."""
    return url.host or url.query.get("host"), url.port or url.query.get("port"), url.database


class Postgres(Backend):
    """A schema in a PostgreSQL database.

    Args:
        directory: The folder of the run.
        url: The database.
        schema: The schema of the run in it.

    """

    name = "database"
    writing: ClassVar[Mapping[str, Any]] = {"immediate": True, "isolation_level": "READ COMMITTED"}

    def __init__(self, directory: Path, url: sa.URL, schema: str) -> None:
        super().__init__(directory)
        self.url, self.schema = url, schema
        self.shown = without_secrets(url).render_as_string()

    @classmethod
    def of(cls, directory: Path, known: str | None) -> Self:
        """Read where the rows of a run are.

        Args:
            directory: The folder of the run.
            known: A URL with a password, which is used where it leads to the same database.

        Raises:
            RunError: The file that says so cannot be used.

        """
        path = directory / _ADDRESS
        try:
            with path.open("rb") as file:
                address = json.loads(file.read(_LARGEST_ADDRESS))
            url, schema = parse(address["url"]), address["schema"]
            if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
                raise ValueError("its schema is none")
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, ConfigError):
            raise RunError(f"{path} does not say where the ledger is: put it back from a backup") from None
        if known is not None and known != "sqlite" and _place(parse(known)) == _place(url):
            url = parse(known)
        return cls(directory, _GIVEN.get((url.username, *_place(url)), url), schema)

    @classmethod
    def new(cls, directory: Path, url: str, run_id: str) -> Self:
        """Choose a schema for a new run, and write into its directory where it is."""
        made = cls(directory, parse(url), f"disavow_{run_id}")
        _GIVEN[made.url.username, *_place(made.url)] = made.url
        made._note()
        return made

    def _note(self) -> None:
        address = json.dumps({"url": self.shown, "schema": self.schema}, indent=2) + "\n"
        write_durably(self.directory / _ADDRESS, address.encode(), mode=PRIVATE_FILE)

    def exists(self) -> bool:
        """See `Backend`. Whether the schema is there, is found when it is opened."""
        return (self.directory / _ADDRESS).exists()

    def unsafe_files(self) -> Iterator[tuple[Path, str]]:
        """See `Backend`: a file that `database.unsafe_files` looks at."""
        return iter(())

    # -- connecting ----------------------------------------------------------------------------------------

    def connect(self, *, write: bool) -> sa.Engine:
        """See `Backend`."""
        return self._engine(write=write, isolation_level="REPEATABLE READ")

    def _engine(self, *, write: bool, **how: Any) -> sa.Engine:
        settings = {
            "search_path": self.schema,
            "lock_timeout": round(1000 * backend.BUSY_SECONDS),
            "default_transaction_read_only": "off" if write else "on",
            # a machine that vanished must not hold its locks for hours
            "tcp_keepalives_idle": _KEEPALIVE_SECONDS,
            "client_encoding": "UTF8",
        }
        given = self.url.query.get("options", "")
        options = [*([given] if isinstance(given, str) else given)]
        options += [f"-c {name}={value}" for name, value in settings.items()]
        arguments = {
            "options": " ".join(options),
            "application_name": "disavow",
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": _KEEPALIVE_SECONDS,
        }
        try:
            engine = sa.create_engine(
                self.url.set(drivername="postgresql+disavow"),
                connect_args=arguments,
                hide_parameters=True,
                execution_options={"backend": self, "compiled_cache": _COMPILED},
                **how,
            )
        except ImportError as error:
            raise MissingExtra(
                f"the ledger of {self.directory} is in PostgreSQL, and psycopg cannot be loaded ({error}); "
                f"{how_to_install('postgres')}"
            ) from None

        @sa.event.listens_for(engine, "handle_error")
        def translate(context: ExceptionContext) -> None:
            translated = self._translated(context.original_exception)
            if translated is not None:
                raise translated from context.original_exception

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
            _store_nan_as_null(connection)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            if connection.get_execution_options().get("immediate", False):
                self._wait_for_writers(connection)

        return engine

    def _wait_for_writers(self, connection: sa.Connection) -> None:
        """Be the one writer of the run until this transaction ends, as after `BEGIN IMMEDIATE`.

        Not `REPEATABLE READ`: its state would be that of before the wait.
        """
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(self._key("writer"))))

    def _key(self, purpose: str) -> int:
        """The number of an advisory lock: they are known to a database by a number only."""
        found = hashlib.sha256(f"disavow/{purpose}/{self.schema}".encode()).digest()
        return int.from_bytes(found[:8], signed=True)

    def _translated(self, error: BaseException) -> DisavowError | None:  # noqa: PLR0911 (one line a kind)
        """What a person can do about an error of the server or the driver; None where it is a defect."""
        state: str | None = getattr(error, "sqlstate", None)
        if state is None and type(error).__name__ != "OperationalError":
            return None  # the driver's own: what it was called with makes no sense
        words = " ".join(str(error).split())
        prefix = f"the database of {self.directory} ({self.shown}) "
        on = f"the run stays at its last good state, and `disavow resume {self.directory}` goes on"
        if not self.exists():
            on = "no run was made"
        if state in ("55P03", "40001", "40P01"):
            return RunInUse(f"{self.directory} is being written by another process; try again")
        if state == "53100":
            return StorageFull(f"{prefix}has no room: {words}; make room, then {on}")
        if state in ("XX001", "XX002"):
            return damaged(self.directory, error)
        if state == "25006":
            return RunError(f"{self.directory} cannot be written: {words}")
        if state == "42501":
            return RunError(f"{prefix}refuses: {words}; docs/databases.md says what its role must be allowed to do")
        if state is None or state[:2] in ("08", "28", "3D", "53", "57", "58"):
            return DatabaseUnavailable(
                f"{prefix}cannot be used: {words}; look at the server, at the role and at its password "
                f"(PGPASSWORD, ~/.pgpass or DISAVOW_DATABASE); {on}"
            )
        return None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See `Backend`: also for what is read past SQLAlchemy, as a stream."""
        try:
            yield
        except Exception as error:
            translated = None if isinstance(error, DisavowError) else self._translated(error)
            if translated is None:
                raise
            raise translated from error

    def lock(self) -> Lock:
        """See `Backend`."""
        return _RunLock(self)

    def missing(self) -> RunMissing:
        """Say that the schema, or what should be in it, is not to be found."""
        return RunMissing(
            f"{self.shown} has no ledger of {self.directory}: there is no schema {self.schema}, or nothing is in "
            "it, or this role may not use it"
        )

    def probe(self) -> None:
        """Connect once, to see whether the server answers to this role."""
        engine = self._engine(write=False, poolclass=NullPool)
        with engine.connect():
            pass

    # -- coming into being ---------------------------------------------------------------------------------

    def make_empty(self, revision: str) -> None:
        """See `Backend`."""
        engine = self._engine(write=True)
        try:
            with engine.begin() as connection:
                self._make(connection, self.schema, revision)
        finally:
            engine.dispose()

    def _make(self, connection: sa.Connection, schema: str, revision: str) -> None:
        """Make a schema with everything in it, in one go: the statements are many, and each would be a journey."""
        begin = f"CREATE SCHEMA {schema}; SET LOCAL search_path TO {schema};\n"
        with self.reading(), connection.connection.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(begin + _definitions(revision))

    def remove(self) -> None:
        """See `Backend`."""
        engine = self._engine(write=True)
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE"))
        finally:
            engine.dispose()

    def revision_of(self, engine: sa.Engine) -> str | None:
        """See `Backend`."""
        try:
            with engine.connect() as connection:
                found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != "42P01":
                raise
            raise self.missing() from None
        return None if found is None else str(found)

    def copy_to(self, target: Path, revision: str) -> None:
        """See `Backend`: table by table, within one transaction."""
        copy = SQLite(target)
        for end in ("", "-wal", "-shm"):  # of a try before this one
            copy.path.with_name(copy.name + end).unlink(missing_ok=True)
        copy.make_empty(revision)
        source, copied = self.connect(write=False), copy.connect(write=True)
        try:
            with source.connect() as here, copied.execution_options(**copy.writing).begin() as there:
                for table in metadata.sorted_tables:
                    for rows in here.execute(sa.select(table)).mappings().partitions(_BATCH):
                        there.execute(table.insert(), [dict(row) for row in rows])
                for table in _NUMBERED:
                    values = {"name": table.name, "seq": self.last_number(here, table)}
                    there.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
                    there.execute(sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"), values)
        finally:
            source.dispose()
            copied.dispose()

    # -- through a connection of it ------------------------------------------------------------------------

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], **same: Any
    ) -> None:
        """See `Backend`."""
        columns, first = [*same, *rows[0]], tuple(same.values())
        statement = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN"
        with (
            self.reading(),
            connection.connection.cursor() as cursor,  # type: ignore[attr-defined]
            cursor.copy(statement) as copy,
        ):
            for row in rows:
                copy.write_row((*first, *row.values()))

    def last_number(self, connection: sa.Connection, table: sa.Table) -> int:
        """See `Backend`."""
        query = sa.text("SELECT last FROM numbers WHERE name = :name")
        return int(connection.execute(query, {"name": table.name}).scalar() or 0)

    def faults(self, connection: sa.Connection) -> Iterator[tuple[str, str]]:
        """See `Backend`: foreign keys, which an administrator can switch off."""
        for table in metadata.sorted_tables:
            for key in table.foreign_key_constraints:
                name = key.referred_table.name
                parent = key.referred_table.alias()
                pairs = [(element.parent, parent.c[element.column.name]) for element in key.elements]
                query = (
                    sa.select(sa.literal(1))
                    .select_from(table.outerjoin(parent, sa.and_(*(mine == theirs for mine, theirs in pairs))))
                    .where(*(mine.is_not(None) for mine, _ in pairs), pairs[0][1].is_(None))
                    .limit(1)
                )
                if connection.execute(query).scalar() is not None:
                    yield (
                        f"table {table.name}",
                        f"a row refers to a row of {name} that is not there",
                    )

    def objects(self, connection: sa.Connection) -> Objects:
        """See `Backend`."""
        return self._objects(connection, self.schema)

    def _objects(self, connection: sa.Connection, schema: str) -> Objects:
        found = connection.execute(sa.text(_OBJECTS), {"schema": schema})
        qualified = re.compile(rf"\b{schema}\.")
        return {(kind, name): qualified.sub("", definition or "") for kind, name, definition in found}

    def expected_objects(self, connection: sa.Connection, revision: str) -> Objects | None:  # noqa: ARG002
        """See `Backend`: as the server itself describes a schema that is made and never committed."""
        known = _EXPECTED.get((self.shown, revision))
        if known is not None:
            return known
        engine = self._engine(write=True)
        schema = f"disavow_check_{secrets.token_hex(8)}"
        try:
            with engine.connect() as made:
                self._make(made, schema, revision)
                found = _EXPECTED[self.shown, revision] = self._objects(made, schema)
                made.rollback()
        except RunError:
            return None  # a role that may only read, or a server that is a copy of another one
        else:
            return found
        finally:
            engine.dispose()

    def stored_bytes(self, connection: sa.Connection) -> int:
        """See `Backend`: tables with their indices."""
        query = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relkind = 'r'"
        )
        return int(connection.execute(sa.text(query), {"schema": self.schema}).scalar_one())

    def contents(self) -> Iterator[tuple[str, BinaryIO]]:
        """See `Backend`: each table of the schema, whether or not it is one of the ledger's."""
        engine = self.connect(write=False)
        query = sa.text(
            "SELECT format('%I.%I', n.nspname, c.relname), c.relname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relkind IN ('r', 'm') ORDER BY 2"
        )
        try:
            with engine.connect() as connection:
                for quoted, name in connection.execute(query, {"schema": self.schema}).all():
                    with (
                        self.reading(),
                        connection.connection.cursor() as cursor,  # type: ignore[attr-defined]
                        cursor.copy(f"COPY (TABLE {quoted}) TO STDOUT (FORMAT BINARY)") as copy,
                    ):
                        yield f"table {name}", io.BufferedReader(_Stream(copy))
                        for _ in copy:  # whoever has seen enough does not read to the end
                            pass
        finally:
            engine.dispose()


def _store_nan_as_null(connection: Any) -> None:
    """What is no number becomes NULL, as on SQLite: where a number is due, it is refused."""
    from psycopg.types.numeric import FloatDumper

    class Dumper(FloatDumper):
        def dump(self, obj: float) -> Any:
            return None if math.isnan(obj) else super().dump(obj)

    connection.adapters.register_dumper(float, Dumper)


@cache
def _definitions(revision: str) -> str:
    """What `database.migrate` does to an empty schema (a test compares them), without loading Alembic."""
    statements = [
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
        f"INSERT INTO alembic_version VALUES ('{revision}')",  # noqa: S608 (our own constant)
    ]
    engine: Any

    def collect(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = sa.create_mock_engine("postgresql+psycopg://", collect)
    metadata.create_all(engine, checkfirst=False)
    return ";\n".join(statements)


class _Stream(io.RawIOBase):
    """What a COPY gives, as a file."""

    def __init__(self, pieces: Any) -> None:
        self._pieces, self._left = iter(pieces), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = bytes(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


class _RunLock(Lock):
    """The lock of the run directory, and one in the database, where processes on other machines meet it.

    A session that is lost gives the lock in the database back, and its process may not notice. Whoever takes it
    then writes a new token into `holder`, and the process that had it before is refused when it next writes.
    """

    def __init__(self, database: Postgres) -> None:
        super().__init__(database.directory)
        self._engine: sa.Engine | None = None
        self._session: sa.Connection | None = None
        try:
            self._take(database)
        except BaseException:
            self.release()
            raise

    def _take(self, database: Postgres) -> None:
        self._token = secrets.token_hex(16)
        self._engine = database._engine(write=True, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._session = session = self._engine.connect()
        key = database._key("run")
        try:
            if not session.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar_one():
                process = session.execute(sa.text("SELECT process FROM holder")).scalar()
                raise RunInUse(
                    f"{database.directory} is in use by {_holder(process)}; wait for it, or stop it, then try again"
                )
            # one whose session was lost may be in a transaction: behind that
            with self._engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
                database._wait_for_writers(connection)
                process = json.dumps({**self.this_process(), "host": socket.gethostname()})
                update = sa.text("UPDATE holder SET token = :token, process = :process")
                connection.execute(update, {"token": self._token, "process": process})
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) != "42P01":
                raise
            raise database.missing() from None

    def refuse_lost(self, connection: sa.Connection) -> None:
        """See `Lock`."""
        if connection.execute(sa.text("SELECT token FROM holder")).scalar() != self._token:
            raise RunInUse(
                "another process has taken this run since the connection to its database was lost; nothing was "
                "written, wait for that process, then try again"
            )

    def release(self) -> None:
        """See `Lock`."""
        if self._engine is not None:
            if self._session is not None:
                with suppress(sa.exc.DBAPIError, DisavowError):  # the server gives it back all the same
                    self._session.close()
            self._engine.dispose()
            self._engine = None
        super().release()


def _holder(process: str | None) -> str:
    try:
        found = json.loads(process or "")
        return f"process {found['pid']} on {found['host']} ({found['command']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


_OBJECTS = """
WITH mine AS (
    SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema
)
SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence'
       ELSE 'relation ' || relkind::text END,
       relname::text,
       CASE WHEN relkind = 'i' THEN pg_get_indexdef(oid) WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid)
       ELSE concat(relpersistence, relrowsecurity, relforcerowsecurity, relispartition) END
FROM mine WHERE relkind NOT IN ('t', 'c')
UNION ALL
SELECT 'column', mine.relname || '.' || a.attname,
       concat(format_type(a.atttypid, a.atttypmod), ' ', a.attnotnull, ' ', a.attgenerated, ' ', a.attidentity, ' ',
              pg_get_expr(d.adbin, d.adrelid))
FROM mine JOIN pg_attribute a ON a.attrelid = mine.oid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE mine.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', mine.relname || '.' || k.conname, pg_get_constraintdef(k.oid)
FROM mine JOIN pg_constraint k ON k.conrelid = mine.oid
UNION ALL
SELECT 'trigger', mine.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
FROM mine JOIN pg_trigger t ON t.tgrelid = mine.oid WHERE NOT t.tgisinternal
UNION ALL
SELECT 'rule', mine.relname || '.' || r.rulename, pg_get_ruledef(r.oid)
FROM mine JOIN pg_rewrite r ON r.ev_class = mine.oid WHERE mine.relkind = 'r'
UNION ALL
SELECT 'policy', mine.relname || '.' || p.polname, '' FROM mine JOIN pg_policy p ON p.polrelid = mine.oid
UNION ALL
SELECT 'child', child.relname || ' of ' || parent.relname, '' FROM pg_inherits h
JOIN pg_class parent ON parent.oid = h.inhparent JOIN pg_class child ON child.oid = h.inhrelid
WHERE h.inhparent IN (SELECT oid FROM mine) OR h.inhrelid IN (SELECT oid FROM mine)
UNION ALL
SELECT 'function', p.proname::text,
       concat(p.prosrc, ' ', p.prosecdef, ' ', p.provolatile, ' ', p.prorettype::regtype)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :schema
"""
"""Every table, column, constraint, index, view, trigger and function of a schema, as the server describes it."""
