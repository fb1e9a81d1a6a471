"""Who is in a run. Ids stand in one table; everywhere else stands a random number."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from disavow.errors import LedgerError
from disavow.ledger.schema import clients, requests

_NUMBER_BITS = 63


def register(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Give clients their numbers. Registering one twice is registering it once."""
    wanted = sorted(set(ids))
    if any(not client or "\0" in client for client in wanted):
        raise LedgerError("a client id is a text of at least one character, none of them NUL")
    missing = sorted(set(wanted) - numbers_of(connection, wanted).keys())
    if missing:
        new = [{"number": secrets.randbits(_NUMBER_BITS), "id": client} for client in missing]
        connection.execute(clients.insert(), new)


def numbers_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """The numbers of those of these clients who are known."""
    asked = sa.func.json_each(json.dumps(list(ids))).table_valued("value")  # any number of ids in one value
    query = sa.select(clients.c.id, clients.c.number).join(asked, asked.c.value == clients.c.id)
    wanted = set(ids)  # SQLite ends a text from JSON at a NUL, and would find another client
    return {client: number for client, number in connection.execute(query).all() if client in wanted}


def names_of(connection: sa.Connection, numbers: Sequence[int]) -> list[str]:
    """The ids of clients that are in the tables."""
    return list(connection.execute(sa.select(clients.c.id).where(clients.c.number.in_(numbers))).scalars())


def still_in(connection: sa.Connection) -> tuple[str, ...]:
    """The ids of all clients who have not been withdrawn, sorted."""
    query = sa.select(clients.c.id).where(clients.c.number.not_in(withdrawn())).order_by(clients.c.id)
    return tuple(connection.execute(query).scalars().all())


def strangers(connection: sa.Connection, ids: Sequence[str]) -> tuple[str, ...]:
    """Those of these who are not clients of the run, or have been withdrawn from it."""
    known = numbers_of(connection, ids)
    gone: set[int] = set(connection.execute(withdrawn()).scalars())
    return tuple(client for client in ids if client not in known or known[client] in gone)


def withdrawn() -> sa.Select[int]:
    """The numbers of clients who are withdrawn, but not deleted yet."""
    return sa.select(requests.c.client).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))
