"""The anchors of fixed clusters: rows in, value out."""

from __future__ import annotations

import sqlalchemy as sa

from disavow.domain import Anchor, Anchors, Place
from disavow.ledger import rows
from disavow.ledger.clients import withdrawn
from disavow.ledger.schema import anchors, clients


def load(connection: sa.Connection) -> Anchors | None:
    """The anchors of a run, with the places of all who have not been withdrawn; None where none are settled."""
    found = connection.execute(sa.select(anchors).order_by(anchors.c.number)).all()
    if not found:
        return None
    still_in = sa.select(clients).where(clients.c.anchor.is_not(None), clients.c.number.not_in(withdrawn()))
    places = {
        row.id: Place(row.anchor, None if row.share is None else int(row.share))
        for row in connection.execute(still_in.order_by(clients.c.id))
    }
    return Anchors(tuple(Anchor(row.until, row.places, int(row.share)) for row in found), places)


def store(connection: sa.Connection, told: Anchors) -> None:
    """Keep these anchors instead of those before them. Places of clients who are not in the run are left out."""
    for number, anchor in enumerate(told.clusters):
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
        for client, place in told.places.items()
    ]
    if given:
        placed = clients.update().where(clients.c.id == sa.bindparam("client"))
        connection.execute(placed.values(anchor=sa.bindparam("at"), share=sa.bindparam("counted")), given)
