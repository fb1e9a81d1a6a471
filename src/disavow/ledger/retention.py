"""The models of a run on disk: which are kept, and giving up those that a budget has no room for.

A model that is given up this way is *thinned*: its file is deleted, its digest stays, its round stands as before.
The row goes first: killed before its file is gone, the next opening for writing removes it as a left-over.

Those go whose absence is expected to cost least. A model is the model broadcast in a round, and goes by that
round's number. A rollback to a round goes back to the nearest kept model at or before it. So a model
serves the rounds from its own up to the next kept one, and without it each of them is reached from the one before
it, with as many more rounds to retrain as lie between. docs/design/0013-retention.md says where the weights come
from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from disavow.ledger.schema import models, rounds, run, updates


@dataclass(frozen=True)
class RoundModel:
    """The model broadcast in a round: a standing one, or the one that comes next."""

    round: int
    digest: str
    stored_bytes: int
    kept: bool


def round_models(connection: sa.Connection) -> tuple[RoundModel, ...]:
    """All of them, from the initial model, which round 1 starts from, to the newest."""
    initial = sa.select(sa.literal(1), models).join(run, run.c.initial_model == models.c.digest)
    later = sa.select(rounds.c.number + 1, models).join(rounds, rounds.c.after == models.c.digest)
    query = initial.union_all(later.where(rounds.c.standing)).order_by(sa.literal_column("1"))
    return tuple(
        RoundModel(number, digest, stored_bytes, bool(present))
        for number, digest, stored_bytes, present, _ in connection.execute(query)
    )


def stored_bytes(connection: sa.Connection) -> int:
    """What all models and updates take that are kept, superseded ones too."""
    kept = sa.select(sa.func.sum(models.c.stored_bytes)).where(models.c.present)
    found = [connection.execute(query).scalar() for query in (kept, sa.select(sa.func.sum(updates.c.stored_bytes)))]
    return sum(int(each or 0) for each in found)


def nearest(connection: sa.Connection, number: int) -> int:
    """Where a rollback to this round goes back to: itself, or the nearest before it whose model is kept."""
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
    found = [each for each in round_models(connection) if each.kept]
    if sum(each.stored_bytes for each in found) <= budget:
        return set()
    query = sa.select(rounds.c.repeats).where(rounds.c.standing).order_by(rounds.c.number)
    weights = weights_of(list(connection.execute(query).scalars()))
    dropped = set(superfluous({each.round: each.stored_bytes for each in found}, weights, budget))
    # two rounds may end in the same model; it goes when neither is kept
    return {each.digest for each in found if each.round in dropped} - {
        each.digest for each in found if each.round not in dropped
    }


_REPEATED = 0.01
"""What a round counts that cannot be the first to break: enough to spread models where nothing else does."""


def weights_of(repeats: Sequence[bool]) -> list[float]:
    """How likely a rollback goes to each round, from round 1 on, up to a factor.

    `repeats` says which rounds have the clusters of the round before them: these break together with that one, so
    the first of such a stretch is the one that a rollback names. And the first broken round is the first of all
    that are broken: the n-th stretch counts 1/n.

    >>> weights_of([False, True, False, False])
    [1.0, 0.01, 0.5, 0.3333333333333333]
    """
    weights, stretch = [], 0
    for repeated in repeats:
        stretch += not repeated
        weights.append((_REPEATED if repeated else 1.0) / max(1, stretch))
    return weights


def superfluous(sizes: Mapping[int, int], weights: Sequence[float], budget: int) -> tuple[int, ...]:
    """The models to give up, in the order in which they go, until those left take at most `budget` bytes.

    `sizes` gives the bytes of each one kept so far, `weights` those of the rounds from 1 on. The first and the last
    are never given up, even where they alone exceed the budget. Ties go to the earlier one.

    >>> superfluous({1: 10, 2: 10, 3: 10, 4: 10, 5: 10}, [1.0, 1.0, 1.0, 1.0], budget=30)
    (2, 4)
    """
    import numpy as np

    kept = np.array(sorted(sizes))
    before = np.concatenate([[0.0], np.cumsum(weights)])  # before[t - 1]: of all rounds before t
    excess, gone = sum(sizes.values()) - budget, []
    while excess > 0 and kept[1:-1].size:
        served = before[kept[2:] - 1] - before[kept[1:-1] - 1]
        cheapest = int(np.argmin((kept[1:-1] - kept[:-2]) * served)) + 1
        gone.append(int(kept[cheapest]))
        excess -= sizes[gone[-1]]
        kept = np.delete(kept, cheapest)
    return tuple(gone)
