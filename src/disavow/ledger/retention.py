"""The checkpoints of a run on disk: which are kept, and giving up those that a budget has no room for.

A model that is given up this way is *thinned*: its file is deleted, its digest stays, its round stands as before.
The row goes first: killed before its file is gone, the next opening for writing removes it as a left-over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.schema import models, rounds, run
from disavow.ledger.thinning import superfluous, weights_of


@dataclass(frozen=True)
class Checkpoint:
    """The model broadcast in a round: a standing one, or the one that comes next."""

    round: int
    digest: str
    stored_bytes: int
    kept: bool


def checkpoints(connection: sa.Connection) -> tuple[Checkpoint, ...]:
    """All of them, from the initial model, which round 1 starts from, to the newest."""
    initial = sa.select(sa.literal(1), models).join(run, run.c.initial_model == models.c.digest)
    later = sa.select(rounds.c.number + 1, models).join(rounds, rounds.c.after == models.c.digest)
    query = initial.union_all(later.where(rounds.c.standing)).order_by(sa.literal_column("1"))
    return tuple(
        Checkpoint(number, digest, stored_bytes, bool(present))
        for number, digest, stored_bytes, present, _ in connection.execute(query)
    )


def nearest(connection: sa.Connection, number: int) -> int:
    """Where a rollback to this round goes back to: itself, or the nearest before it whose checkpoint is kept."""
    query = (
        sa.select(sa.func.max(rounds.c.number))
        .join(models, models.c.digest == rounds.c.after)
        .where(rounds.c.standing, rounds.c.number < number, models.c.present)
    )
    return (connection.execute(query).scalar() or 0) + 1


def mark_thinned(connection: sa.Connection, digests: Collection[str]) -> None:
    """Note that these models are given up."""
    connection.execute(models.update().where(models.c.digest.in_(digests)).values(present=False, thinned=True))


def beyond_budget(connection: sa.Connection, budget: int) -> set[str]:
    """The digests of the models to give up, so that those of standing rounds take at most `budget` bytes."""
    found = [each for each in checkpoints(connection) if each.kept]
    if sum(each.stored_bytes for each in found) <= budget:
        return set()
    query = sa.select(rounds.c.repeats).where(rounds.c.standing).order_by(rounds.c.number)
    weights = weights_of(list(connection.execute(query).scalars()))
    dropped = set(superfluous({each.round: each.stored_bytes for each in found}, weights, budget))
    # two rounds may end in the same model; it goes when neither is kept
    return {each.digest for each in found if each.round in dropped} - {
        each.digest for each in found if each.round not in dropped
    }
