"""The part of fsck that checks the schema: a ledger has the tables and indices of its format, and nothing else.

A trigger could keep what an erasure deletes, a view could stand in for a table.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from disavow.ledger import database
from disavow.ledger.findings import Finding

_WHERE = f"{database.NAME}, schema"


def changed_in_schema(connection: sa.Connection) -> Iterator[Finding]:
    """What the format has and this ledger has not, or has otherwise."""
    found = _objects(connection)
    for (kind, name), definition in database.schema_objects().items():
        if (kind, name) not in found:
            yield Finding(_WHERE, f"the {kind} {name} is missing")
        elif found[kind, name] != definition:
            yield Finding(_WHERE, f"the {kind} {name} is not as the format has it")


def added_to_schema(connection: sa.Connection) -> Iterator[Finding]:
    """What this ledger has and the format has not."""
    for kind, name in _objects(connection).keys() - database.schema_objects().keys():
        yield Finding(_WHERE, f"the {kind} {name!a} is none of a ledger's: it may keep what erasures delete")


def _objects(connection: sa.Connection) -> dict[tuple[str, str], str | None]:
    found = connection.exec_driver_sql(database.SCHEMA_OBJECTS)
    return {(str(kind), str(name)): definition for kind, name, definition in found}
