"""The part of fsck that checks the anchors of fixed clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import sqlalchemy as sa

from disavow.ledger import rows
from disavow.ledger.findings import Checked, Finding, gaps
from disavow.ledger.schema import anchors, clients, requests

_WHERE = "table anchors"


def check_anchors(checked: Checked) -> Iterator[Finding]:
    """Borders in order, places and shares enough for all who are in, and no more gaps than clients have left."""
    found = checked.connection.execute(sa.select(anchors).order_by(anchors.c.number)).all()
    placed = checked.connection.execute(sa.select(clients).where(clients.c.anchor.is_not(None))).all()
    if not checked.policy.anchored:
        if found or placed:
            yield Finding(_WHERE, "holds anchors, though clusters are not fixed")
        return
    if not found and any(header.clusters for header in checked.rounds):
        yield Finding(_WHERE, "holds no anchors, though rounds were recorded")
        return
    for missing in gaps({row.number for row in found}, range(max((row.number for row in found), default=-1) + 1)):
        yield Finding(_WHERE, f"the row of cluster {missing} is missing")
    for row in found:
        if rows.anchor_checksum(dict(row._mapping)) != row.checksum:
            yield Finding(_WHERE, f"cluster {row.number} is not what was recorded: it has another checksum")
        mine = [client for client in placed if client.anchor == row.number]
        shares = sum(int(client.share) for client in mine if client.share is not None)
        if row.places < max(checked.policy.k, len(mine)) or int(row.share) < shares:
            yield Finding(_WHERE, f"cluster {row.number} has less than its {len(mine)} clients need")
    borders = [row.until for row in found]
    if borders and (borders[-1] is not None or None in borders[:-1]):
        yield Finding(_WHERE, "the last cluster alone has no upper border, and another one has none")
    elif any(one >= two for one, two in pairwise(borders[:-1])):
        yield Finding(_WHERE, "borders are not in order")
    left = sa.select(sa.func.count()).select_from(requests).where(requests.c.erasure.is_not(None))
    gone = checked.connection.execute(left.where(requests.c.client.is_(None))).scalar_one()
    if sum(row.places for row in found) - len(placed) > gone:
        yield Finding(_WHERE, "there are more gaps than clients have left")
