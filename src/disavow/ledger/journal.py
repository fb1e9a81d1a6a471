"""The journal of erasures: every step is one transaction, so that a crash resumes where it struck.

    erasure opened ─┬─▶ REBUILDING ─▶ DELETING ─▶ ANSWERED
                    └──────────────────▲ deniable: nothing to rebuild

What is written, in this order; each line is one transaction, or a file that is durable before the next one begins:

    1  transaction   withdrawals, verdict, rounds superseded, leaf and signed head of the log   (`open_erasure`)
    2  for each round to rebuild: its model file, then a transaction with its rows and its leaf  (`Ledger.record`)
    3  transaction   cost and remark; models of superseded rounds marked as given up        (`finish_rebuilding`)
    4  files         proof in the run, opening outside it                                       (`erasure.prove`)
    5  transaction   what the run knows of the leavers, their kept updates             (`give_up_contributions`)
    6  files         given-up models and updates removed; the leavers' keys destroyed          (`Keyring.forget`)
    7  transaction   answered                                                                          (`finish`)

A crash before 1 leaves a request that waits; after it, whoever opens the run for writing goes on with the state
that is written down. 4 comes before 6, because a proof is made from what the keys open. A head of the log is noted
in the keyring before the transaction that writes it commits: a run is never newer than its keyring.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import Cost, EventKind, RequestState, Verdict, VerdictKind
from disavow.ledger import clients, updates
from disavow.ledger.keyring import Keyring
from disavow.ledger.members import UNKNOWN, Members, has_tokens, selected
from disavow.ledger.request_events import note_event
from disavow.ledger.rows import time_to_text
from disavow.ledger.schema import (
    erasures,
    memberships,
    models,
    rebuilt,
    requests,
    rounds,
    run,
    withdrawals,
)
from disavow.proof.commitment import SALT_BYTES
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
    approved: bool | None = None,
) -> Waiting:
    """The requests that nobody has answered, cancelled, refused or paused, placed after request `after`, all or
    `among` these: the first `most` of them, which is as many as one leaf of the log can tell of.

    With `approved`, only those that somebody has approved, or only the others. Whoever was forgotten before and is
    in a restored run again needs no approval.
    """
    query = sa.select(requests.c.id, requests.c.client).where(
        requests.c.erasure.is_(None),
        requests.c.cancelled_at.is_(None),
        requests.c.refused_at.is_(None),
        requests.c.paused_at.is_(None),
        requests.c.id > after,
    )
    if approved is not None:
        given = sa.or_(requests.c.approved_at.is_not(None), requests.c.client == UNKNOWN)
        query = query.where(given if approved else sa.not_(given))
    if among is not None:
        query = query.where(requests.c.id.in_(among))
    query = query.order_by(requests.c.id).limit(most)
    return Waiting({row.id: row.client for row in connection.execute(query)})


def never_present(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> set[int]:
    """Those of these clients who never took part in a round, standing or superseded."""
    return {leaver for leaver in leavers if not members.tokens(connection, leaver)}


_FILLED = sa.select(memberships.c.round_id, memberships.c.slot).where(has_tokens())


def open_erasure(
    connection: sa.Connection,
    members: Members,
    requested: Waiting,
    verdict: Verdict,
    *,
    mechanism: str,
    at: datetime,
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
    absent = never_present(connection, members, list(requested.clients.values()))
    for number, client in requested.clients.items():
        kind = VerdictKind.NEVER_PRESENT if client in absent else verdict.kind
        connection.execute(
            requests.update().where(requests.c.id == number).values(erasure=erasure, verdict=kind.value)
        )
        note_event(connection, members.keyring, number, EventKind.JUDGED, at=at)
        left = [
            {**row._mapping, "erasure": erasure, "salt": secrets.token_bytes(SALT_BYTES)}
            for row in selected(connection, _FILLED, members.tokens(connection, client))
        ]
        if left:
            connection.execute(withdrawals.insert(), left)
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

_AGAIN = (
    sa.select(_undone.c.id.label("undone"), _standing.c.id.label("standing"))
    .join_from(_undone, erasures, erasures.c.id == _undone.c.superseded_by)
    .join(
        _standing,
        (_standing.c.number == _undone.c.number) & (_standing.c.before == _undone.c.before) & _standing.c.standing,
    )
    .where(erasures.c.state == RequestState.REBUILDING.value, _standing.c.id > erasures.c.rounds_before)
)

_REBUILT = (
    sa.select(rounds.c.id)
    .join(erasures, rounds.c.id > erasures.c.rounds_before)
    .where(erasures.c.state == RequestState.REBUILDING.value)
    .limit(1)
)


def repeated_updates(connection: sa.Connection, members: Members) -> tuple[bool, ...] | None:
    """Whether each survivor of a round that an open erasure has undone returned the same update again, where it
    started from the same model again; None where no round has been rebuilt yet.
    """
    if connection.execute(_REBUILT).first() is None:
        return None
    same = []
    for pair in connection.execute(_AGAIN).all():
        then, now = (_digests(connection, members, round_id) for round_id in (pair.undone, pair.standing))
        same += [then[client] == digest for client, digest in now.items() if client in then]
    return tuple(same)


def _digests(connection: sa.Connection, members: Members, round_id: int) -> dict[int, bytes]:
    """The digest of the update that each client brought to a round, by the client's number."""
    header = connection.execute(sa.select(rounds).where(rounds.c.id == round_id)).one()
    return {filled.client.number: filled.update_digest for filled in members.of_round(connection, header).values()}


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


def leavers_to_forget(connection: sa.Connection) -> dict[int, int]:
    """The clients who are to be forgotten now, by their numbers, with their requests."""
    query = (
        sa.select(requests.c.client, requests.c.id)
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(erasures.c.state == RequestState.DELETING.value, requests.c.client.is_not(None))
    )
    return {row.client: row.id for row in connection.execute(query)}


def deleting(connection: sa.Connection) -> bool:
    """Whether erasures wait for their leavers to be forgotten."""
    query = sa.select(erasures.c.id).where(erasures.c.state == RequestState.DELETING.value)
    return connection.execute(query).first() is not None


def give_up_contributions(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> None:
    """Delete what the run knows of clients who are about to be forgotten, and their kept updates."""
    updates.delete_of(connection, members, leavers)
    clients.forget(connection, members.keyring, leavers)


def finish(connection: sa.Connection, keyring: Keyring, *, at: datetime) -> tuple[int, ...]:
    """Mark erasures as answered all of whose leavers have been forgotten; the numbers of their requests."""
    query = (
        sa.select(requests.c.id, requests.c.client, requests.c.erasure)
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(erasures.c.state == RequestState.DELETING.value)
        .order_by(requests.c.id)
    )
    found = connection.execute(query).all()
    known = keyring.by_number([row.client for row in found if row.client is not None])
    done = {row.erasure for row in found} - {row.erasure for row in found if row.client in known}
    gone = [row.client for row in found if row.erasure in done and row.client is not None]
    connection.execute(
        requests.update().where(requests.c.client.in_(gone)).values(client=None)
    )  # cancelled ones too
    for erasure in done:
        answered = {"state": RequestState.ANSWERED.value, "finished_at": time_to_text(at)}
        connection.execute(erasures.update().where(erasures.c.id == erasure).values(answered))
    answered_now = tuple(row.id for row in found if row.erasure in done)
    for number in answered_now:
        note_event(connection, keyring, number, EventKind.ANSWERED, at=at)
    clients.note_generation(connection, keyring)
    return answered_now
