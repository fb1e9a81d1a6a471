"""The journal of erasures: every step is one transaction, so that a crash resumes where it struck.

    erasure opened ─┬─▶ REBUILDING ─▶ DELETING ─▶ PURGING ─▶ ANSWERED
                    └──────────────────▲ deniable: nothing to rebuild

What is written, in this order; each line is one transaction, or a file that is durable before the next one begins:

    1  transaction   withdrawals, verdict, rounds superseded, leaf and signed head of the log   (`open_erasure`)
    2  for each round to rebuild: its model file, then a transaction with its rows and its leaf  (`Ledger.record`)
    3  transaction   cost and remark; models of superseded rounds marked as given up        (`finish_rebuilding`)
    4  files         proof in the run, opening outside it, tombstone in the operator's folder   (`erasure.prove`)
    5  transaction   ids, memberships and kept updates deleted                                 (`delete_leavers`)
    6  files         given-up models removed, database rewritten, its WAL truncated              (`Ledger.purge`)
    7  transaction   answered                                                                          (`finish`)

A crash before 1 leaves a request that waits; after it, whoever opens the run for writing goes on with the state
that is written down. 4 comes before 5, because a proof is made from what 5 deletes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import Cost, RequestState, Verdict, VerdictKind
from disavow.ledger import updates
from disavow.ledger.rows import time_to_text
from disavow.ledger.schema import (
    clients,
    erasures,
    memberships,
    models,
    rebuilt,
    requests,
    rounds,
    run,
    withdrawals,
)
from disavow.proof.leaves import MOST_REQUESTS


@dataclass(frozen=True)
class Waiting:
    """Requests that wait to be answered: request number to client number."""

    clients: Mapping[int, int]


@dataclass(frozen=True)
class Rebuilding:
    """What open erasures still need: every round up to `target`. The earliest that they undid is `first`; the
    last rollback among them was to `newest`.
    """

    first: int
    target: int
    newest: int


def waiting(
    connection: sa.Connection,
    *,
    after: int = 0,
    among: Collection[int] | None = None,
    most: int = MOST_REQUESTS,
) -> Waiting:
    """The requests that nobody has answered or cancelled yet, placed after request `after`, all or `among` these:
    the first `most` of them, which is as many as one leaf of the log can tell of.
    """
    unanswered = sa.and_(requests.c.erasure.is_(None), requests.c.cancelled_at.is_(None), requests.c.id > after)
    query = sa.select(requests.c.id, requests.c.client).where(unanswered)
    if among is not None:
        query = query.where(requests.c.id.in_(among))
    query = query.order_by(requests.c.id).limit(most)
    return Waiting({row.id: row.client for row in connection.execute(query)})


def never_present(connection: sa.Connection, leavers: Sequence[int]) -> set[int]:
    """Those of these clients who never took part in a round, standing or superseded."""
    query = sa.select(memberships.c.client).where(memberships.c.client.in_(leavers)).distinct()
    return set(leavers) - set(connection.execute(query).scalars())


def open_erasure(
    connection: sa.Connection, requested: Waiting, verdict: Verdict, *, mechanism: str, at: datetime
) -> int:
    """Withdraw the leavers of these requests from every stored cluster and write the verdict down."""
    newest = sa.select(sa.func.max(rounds.c.number)).where(rounds.c.standing)
    state = RequestState.REBUILDING if verdict.round is not None else RequestState.DELETING
    values = {
        "state": state.value,
        "rollback_to": verdict.undoes,
        "broken": verdict.round if verdict.back_to is not None else None,
        "criterion": verdict.criterion,
        "target": connection.execute(newest).scalar() if verdict.round is not None else None,
        "rounds_before": connection.execute(sa.select(sa.func.max(rounds.c.id))).scalar() or 0,
        "mechanism": mechanism,
        "opened_at": time_to_text(at),
    }
    erasure: int = connection.execute(erasures.insert().values(values).returning(erasures.c.id)).scalar_one()
    absent = never_present(connection, list(requested.clients.values()))
    for number, client in requested.clients.items():
        kind = VerdictKind.NEVER_PRESENT if client in absent else verdict.kind
        connection.execute(
            requests.update().where(requests.c.id == number).values(erasure=erasure, verdict=kind.value)
        )
        places = sa.select(memberships.c.round_id, memberships.c.slot, sa.literal(erasure)).where(
            memberships.c.client == client
        )
        connection.execute(withdrawals.insert().from_select(["round_id", "slot", "erasure"], places))
    return erasure


def supersede(connection: sa.Connection, first: int, erasure: int) -> None:
    """Undo the standing rounds from `first` on."""
    connection.execute(
        rounds.update()
        .where(rounds.c.standing, rounds.c.number >= first)
        .values(standing=False, superseded_by=erasure)
    )


def rebuilding(connection: sa.Connection) -> Rebuilding | None:
    """What has to be rebuilt before open erasures can go on; None when nothing has."""
    query = sa.select(erasures.c.rollback_to, erasures.c.target).where(
        erasures.c.state == RequestState.REBUILDING.value
    )
    found = connection.execute(query.order_by(erasures.c.id)).all()
    if not found:
        return None
    first, target = min(row.rollback_to for row in found), max(row.target for row in found)
    return Rebuilding(first, target, newest=found[-1].rollback_to)


def finish_rebuilding(connection: sa.Connection, *, epochs: int, model_bytes: int, remark: str = "") -> None:
    """The rebuild is complete, or cannot go on: write its cost down, give up superseded models and updates.

    `epochs` is what a participant trains in a round, unless the round says otherwise.
    """
    open_ones = sa.select(erasures).where(erasures.c.state == RequestState.REBUILDING.value)
    for row in connection.execute(open_ones).all():
        cost = _cost(connection, row, epochs, model_bytes)
        connection.execute(
            erasures.update()
            .where(erasures.c.id == row.id)
            .values(
                state=RequestState.DELETING.value,
                rounds=cost.rounds,
                client_epochs=cost.client_epochs,
                exchanged_bytes=cost.exchanged_bytes,
                seconds=cost.seconds,
                remark=remark,
            )
        )
    kept = (
        sa.select(rounds.c.before)
        .where(rounds.c.standing)
        .union(sa.select(rounds.c.after).where(rounds.c.standing), sa.select(run.c.initial_model))
    )
    connection.execute(models.update().where(models.c.digest.not_in(kept)).values(present=False))
    updates.delete_superseded(connection)


def unchanged(connection: sa.Connection) -> int:
    """How many standing rounds end in a model that an open erasure has undone, and none before it ends in."""
    open_ones = sa.select(erasures.c.id).where(erasures.c.state == RequestState.REBUILDING.value)
    undone = sa.select(rounds.c.after).where(rounds.c.superseded_by.in_(open_ones))
    first = sa.select(sa.func.min(erasures.c.rollback_to)).where(erasures.c.id.in_(open_ones)).scalar_subquery()
    before = sa.select(rounds.c.after).where(rounds.c.standing, rounds.c.number < first)
    same = sa.select(sa.func.count()).where(
        rounds.c.standing,
        rounds.c.number >= first,
        rounds.c.after.in_(undone),
        rounds.c.after.not_in(before.union(sa.select(run.c.initial_model))),
    )
    return int(connection.execute(same).scalar_one())


_undone, _standing = rounds.alias(), rounds.alias()
_then, _now = memberships.alias(), memberships.alias()

_REPEATED = (
    sa.select(_then.c.update_digest == _now.c.update_digest)
    .join_from(_undone, erasures, erasures.c.id == _undone.c.superseded_by)
    .join(
        _standing,
        (_standing.c.number == _undone.c.number) & (_standing.c.before == _undone.c.before) & _standing.c.standing,
    )
    .join(_then, _then.c.round_id == _undone.c.id)
    .join(_now, (_now.c.round_id == _standing.c.id) & (_now.c.client == _then.c.client))
    .where(erasures.c.state == RequestState.REBUILDING.value, _standing.c.id > erasures.c.rounds_before)
)

_REBUILT = (
    sa.select(rounds.c.id)
    .join(erasures, rounds.c.id > erasures.c.rounds_before)
    .where(erasures.c.state == RequestState.REBUILDING.value)
    .limit(1)
)


def repeated_updates(connection: sa.Connection) -> tuple[bool, ...] | None:
    """Whether each survivor of a round that an open erasure has undone returned the same update again, where it
    started from the same model again; None where no round has been rebuilt yet.
    """
    if connection.execute(_REBUILT).first() is None:
        return None
    return tuple(bool(same) for same in connection.execute(_REPEATED).scalars())


def _cost(connection: sa.Connection, erasure: sa.Row[Any], epochs: int, model_bytes: int) -> Cost:
    """What the rounds took that were recorded for an erasure."""
    done = (
        sa.select(
            rounds.c.participants, rounds.c.seconds, sa.func.coalesce(rebuilt.c.epochs, epochs).label("epochs")
        )
        .outerjoin(rebuilt, rebuilt.c.round_id == rounds.c.id)
        .where(rounds.c.id > erasure.rounds_before, rounds.c.number <= erasure.target)
    )
    found = connection.execute(done).all()
    return Cost(
        rounds=len(found),
        client_epochs=sum(row.participants * row.epochs for row in found),
        exchanged_bytes=2 * sum(row.participants for row in found if row.epochs) * model_bytes,
        seconds=sum(row.seconds or 0.0 for row in found),
    )


def leavers_to_delete(connection: sa.Connection) -> list[int]:
    """The clients whose erasure waits for their deletion, by their numbers."""
    query = (
        sa.select(requests.c.client)
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(erasures.c.state == RequestState.DELETING.value)
    )
    return list(connection.execute(query).scalars())


def delete_leavers(connection: sa.Connection, leavers: Sequence[int]) -> None:
    """Delete ids, memberships and kept updates of these clients; their slots stay, nameless."""
    updates.delete_of(connection, leavers)
    connection.execute(memberships.delete().where(memberships.c.client.in_(leavers)))
    connection.execute(
        requests.update()
        .where(requests.c.client.in_(leavers))
        .values(client=None, openings=None, rounds_salt=None, client_salt=None)
    )
    connection.execute(clients.delete().where(clients.c.number.in_(leavers)))
    _advance(connection, RequestState.DELETING, RequestState.PURGING)


def purging(connection: sa.Connection) -> bool:
    """Whether deleted rows still have to be purged from the files."""
    query = sa.select(erasures.c.id).where(erasures.c.state == RequestState.PURGING.value)
    return connection.execute(query).first() is not None


def finish(connection: sa.Connection, *, at: datetime) -> tuple[int, ...]:
    """Purged erasures are answered; the numbers of their requests."""
    mine = sa.select(erasures.c.id).where(erasures.c.state == RequestState.PURGING.value)
    query = sa.select(requests.c.id).where(requests.c.erasure.in_(mine)).order_by(requests.c.id)
    numbers = tuple(connection.execute(query).scalars())
    _advance(connection, RequestState.PURGING, RequestState.ANSWERED, finished_at=time_to_text(at))
    return numbers


def _advance(connection: sa.Connection, old: RequestState, new: RequestState, **values: str) -> None:
    connection.execute(erasures.update().where(erasures.c.state == old.value).values(state=new.value, **values))
