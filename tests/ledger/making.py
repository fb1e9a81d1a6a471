"""Small ledgers made by hand, without training anything."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from disavow.domain import Cluster, Layout, Member, Policy, Round, Slot, TensorSpec
from disavow.ledger import Ledger
from disavow.ledger.database import NAME
from disavow.ledger.models import Vector
from disavow.ledger.rounds import NewRound
from tests import database_option
from tests.database_option import on_postgres

# neither the names nor the sizes are in order, so that a store that forgets to sort is noticed
LAYOUT = Layout((TensorSpec("out.weight", (2, 3)), TensorSpec("body.bias", (4,)), TensorSpec("scale", ())))
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
IDS = ("ada", "bela", "cleo", "dora")

POLICY = Policy(
    k=2,
    x=2,
    delta=None,
    clustering="mdav",
    sticky=True,
    metric="l2",
    noise="paper",
    distribution="gaussian",
    sigma=0.02,
    clip=None,
    tau=None,
    draws="fresh",
)

TABLES = ("run", "models", "members", "rounds", "clusters", "slots", "memberships", "evaluations", "events")


def vector(number: float) -> Vector:
    """A model that no other number gives."""
    return np.arange(LAYOUT.size, dtype=np.float32) + np.float32(number)


def create(
    directory: Path,
    *,
    clients: Sequence[str] = IDS,
    policy: Policy = POLICY,
    config: str = "",
    models_at: str | None = None,
) -> Ledger:
    """A new ledger whose initial model is `vector(0)`."""
    return Ledger.create(
        directory,
        policy=policy,
        layout=LAYOUT,
        initial=vector(0),
        clients=clients,
        config=config,
        created_by="tests",
        at=MOMENT,
        models_at=models_at,
    )


def member(client: str, samples: int = 10) -> Member:
    """A member whose update has a digest of its own."""
    return Member(client, samples, hashlib.sha256(client.encode()).digest())


def two_clusters(ids: Sequence[str] = IDS) -> tuple[Cluster, ...]:
    """Four clients in two clusters."""
    a, b, c, d = (member(client) for client in ids)
    return (
        Cluster(0.5, 0.25, (Slot(a), Slot(b))),
        Cluster(0.5, 0.125, (Slot(c), Slot(d))),
    )


def record_next(ledger: Ledger, after: Vector | None = None, **changed: Any) -> Round:
    """Record the next round; `changed` replaces what it is made of."""
    number, attempt = ledger.next_round()
    values: dict[str, Any] = {
        "number": number,
        "attempt": attempt,
        "before": ledger.digest_before(number),
        "after": vector(number) if after is None else after,
        "delta": 0.25,
        "update_norm": 0.5,
        "pairs_within": 0.75,
        "clusters": two_clusters(),
        "at": MOMENT,
    }
    return ledger.record(NewRound(**{**values, **changed}))


def by_id(record: Round) -> Round:
    """A round with the slots of each cluster in the order of ids: the ledger has them in an order of its own."""

    def order(slot: Slot) -> str:
        return slot.member.client if slot.member else ""

    clusters = (replace(cluster, slots=tuple(sorted(cluster.slots, key=order))) for cluster in record.clusters)
    return replace(record, clusters=tuple(clusters))


@contextmanager
def by_hand(directory: Path) -> Iterator[sqlite3.Connection]:
    """The database as somebody with an editor sees it: foreign keys off, every change goes through."""
    if on_postgres():
        with database_option.by_hand(directory) as rows:
            yield rows  # type: ignore[misc]
        return
    with closing(sqlite3.connect(directory / NAME)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        yield connection
        connection.commit()
        # everything into the one file, so that what a test then does to its bytes meets all rows
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def change(directory: Path, *statements: str, **values: Any) -> None:
    """Run statements by hand, each of which must change something."""
    with by_hand(directory) as connection:
        for statement in statements:
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            assert connection.execute(statement, used).rowcount > 0, f"changed nothing: {statement}"


def all_rows(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    if on_postgres():
        with database_option.by_hand(directory) as rows:
            return {table: sorted(rows.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    # not mode=ro: a read-only connection leaves its -wal and -shm files behind
    with closing(sqlite3.connect(directory / NAME)) as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, with its bytes."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
