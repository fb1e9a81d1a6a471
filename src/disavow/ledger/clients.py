"""Who is in a run. Ids stand in one table; everywhere else stands a random number."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from disavow.errors import LedgerError
from disavow.ledger.schema import clients, requests

_NUMBER_BITS = 63
_BATCH = 500
"""How many values one statement may carry; SQLite allows at least 999."""


def register(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Give clients their numbers. Registering one twice is registering it once."""
    wanted = sorted(set(ids))
    if any(not client for client in wanted):
        raise LedgerError("a client id is a text of at least one character")
    missing = sorted(set(wanted) - numbers_of(connection, wanted).keys())
    if missing:
        new = [{"number": secrets.randbits(_NUMBER_BITS), "id": client} for client in missing]
        connection.execute(clients.insert(), new)


def numbers_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """The numbers of those of these clients who are known."""
    found: dict[str, int] = {}
    for start in range(0, len(ids), _BATCH):
        query = sa.select(clients.c.id, clients.c.number).where(clients.c.id.in_(ids[start : start + _BATCH]))
        found.update((row.id, row.number) for row in connection.execute(query))
    return found


def still_in(connection: sa.Connection) -> tuple[str, ...]:
    """The ids of all clients who have not been withdrawn, sorted."""
    query = sa.select(clients.c.id).where(clients.c.number.not_in(_withdrawn())).order_by(clients.c.id)
    return tuple(connection.execute(query).scalars())


def strangers(connection: sa.Connection, ids: Sequence[str]) -> tuple[str, ...]:
    """Those of these who are not clients of the run, or have been withdrawn from it."""
    known = numbers_of(connection, ids)
    gone: set[int] = set(connection.execute(_withdrawn()).scalars())
    return tuple(client for client in ids if client not in known or known[client] in gone)


def _withdrawn() -> sa.Select[int]:
    """The numbers of clients who are withdrawn, but not deleted yet."""
    return sa.select(requests.c.client).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))
