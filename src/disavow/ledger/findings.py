"""What fsck looks at, and what it can find."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from disavow.domain import Layout, Policy
from disavow.ledger.backend import backend_of
from disavow.ledger.members import Members
from disavow.ledger.models import ModelStore
from disavow.ledger.schema import clusters, slots
from disavow.ledger.updates import UpdateStore

_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """Something fsck noticed. A fault means the run cannot be trusted; a note needs no action.

    `spare` is a fault of what only an approximate rebuild needs, or of a proof: no reason not to honour a request.
    """

    where: str
    what: str
    fault: bool = True
    spare: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, eq=False)
class Checked:
    """What the checks look at: one consistent view of the ledger, and the files beside it."""

    directory: Path
    connection: sa.Connection
    run_id: str
    policy: Policy
    layout: Layout
    initial_model: str
    store: ModelStore
    updates: UpdateStore
    members: Members
    rounds: tuple[sa.Row[Any], ...]

    @property
    def identified(self) -> bool:
        """Whether the keyring is there, so that members can be checked too."""
        return self.members.keyring.exists


@lru_cache(maxsize=1)  # the rows of a round and then its leaf are checked against them
def clusters_and_slots(checked: Checked, round_id: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a round's clusters and of its slots, in order."""
    of_clusters = sa.select(clusters).where(clusters.c.round_id == round_id).order_by(clusters.c.position)
    of_slots = sa.select(slots).where(slots.c.round_id == round_id).order_by(slots.c.slot)
    return (
        [dict(row._mapping) for row in checked.connection.execute(of_clusters)],
        [dict(row._mapping) for row in checked.connection.execute(of_slots)],
    )


def gaps(present: Collection[object], numbers: range) -> list[int]:
    """The first few of these numbers that are not there; a damaged count must not make us list millions."""
    return list(islice((number for number in numbers if number not in present), _NAMED))


def name_of(header: sa.Row[Any]) -> str:
    """What people call a recorded round."""
    return f"round {header.number}" + (f", attempt {header.attempt}" if header.attempt != 1 else "")


def missing_rows(checked: Checked, table: sa.Table) -> Iterator[Finding]:
    """Rows of this table are numbered and never deleted: a number that was given and is not there is a fault."""
    given = backend_of(checked.connection).last_number(checked.connection, table)
    ids = set(checked.connection.execute(sa.select(table.c.id)).scalars())
    for missing in gaps(ids, range(1, given + 1)):
        yield Finding(f"table {table.name}", f"the row with id {missing} is missing")
