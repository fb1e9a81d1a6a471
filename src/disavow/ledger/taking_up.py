"""Taking up a log: whoever opens a run for writing makes it ready for more leaves."""

from __future__ import annotations

import sqlalchemy as sa

from disavow.errors import ConfigError
from disavow.ledger import rows
from disavow.ledger.log import append, begin, head_size, key_of, keys_of, log_erasure, log_round, sign_head
from disavow.ledger.schema import clusters, erasures, requests, rounds, run, slots
from disavow.proof.leaves import key_leaf
from disavow.proof.notes import Signer


def take_up(connection: sa.Connection, signer: Signer | None, *, at: str) -> None:
    """Make the log ready for more leaves: written from the rows of a run that has none, with this key noted."""
    if head_size(connection) == 0:
        _write_late(connection)
    current = key_of(connection)
    if signer is None:
        if current is not None:
            raise ConfigError(
                f"this run's log is signed with key {current.id[:16]} of {current.name}, which is not here; "
                "point DISAVOW_KEYS to the folder that holds it"
            )
        return
    if current != signer.public:
        if signer.public in keys_of(connection):
            raise ConfigError(
                f"key {signer.public.id[:16]} signed this run's log before and was replaced; "
                f"use the key that replaced it, {current.id[:16] if current else ''}"
            )
        append(connection, key_leaf(key=signer.public, at=at))
        sign_head(connection, connection.execute(sa.select(run.c.run_id)).scalar_one(), signer)


def _write_late(connection: sa.Connection) -> None:
    """The log of a run that was kept before there were logs, in the order in which things happened."""
    begin(connection, None)
    policy = rows.policy_from_json(connection.execute(sa.select(run.c.policy)).scalar_one())
    opened = list(connection.execute(sa.select(erasures).order_by(erasures.c.id)))
    for header in connection.execute(sa.select(rounds).order_by(rounds.c.id)).all():
        while opened and opened[0].rounds_before < header.id:
            log_erasure(connection, opened.pop(0).id)
        parts = {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(sa.select(table).where(table.c.round_id == header.id).order_by(order))
            ]
            for table, order in ((clusters, clusters.c.position), (slots, slots.c.slot))
        }
        log_round(connection, header.id, dict(header._mapping), parts, policy)
    for row in opened:
        log_erasure(connection, row.id)
    gone = sa.select(requests.c.id).where(requests.c.client.is_(None))
    connection.execute(requests.update().where(requests.c.id.in_(gone)).values(rounds_salt=None, client_salt=None))
