"""Who is in a run, and in which fixed cluster. Ids stand in one table; everywhere else stands a random number."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from disavow.domain import Anchor, Anchors, Place
from disavow.errors import LedgerError
from disavow.ledger import rows
from disavow.ledger.schema import anchors, clients, requests

_NUMBER_BITS = 63


def register(connection: sa.Connection, ids: Iterable[str], data: Mapping[str, str] | None = None) -> None:
    """Give clients their numbers. Registering one twice is registering it once.

    Args:
        connection: The ledger, for writing.
        ids: The clients.
        data: What each of them holds, as SHA-256, where that is known.

    """
    wanted, data = sorted(set(ids)), data or {}
    if any(not client or "\0" in client for client in wanted):
        raise LedgerError("a client id is a text of at least one character, none of them NUL")
    missing = sorted(set(wanted) - numbers_of(connection, wanted).keys())
    if missing:
        new = [
            {"number": secrets.randbits(_NUMBER_BITS), "id": client, "data": data.get(client)} for client in missing
        ]
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


def data_digests(connection: sa.Connection) -> dict[str, str]:
    """Read what each client holds, as SHA-256, where the run knows it."""
    query = sa.select(clients.c.id, clients.c.data).where(clients.c.data.is_not(None))
    return {row.id: row.data for row in connection.execute(query)}


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


# -- the anchors of fixed clusters ---------------------------------------------------------------------------


def load_anchors(connection: sa.Connection) -> Anchors | None:
    """The anchors of a run, with the places of all who have not been withdrawn; None where none are settled."""
    found = connection.execute(sa.select(anchors).order_by(anchors.c.number)).all()
    if not found:
        return None
    present = sa.select(clients).where(clients.c.anchor.is_not(None), clients.c.number.not_in(withdrawn()))
    places = {
        row.id: Place(row.anchor, None if row.share is None else int(row.share))
        for row in connection.execute(present.order_by(clients.c.id))
    }
    return Anchors(tuple(Anchor(row.until, row.places, int(row.share)) for row in found), places)


def store_anchors(connection: sa.Connection, settled: Anchors) -> None:
    """Keep these anchors instead of those before them. Places of clients who are not in the run are left out."""
    for number, anchor in enumerate(settled.clusters):
        row: rows.Row = {
            "number": number,
            "until": anchor.until,
            "places": anchor.places,
            "share": str(anchor.share),
        }
        row["checksum"] = rows.anchor_checksum(row)
        if connection.execute(anchors.update().where(anchors.c.number == number).values(row)).rowcount == 0:
            connection.execute(anchors.insert().values(row))
    given = [
        {"client": client, "at": place.cluster, "counted": None if place.share is None else str(place.share)}
        for client, place in settled.places.items()
    ]
    if given:
        placed = clients.update().where(clients.c.id == sa.bindparam("client"))
        connection.execute(placed.values(anchor=sa.bindparam("at"), share=sa.bindparam("counted")), given)
