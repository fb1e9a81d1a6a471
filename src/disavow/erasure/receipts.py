"""Receipts: what the server hands to a client for a round, so that the client can hold it to that later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from disavow.errors import ConfigError, UnknownClient
from disavow.ledger import Ledger, log
from disavow.ledger.clients import numbers_of
from disavow.ledger.leaves import cluster_hashes, cluster_leaves
from disavow.ledger.rounds import cluster_at
from disavow.ledger.schema import clients, memberships, rounds, slots
from disavow.ledger.schema import log as log_table
from disavow.proof import canonical
from disavow.proof.merkle import leaf_hash, path_to
from disavow.proof.notes import Signer
from disavow.proof.reading import to_base64
from disavow.proof.receipt import TYPE

_ROWS = (
    sa.select(memberships, rounds.c.number, rounds.c.clusters, log_table.c.position.label("leaf_position"))
    .add_columns(log_table.c.leaf, log_table.c.clusters.label("hashes"))
    .join(rounds, rounds.c.id == memberships.c.round_id)
    .join(log_table, log_table.c.round_id == rounds.c.id)
    .where(rounds.c.standing)
)

Shown = dict[str, object]
"""A part of a receipt, as it is written."""


def receipts(
    ledger: Ledger, client: str, signer: Signer | None, number: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """A client's receipts for its standing rounds, or for one of them: the round's number, and the file."""
    with ledger.snapshot() as connection:
        known = numbers_of(connection, [client]).get(client)
        if known is None:
            raise UnknownClient(
                f"{client!r} is not a client of this run, so there is nothing to give a receipt for"
            )
        head = log.signed_head(connection)
        if head is None:
            if signer is None:
                raise ConfigError("this run has no signing key, so nothing binds it; `disavow keygen` makes one")
            head = log.head_of(connection, ledger.run_id).signed(signer)
        hashes = log.hashes_of(connection)
        query = _ROWS.where(memberships.c.client == known).order_by(rounds.c.number)
        if number is not None:
            query = query.where(rounds.c.number == number)
        for row in connection.execute(query).all():
            inclusion = _inclusion(hashes, row.leaf_position)
            yield row.number, _receipt(ledger, client, row, _way(connection, row), inclusion, head)


def receipts_of_round(ledger: Ledger, number: int) -> dict[str, bytes]:
    """The receipts of all who took part in a standing round and are still in; none where nothing is signed."""
    made: dict[str, bytes] = {}
    with ledger.snapshot() as connection:
        head = log.signed_head(connection)
        if head is None:
            return made
        query = (
            _ROWS.add_columns(clients.c.id.label("client_id"))
            .join(clients, clients.c.number == memberships.c.client)
            .where(rounds.c.number == number)
            .order_by(memberships.c.slot)
        )
        found = connection.execute(query).all()
        inclusion = _inclusion(log.hashes_of(connection), found[0].leaf_position) if found else []
        way: Shown = {}
        end = 0  # of the cluster at hand: slots come in order, so that each cluster is read once
        for row in found:
            if row.slot >= end or not row.clusters:
                way = _way(connection, row)
                end = row.slot + 1 if not row.clusters else _end(way)
            made[row.client_id] = _receipt(ledger, row.client_id, row, way, inclusion, head)
    return made


def _end(way: Shown) -> int:
    """Where the slots of a cluster end."""
    cluster: Any = way["cluster"]
    return int(cluster["first"]) + int(cluster["size"])


def _receipt(ledger: Ledger, client: str, row: sa.Row[Any], way: Shown, inclusion: list[str], head: str) -> bytes:
    return canonical.encode(
        {
            "type": TYPE,
            "run": ledger.run_id,
            "client": client,
            "leaf": row.leaf_position,
            "header": json.loads(row.leaf),
            **way,
            "slot": row.slot,
            "salt": to_base64(row.salt),
            "update": to_base64(row.update_digest),
            "inclusion": inclusion,
            "checkpoint": head,
        }
    )


def _inclusion(hashes: list[bytes], position: int) -> list[str]:
    return [to_base64(step) for step in path_to(hashes, position)]


def _way(connection: sa.Connection, row: sa.Row[Any]) -> Shown:
    """How the slot leads to the root of its round: through its cluster; by itself where there are none."""
    if row.clusters:
        return {"cluster": _cluster(connection, row)}
    mine = sa.select(slots.c.commitment).where(slots.c.round_id == row.round_id).order_by(slots.c.slot)
    hashes = [leaf_hash(commitment) for commitment in connection.execute(mine).scalars()]
    return {"path": [to_base64(step) for step in path_to(hashes, row.slot)]}


def _cluster(connection: sa.Connection, row: sa.Row[Any]) -> Shown:
    group, places = cluster_at(connection, row.round_id, row.slot)
    [leaf] = cluster_leaves([group], places)
    return {
        **leaf,
        "slots": [to_base64(place["commitment"]) for place in places],
        "path": [to_base64(step) for step in path_to(cluster_hashes(row.hashes), group["position"])],
    }
