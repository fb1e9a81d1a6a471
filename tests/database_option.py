"""`pytest --database postgres`: the same tests, with the rows of every run in a PostgreSQL server.

`DISAVOW_DATABASE` says so to the tests and to every process they start. A copy of a run directory names the same
schema as the run: what the tests copy with `shutil.copytree` gets a schema of its own, a copy of the other one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disavow.ledger import database
from disavow.ledger.schema import metadata
from tests.postgres_server import Server, why_not

if TYPE_CHECKING:
    import psycopg

_PASSED_ON = "DISAVOW_TEST_SERVER"
_BOOLEANS = "fixed|predictable|present|repeats|standing|thinned"
_ZEROS = r"zeroblob\(((?:[^()]|\([^()]*\))*)\)"
_COPIED = ("alembic_version", *(table.name for table in metadata.sorted_tables), "numbers", "holder")
_copytree = shutil.copytree


def on_postgres() -> bool:
    """Whether runs keep their rows in PostgreSQL."""
    return _PASSED_ON in os.environ


def start(config: pytest.Config) -> Server | None:
    """Start the server that all workers share, in the process that starts them."""
    if config.getoption("--database") != "postgres":
        return None
    server = None
    if not hasattr(config, "workerinput"):
        reason = why_not()
        if reason is not None:
            raise pytest.UsageError(reason)
        server = Server()
        os.environ[_PASSED_ON] = server.url_of("postgres")
        os.environ[database.VARIABLE] = server.url
    shutil.copytree = _copy_runs_too  # type: ignore[assignment]
    return server


def stop(server: Server | None) -> None:
    """Stop it again."""
    shutil.copytree = _copytree
    if server is not None:
        for name in (_PASSED_ON, database.VARIABLE):
            del os.environ[name]
        server.stop()


def _copy_runs_too(source: Any, target: Any, *arguments: Any, **named: Any) -> Any:
    copied = _copytree(source, target, *arguments, **named)
    for address in Path(copied).rglob(database.ADDRESS):
        stored = json.loads(address.read_text())
        new = f"disavow_{secrets.token_hex(16)}"
        address.write_text(json.dumps({**stored, "schema": new}))
        database.make_empty(database.of(address.parent))
        with administrator() as connection:
            for table in _COPIED:
                connection.execute(f"DELETE FROM {new}.{table}")
                connection.execute(f"INSERT INTO {new}.{table} SELECT * FROM {stored['schema']}.{table}")
    return copied


@contextmanager
def administrator() -> Iterator[psycopg.Connection[Any]]:
    """A connection that may do anything, foreign keys and triggers switched off."""
    import psycopg

    with closing(psycopg.connect(os.environ[_PASSED_ON].replace("+psycopg", ""))) as connection:
        connection.execute("SET session_replication_role = replica")
        yield connection
        connection.commit()


class ByHand:
    """A run's rows, as somebody with an editor sees them; takes the few words of SQLite that the tests use."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Any = ()) -> psycopg.Cursor[Any]:
        """Run a statement. What PostgreSQL itself refuses to store is no damage that a run could have."""
        import psycopg

        statement = re.sub(rf"\b({_BOOLEANS}) = ([01])\b", r"\1 = '\2'", statement)
        statement = re.sub(r"\b[xX]'([0-9a-fA-F]*)'", r"'\\x\1'::bytea", statement)
        statement = re.sub(_ZEROS, r"decode(repeat('00', \1), 'hex')", statement)
        if values:
            statement = statement.replace("%", "%%").replace("?", "%s")
        for name in values if isinstance(values, dict) else ():
            statement = statement.replace(f":{name}", f"%({name})s")
        try:
            return self._connection.execute(statement.encode(), values or None)
        except psycopg.Error as error:
            pytest.skip(f"PostgreSQL refuses: {' '.join(str(error).split())}")

    def commit(self) -> None:
        """Make it last."""
        self._connection.commit()


@contextmanager
def by_hand(directory: Path) -> Iterator[ByHand]:
    """The rows of a run, for every change that PostgreSQL lets through."""
    schema = json.loads((directory / database.ADDRESS).read_text())["schema"]
    with administrator() as connection:
        connection.execute(f"SET search_path TO {schema}")
        yield ByHand(connection)
