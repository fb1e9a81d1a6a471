"""The journal of erasures: every step is one transaction, so that a crash resumes where it struck.

    erasure opened ─┬─▶ REBUILDING ─▶ DELETING ─▶ ANSWERED
                    └──────────────────▲ deniable: nothing to rebuild

What is written, in this order; each line is one transaction, or a file that is durable before the next one begins:

    1  transaction   withdrawals, verdict, rounds superseded, leaf and signed head of the log   (`open_erasure`)
       keyring       of clients that stay: erased records excluded, a new key in use   (`complete_record_requests`)
    2  for each round to rebuild: its model file, then a transaction with its rows and its leaf  (`Ledger.record`)
    3  transaction   cost and remark; models of superseded rounds marked as given up        (`finish_rebuilding`)
    4  files         proof in the run, opening outside it                                       (`erasure.prove`)
    5  transaction   what the run knows of the leavers, their kept updates             (`give_up_contributions`)
    6  files         given-up models and updates removed; the leavers' keys destroyed          (`Keyring.forget`)
    7  transaction   answered                                                                          (`finish`)

A purge is an erasure that answers no request: 1 without withdrawals, 2, 3 and 7. Whoever has no slot in a standing
round any more, after a purge or any other rollback, is purged once the rebuild is complete:

    8  files         its second proof                                                    (`erasure.prove_purged`)
    9  transaction   purged                                                                       (`note_purged`)

A crash before 1 leaves a request that waits; after it, whoever opens the run for writing goes on with the state
that is written down. 4 comes before 6, because a proof is made from what the keys open. A head of the log is noted
in the keyring before the transaction that writes it commits: a run is never newer than its keyring. So is the key
that a client is to go on with whose records are erased, prepared and not in use yet.
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
from disavow.ledger.members import UNKNOWN, Members, batches, has_tokens, selected
from disavow.ledger.request_events import note_event
from disavow.ledger.requests import UNCHECKED, in_force
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

CLIENT_LEAVES = "its client leaves, with all its records"
"""Why a request is cancelled that was on hold when its client's request to be forgotten was judged."""


@dataclass(frozen=True)
class Waiting:
    """Requests that wait to be answered: request number to client number.

    `records` are those of them that name records of a client; `last` is the last that was looked for.
    """

    clients: Mapping[int, int]
    records: frozenset[int] = frozenset()
    last: int = 0

    def joined(self, clients: Sequence[int], records: Sequence[int]) -> Waiting:
        """The same with requests of clients to be forgotten, and of others for records, that nobody has placed."""
        numbers = range(-len(clients) - len(records), 0)
        more = dict(zip(numbers, [*clients, *records], strict=True))
        return Waiting({**self.clients, **more}, self.records | set(numbers[len(clients) :]), self.last)

    @property
    def leavers(self) -> list[int]:
        """Whom they withdraw, by number, each once."""
        return list(dict.fromkeys(self.clients.values()))

    @property
    def leaving(self) -> list[int]:
        """Those of them who leave: they ask to be forgotten, whatever else they ask for."""
        staying = set(self.staying)
        return [client for client in self.leavers if client not in staying]

    @property
    def staying(self) -> list[int]:
        """Those of them who stay: all that they ask for is to have records erased."""
        whole = {client for number, client in self.clients.items() if number not in self.records}
        return [client for client in self.leavers if client not in whole]


@dataclass(frozen=True)
class Rebuilding:
    """What open erasures still need: every round up to `target`. The earliest that they undid is `first`; the
    last rollback among them was to `newest`.
    """

    first: int
    target: int
    newest: int


@dataclass(frozen=True)
class Purge:
    """A purge that was begun: which rounds it undid, when, and what it took.

    Args:
        number: The number of its erasure.
        first: The first round that it undid.
        last: The last one, up to which is retrained.
        begun_at: When it was begun.
        finished_at: When it was complete; None where it is not.
        cost: What the rounds took that were trained for it.
        remark: What its report says beyond that.

    """

    number: int
    first: int
    last: int
    begun_at: datetime
    finished_at: datetime | None
    cost: Cost
    remark: str


@dataclass(frozen=True)
class Unpurged:
    """Requests whose clients were withdrawn, and are in the model all the same, as far as anybody can say.

    Args:
        rounds: By the number of the request, the first standing round in which its client had a slot.

    """

    rounds: Mapping[int, int]

    def __bool__(self) -> bool:
        return bool(self.rounds)

    @property
    def first(self) -> int | None:
        """The first standing round with a withdrawn slot; None where there is none."""
        return min(self.rounds.values(), default=None)


def waiting(
    connection: sa.Connection,
    *,
    after: int = 0,
    among: Collection[int] | None = None,
    most: int = MOST_REQUESTS,
    approved: bool | None = None,
) -> Waiting:
    """The requests that nobody has answered, cancelled, refused or paused, placed after request `after`, all or
    `among` these: the first `most` of them, which is as many as one leaf of the log can tell of. And whatever else
    the same clients ask for, while there is room: whoever is withdrawn is withdrawn once. Requests for records wait
    until these were looked up.

    With `approved`, only those that somebody has approved, or only the others. Whoever was forgotten before and is
    in a restored run again needs no approval.
    """
    query = sa.select(requests.c.id, requests.c.client, requests.c.records).where(
        requests.c.erasure.is_(None),
        requests.c.cancelled_at.is_(None),
        requests.c.refused_at.is_(None),
        requests.c.paused_at.is_(None),
        requests.c.note != UNCHECKED,
    )
    if approved is not None:
        given = sa.or_(requests.c.approved_at.is_not(None), requests.c.client == UNKNOWN)
        query = query.where(given if approved else sa.not_(given))
    query = query.order_by(requests.c.id)
    wanted = query.where(requests.c.id > after)
    if among is not None:
        wanted = wanted.where(requests.c.id.in_(among))
    found = {row.id: row for row in connection.execute(wanted.limit(most))}
    last = max(found, default=0)
    for some in batches(row.client for row in list(found.values())):
        for row in connection.execute(query.where(requests.c.client.in_(some))):
            if len(found) < MOST_REQUESTS:
                found.setdefault(row.id, row)
    clients = {number: found[number].client for number in sorted(found)}
    return Waiting(clients, frozenset(row.id for row in found.values() if row.records is not None), last)


def never_present(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> set[int]:
    """Those of these clients who never took part in a round, standing or superseded."""
    return {leaver for leaver, tokens in members.tokens_of(connection, leavers).items() if not tokens}


def all_absent(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> bool:
    """Whether none of these clients ever took part in a round; one who did ends the search."""
    return not any(members.tokens(connection, leaver) for leaver in leavers)


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
    absent = never_present(connection, members, requested.leavers)
    successors = members.keyring.prepare_successors(requested.staying) if requested.staying else {}
    stand = connection.execute(sa.select(rounds.c.id, rounds.c.number).where(rounds.c.standing))
    standing = {row.id: row.number for row in stand}
    for number, client in requested.clients.items():
        kind = VerdictKind.NEVER_PRESENT if client in absent else verdict.kind
        judged = {"erasure": erasure, "verdict": kind.value, "successor": successors.get(client)}
        connection.execute(requests.update().where(requests.c.id == number).values(judged))
        note_event(connection, members.keyring, number, EventKind.JUDGED, at=at)
    for client in requested.leavers:
        left = [
            {**row._mapping, "erasure": erasure, "salt": secrets.token_bytes(SALT_BYTES)}
            for row in selected(connection, _FILLED, members.tokens(connection, client))
        ]
        if left:
            connection.execute(withdrawals.insert(), left)
            stood = [row["round_id"] for row in left if row["round_id"] in standing]
            first = min(stood, key=standing.__getitem__, default=None)
            mine = requests.update().where(requests.c.client == client, requests.c.erasure == erasure)
            connection.execute(mine.values(first_round=first))
    for client, successor in successors.items():  # what else they ask for goes on waiting, under other salts
        others = requests.update().where(requests.c.client == client, requests.c.erasure.is_(None))
        connection.execute(others.where(in_force()).values(client=successor, word=None))
    _give_up_others(connection, members.keyring, requested.leaving, at=at)
    return erasure


def _give_up_others(connection: sa.Connection, keyring: Keyring, leaving: Sequence[int], *, at: datetime) -> None:
    """Cancel what clients who leave ask for besides, and nobody has approved or somebody has paused.

    Whoever is withdrawn is withdrawn once, and nothing that a request names can be opened once its client is gone.
    """
    for some in batches(leaving):
        others = sa.select(requests.c.id).where(requests.c.client.in_(some), requests.c.erasure.is_(None))
        for number in connection.execute(others.where(in_force()).order_by(requests.c.id)).scalars().all():
            note_event(connection, keyring, number, EventKind.CANCELLED, at=at, reason=CLIENT_LEAVES)


def open_purge(connection: sa.Connection, first: int, back_to: int, *, mechanism: str, at: datetime) -> int:
    """Write down that the rounds from `back_to` on are undone, because `first` has a withdrawn slot."""
    newest = sa.select(sa.func.max(rounds.c.number)).where(rounds.c.standing)
    values = {
        "state": RequestState.REBUILDING.value,
        "rollback_to": back_to,
        "broken": None if first == back_to else first,
        "target": connection.execute(newest).scalar_one(),
        "rounds_before": connection.execute(sa.select(sa.func.max(rounds.c.id))).scalar_one(),
        "mechanism": mechanism,
        "opened_at": time_to_text(at),
        "purge": True,
    }
    erasure: int = connection.execute(erasures.insert().values(values).returning(erasures.c.id)).scalar_one()
    return erasure


def complete_record_requests(connection: sa.Connection, members: Members) -> tuple[str, ...]:
    """Exclude the records of judged requests, and put their clients' new keys in use: as often as it is called.

    Returns:
        The clients who go on with a new key, and whose old one is not destroyed yet.

    """
    query = sa.select(requests).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))
    judged = connection.execute(query.where(requests.c.records.is_not(None))).all()
    if not judged:
        return ()
    keyring = members.keyring
    ids = members.ids_of([row.client for row in judged])
    excluded: dict[str, list[str]] = {}
    for row in judged:
        if row.client in ids:
            excluded.setdefault(ids[row.client], []).extend(keyring.requested_records(row.client, row.nonce))
    successors = {row.client: row.successor for row in judged if row.successor is not None and row.client in ids}
    moved = sa.select(requests.c.nonce, requests.c.client).where(
        requests.c.client.in_(successors.values()), requests.c.erasure.is_(None)
    )
    waiting = {row.nonce: row.client for row in connection.execute(moved)}
    keyring.put_in_place_of(successors, excluded, waiting)
    return tuple(ids[client] for client in successors)


def supersede(connection: sa.Connection, first: int, erasure: int) -> None:
    """Undo the standing rounds from `first` on."""
    connection.execute(
        rounds.update()
        .where(rounds.c.standing, rounds.c.number >= first)
        .values(standing=False, superseded_by=erasure)
    )
    undone = sa.select(rounds.c.id).where(rounds.c.superseded_by == erasure)
    connection.execute(requests.update().where(requests.c.first_round.in_(undone)).values(first_round=None))


def unpurged(connection: sa.Connection) -> Unpurged:
    """The requests that were judged and of whose clients a standing round has a withdrawn slot."""
    query = sa.select(requests.c.id, rounds.c.number).join(rounds, rounds.c.id == requests.c.first_round)
    return Unpurged({row.id: row.number for row in connection.execute(query.order_by(requests.c.id))})


def purged(connection: sa.Connection) -> frozenset[int]:
    """The numbers of the requests that are noted as purged."""
    query = sa.select(requests.c.id).where(requests.c.purged_at.is_not(None))
    return frozenset(connection.execute(query).scalars())


def to_be_purged(connection: sa.Connection) -> tuple[int, ...]:
    """The numbers of the answered requests that are yet to be noted as purged: none of their rounds stands.

    None while rounds are to be rebuilt: no model is served then that a proof could be of. And none while one stands
    that was rebuilt approximately: it was made from updates that were trained on models with the leavers in them.
    """
    if rebuilding(connection) is not None or rebuilt_stands(connection):
        return ()
    query = (
        sa.select(requests.c.id)
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(
            erasures.c.state == RequestState.ANSWERED.value,
            requests.c.verdict != VerdictKind.NEVER_PRESENT.value,
            requests.c.first_round.is_(None),
            requests.c.purged_at.is_(None),
        )
    )
    return tuple(connection.execute(query.order_by(requests.c.id)).scalars())


def rebuilt_stands(connection: sa.Connection) -> bool:
    """Say whether a round stands that was rebuilt approximately."""
    query = sa.select(rebuilt.c.round_id).join(rounds, rounds.c.id == rebuilt.c.round_id).where(rounds.c.standing)
    return connection.execute(query.limit(1)).first() is not None


def note_purged(connection: sa.Connection, keyring: Keyring, numbers: Sequence[int], *, at: datetime) -> None:
    """Note that nothing of the clients of these requests is in the model any more."""
    for number in numbers:
        note_event(connection, keyring, number, EventKind.PURGED, at=at)


def purges(connection: sa.Connection) -> tuple[Purge, ...]:
    """All purges, in the order in which they were begun."""
    query = sa.select(erasures).where(erasures.c.purge).order_by(erasures.c.id)
    return tuple(
        Purge(
            row.id,
            row.rollback_to,
            row.target,
            datetime.fromisoformat(row.opened_at),
            None if row.finished_at is None else datetime.fromisoformat(row.finished_at),
            Cost(row.rounds, row.client_epochs, row.exchanged_bytes, row.seconds),
            row.remark,
        )
        for row in connection.execute(query)
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
    rebuilt_purges = sa.select(erasures.c.id).where(
        erasures.c.state == RequestState.DELETING.value, erasures.c.purge
    )
    done |= set(connection.execute(rebuilt_purges).scalars())
    gone = [row.client for row in found if row.erasure in done and row.client is not None]
    connection.execute(
        requests.update().where(requests.c.client.in_(gone)).values(client=None, successor=None)
    )  # cancelled ones too
    # whoever leaves while its records are being erased: its old key is not destroyed yet, and leads to nobody
    connection.execute(requests.update().where(requests.c.successor.in_(gone)).values(successor=None))
    for erasure in done:
        answered = {"state": RequestState.ANSWERED.value, "finished_at": time_to_text(at)}
        connection.execute(erasures.update().where(erasures.c.id == erasure).values(answered))
    answered_now = tuple(row.id for row in found if row.erasure in done)
    for number in answered_now:
        note_event(connection, keyring, number, EventKind.ANSWERED, at=at)
    clients.note_generation(connection, keyring)
    return answered_now
