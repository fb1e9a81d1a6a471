"""Erasure requests as rows: placed by anyone, found again by who asked, listed with what became of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import (
    Approval,
    Cost,
    Decision,
    ErasureRequest,
    EventKind,
    RequestEvent,
    RequestState,
    Verdict,
    VerdictKind,
    escaped,
)
from disavow.domain.strategies import MECHANISMS
from disavow.errors import (
    AlreadyForgotten,
    ConfigError,
    DeadlineRefused,
    RecordErased,
    RequestNotOpen,
    RunError,
    UnknownClient,
    UnknownRecord,
    UnknownRequest,
)
from disavow.ledger.keyring import Keyring
from disavow.ledger.log import records_commitment
from disavow.ledger.members import UNKNOWN, Members, RequestSalts, batches
from disavow.ledger.pseudonyms import NONCE_BYTES
from disavow.ledger.request_events import NewEvent, events_of, note_event, note_events
from disavow.ledger.rows import REQUEST, request_checksum, time_to_text
from disavow.ledger.run_state import count_commits
from disavow.ledger.schema import erasures, requests
from disavow.ledger.sealed_texts import LONGEST_NAME, LONGEST_REASON, refuse_text
from disavow.proof.word import SignedWord

RESTORED = "restored from a backup"
"""What is noted of requests that are placed, or given up, because the run is older than its keyring."""

UNCHECKED = "its records are yet to be looked up"
"""What is noted of requests for records that were placed where the task is not: they wait until somebody who has it
has looked."""


@dataclass(frozen=True)
class JudgedRequest:
    """A request with a verdict, as long as its client is in the tables: what its proof is made from.

    Args:
        number: The number of the request.
        client: The number of its client.
        erasure: The erasure that answers it.
        index: Its place among the requests that this erasure answers.
        verdict: The value of its `VerdictKind`.
        asked_at: When it was placed, as text.
        judged_at: When the erasure was opened, as text.
        rollback_to: The first round that the erasure undid, if it undid any.
        target: The last round to rebuild, if there is one.
        openings: The folder that was asked for its opening.
        salts: Open the log's commitments to the rounds it was in, to who asked, and to the records.
        records: The keys of the records to erase; None for the whole client.
        word: The digest of the client's signed word that it removed them.

    """

    number: int
    client: int
    erasure: int
    index: int
    verdict: str
    asked_at: str
    judged_at: str
    rollback_to: int | None
    target: int | None
    openings: str | None
    salts: RequestSalts
    records: tuple[str, ...] | None = None
    word: bytes | None = None


@dataclass(frozen=True)
class NewRequest:
    """A request to be placed.

    Args:
        client: Who is to be forgotten, or has the records.
        records: The keys of the records; None for the whole client.
        by: Who places it.

    """

    client: str
    records: Sequence[str] | None = None
    by: str = ""


def place(
    connection: sa.Connection,
    keyring: Keyring,
    ids: Sequence[str],
    *,
    at: datetime,
    stream_round: int | None = None,
    openings: str | None = None,
    note: str = "",
    by: Sequence[str] | str = "",
    reason: str = "",
) -> tuple[int, ...]:
    """Make requests wait; their numbers. Asking twice gives the number of the first request, unless that was
    cancelled or refused, and is noted in its history.

    A client that the run has never known is refused, and then nothing is placed. `openings` is the folder, as an
    absolute path, into which whoever answers is to write the openings; it is kept in the keyring.
    `note` is said of the requests wherever they are listed. `by` placed them, one for all or one for each, for a
    `reason`. However many they are, the statements are few.
    """
    actors = [by] * len(ids) if isinstance(by, str) else list(by)
    for actor in dict.fromkeys(actors):
        refuse_text(keyring, "the name of who asks", actor, longest=LONGEST_NAME, needed=False)
    refuse_text(keyring, "the reason", reason, longest=LONGEST_REASON, needed=False)
    clients = _numbers_of(keyring, ids)
    numbers = _requests_of(connection, clients)
    before = frozenset(numbers)
    new = [client for client in dict.fromkeys(clients) if client not in before]
    numbers |= zip(new, _insert(connection, new, at=at, stream_round=stream_round, note=note), strict=True)
    seen, events = set(before), []
    for client, actor in zip(clients, actors, strict=True):
        kind = EventKind.DUPLICATE if client in seen else EventKind.RECEIVED
        seen.add(client)
        events.append(NewEvent(numbers[client], kind, at, actor, reason))
    note_events(connection, keyring, events)
    if openings is not None:
        keyring.ask_openings(list(dict.fromkeys(clients)), openings)
    return tuple(numbers[client] for client in clients)


def _numbers_of(keyring: Keyring, ids: Sequence[str]) -> list[int]:
    """The numbers of clients in the keyring; one who is not there is refused."""
    for client in ids:
        refuse_broken_text(client)
    found = keyring.find_all(ids)
    for client in ids:
        if client not in found:
            raise _unknown(keyring, client)
    return [found[client].number for client in ids]


def _requests_of(connection: sa.Connection, clients: Sequence[int]) -> dict[int, int]:
    """The numbers of these clients' requests to be forgotten, by client; as `_request_of` has them."""
    some_clients: sa.BindParameter[list[int]] = sa.bindparam("clients", expanding=True)
    query = sa.select(requests.c.client, requests.c.id).where(requests.c.client.in_(some_clients))
    query = query.where(requests.c.records.is_(None), in_force())
    return {
        row.client: row.id
        for some in batches(dict.fromkeys(clients))
        for row in connection.execute(query, {"clients": some})
    }


def place_for_records(
    connection: sa.Connection,
    keyring: Keyring,
    records_by_client: Mapping[str, Sequence[str]],
    *,
    at: datetime,
    openings: str | None = None,
    note: str = "",
    by: str = "",
    reason: str = "",
) -> dict[str, int]:
    """Make requests wait for some records of clients to be erased; the number of each client's. All or none.

    Asking for the same records twice gives the number of the first request, until it is answered, and is noted in
    its history. `by` placed them, for a `reason`.

    Raises:
        TextNamesClient: Name or reason contain the id of a client.
        UnknownClient: A client is not in the run.
        AlreadyForgotten: A client has left it.
        RecordErased: A record was erased before.
        ConfigError: No records are named, or one twice.

    """
    refuse_text(keyring, "the name of who asks", by, longest=LONGEST_NAME, needed=False)
    refuse_text(keyring, "the reason", reason, longest=LONGEST_REASON, needed=False)
    details: dict[str, Any] = {"at": at, "by": by, "reason": reason}
    numbers = {}
    for client, records in records_by_client.items():
        refuse_broken_text(client)
        found = keyring.find(client)
        if found is None:
            raise _unknown(keyring, client)
        if found.number in _withdrawn(connection):
            raise already_forgotten(client)
        wanted = _refuse_unusable(client, records)
        number = _find_duplicate(connection, keyring, found.number, wanted)
        if number is None:
            _refuse_erased(keyring, client, wanted)
            nonce = secrets.token_bytes(NONCE_BYTES)
            keyring.ask_records(found.number, nonce, sorted(wanted))  # durably before the run commits
            [number] = _insert(connection, [found.number], at=at, note=note, records=len(wanted), nonce=nonce)
            note_event(connection, keyring, number, EventKind.RECEIVED, **details)
        else:
            note_event(connection, keyring, number, EventKind.DUPLICATE, **details)
        if openings is not None:
            keyring.ask_openings([found.number], openings)
        numbers[client] = number
    return numbers


def _refuse_unusable(client: str, records: Sequence[str]) -> set[str]:
    """The records, each once; refuse none at all, and a key that is no proper text."""
    if not records:
        raise ConfigError(f"no record of {escaped(client)} is named; allowed: one at least (nothing was changed)")
    for record in records:
        if not record or not _is_proper(record):
            raise UnknownRecord(f"{record!r} is no record of {escaped(client)}; nothing was changed")
    return set(records)


def _refuse_erased(keyring: Keyring, client: str, records: set[str]) -> None:
    excluded = keyring.exclusions([client])[client]
    for record in sorted(records):
        if excluded.excludes(record):
            raise erased_before(client, record)


def erased_before(client: str, record: str) -> RecordErased:
    """Say that a record was erased before."""
    return RecordErased(
        f"record {escaped(record)} of {escaped(client)} was erased before, and no round since has seen it; nothing "
        "was changed"
    )


def _find_duplicate(connection: sa.Connection, keyring: Keyring, client: int, records: set[str]) -> int | None:
    """The request of a client for just these records that waits, or has its verdict and is not answered yet."""
    mine = sa.or_(requests.c.client == client, requests.c.successor == client)
    query = sa.select(requests).where(mine, requests.c.records == len(records), in_force())
    for row in connection.execute(query.order_by(requests.c.id)):
        if set(keyring.requested_records(row.client, row.nonce)) == records:
            number: int = row.id
            return number
    return None


def find_for_records(
    connection: sa.Connection, members: Members, client: str, records: Sequence[str]
) -> ErasureRequest | None:
    """See `Reader.find_record_request`."""
    found = members.keyring.find(client)
    number = None if found is None else _find_duplicate(connection, members.keyring, found.number, set(records))
    return None if number is None else next(iter(listed(connection, members, [number])), None)


def requested_records(connection: sa.Connection, keyring: Keyring, number: int) -> tuple[str, ...]:
    """See `Reader.requested_records`."""
    row = connection.execute(sa.select(requests).where(requests.c.id == number)).one()
    return () if row.client is None or row.records is None else keyring.requested_records(row.client, row.nonce)


def records_waiting(connection: sa.Connection, keyring: Keyring, client: str) -> set[str]:
    """See `Reader.records_waiting`."""
    found = keyring.find(client)
    if found is None:
        return set()
    mine = sa.select(requests).where(requests.c.client == found.number, requests.c.records.is_not(None))
    rows = connection.execute(mine.where(requests.c.erasure.is_(None), in_force())).all()
    return {record for row in rows for record in keyring.requested_records(row.client, row.nonce)}


def words_wanted(connection: sa.Connection, members: Members, client: str) -> dict[int, bytes]:
    """See `Reader.words_wanted`."""
    found = members.keyring.find(client)
    if found is None:
        return {}
    mine = sa.or_(requests.c.client == found.number, requests.c.successor == found.number)
    query = sa.select(requests.c.id).where(mine, requests.c.records.is_not(None), requests.c.word.is_(None))
    numbers = connection.execute(query.order_by(requests.c.id)).scalars().all()
    commitments = {number: records_commitment(connection, members, number) for number in numbers}
    return {number: records for number, records in commitments.items() if records is not None}


def word_of(connection: sa.Connection, number: int) -> bytes | None:
    """The digest of the client's word that it removed the records of a request, if it has given one."""
    return connection.execute(sa.select(requests.c.word).where(requests.c.id == number)).scalar()


def note_word(connection: sa.Connection, members: Members, number: int, word: SignedWord) -> None:
    """Note the digest of a client's word that it removed the records of a request.

    Raises:
        RunError: It is no request for records.
        VerificationError: It is about other records, or its signature does not hold.

    """
    records = records_commitment(connection, members, number)
    if records is None:
        raise RunError(f"request {number} is none for records of a client: no word is taken for it")
    word.check(run=members.run_id, records=records)
    connection.execute(requests.update().where(requests.c.id == number).values(word=word.digest))


def note_not_held(connection: sa.Connection, members: Members, number: int, said: Decision) -> None:
    """Note, once, that a client holds no such records as a judged request names; `said` by its node.

    Raises:
        UnknownRequest: There is no such request.
        RunError: It is none for records, or waits: nobody was told to leave them out.
        TextNamesClient: Name or reason contain the id of a client.

    """
    refuse_text(members.keyring, "the name of who says so", said.by, longest=LONGEST_NAME)
    refuse_text(members.keyring, "the reason", said.reason, longest=LONGEST_REASON)
    request = numbered(connection, members, number)
    if request.records is None or not request.judged:
        raise RunError(f"request {number} is none for records that were excluded; nothing was changed")
    if any(event.kind is EventKind.NOT_HELD for event in request.history):
        return
    details: dict[str, Any] = {"at": said.at, "by": said.by, "reason": said.reason}
    note_event(connection, members.keyring, number, EventKind.NOT_HELD, **details)


def place_for_unknown(connection: sa.Connection, keyring: Keyring, *, at: datetime) -> int:
    """Make one request wait for all who were forgotten and are in a run that was restored from a backup."""
    number: int | None = connection.execute(_request_of(UNKNOWN)).scalar()
    if number is None:
        [number] = _insert(connection, [UNKNOWN], at=at, note=RESTORED)
        note_event(connection, keyring, number, EventKind.RECEIVED, at=at)
    return number


def is_waiting(connection: sa.Connection, client: int) -> bool:
    """Say whether a client (by its number) has asked, and nobody has answered or cancelled it."""
    return connection.execute(_request_of(client).where(requests.c.erasure.is_(None))).first() is not None


def give_up_forgotten(connection: sa.Connection, keyring: Keyring, *, at: datetime) -> None:
    """Cancel requests of clients who were forgotten since: the run was restored from a backup made before.

    Whoever is still in, under another key because of records that were erased since, goes on asking.
    """
    query = sa.select(requests).where(requests.c.erasure.is_(None), in_force())
    waiting = connection.execute(query.where(requests.c.client != UNKNOWN)).all()
    known = keyring.by_number([row.client for row in waiting])
    lost = [row for row in waiting if row.client not in known]
    moved = keyring.clients_of_requests([row.nonce for row in lost])
    for row in lost:
        if row.nonce in moved:
            changed = requests.update().where(requests.c.id == row.id)
            connection.execute(changed.values(client=moved[row.nonce], word=None))
        else:
            note_event(
                connection, keyring, row.id, EventKind.CANCELLED, at=at, reason=RESTORED, client=None, note=RESTORED
            )


_INSERT = requests.insert().returning(requests.c.id, sort_by_parameter_order=True)


def _insert(
    connection: sa.Connection,
    clients: Sequence[int],
    *,
    at: datetime,
    stream_round: int | None = None,
    note: str = "",
    records: int | None = None,
    nonce: bytes | None = None,
) -> list[int]:
    """Store the requests of clients; their numbers, in this order. Their first event is for the caller to note."""
    row = dict.fromkeys(REQUEST) | {
        "asked_at": time_to_text(at),
        "stream_round": stream_round,
        "note": note,
        "records": records,
    }
    values = {**row, "checksum": request_checksum(row)}
    rows = [{**values, "client": client, "nonce": nonce or secrets.token_bytes(NONCE_BYTES)} for client in clients]
    return list(connection.execute(_INSERT, rows).scalars()) if rows else []


def unchecked(connection: sa.Connection) -> tuple[int, ...]:
    """See `Reader.unchecked_requests`."""
    query = sa.select(requests.c.id).where(
        requests.c.erasure.is_(None), in_force(), requests.c.client.is_not(None), requests.c.note == UNCHECKED
    )
    return tuple(connection.execute(query.order_by(requests.c.id)).scalars())


def note_checked(connection: sa.Connection, number: int) -> None:
    """Note that the records of a request were looked up: it need not wait for that any more."""
    row = connection.execute(sa.select(requests).where(requests.c.id == number)).one()
    if row.note == UNCHECKED:
        checksum = request_checksum({**row._mapping, "note": ""})
        connection.execute(requests.update().where(requests.c.id == number).values(note="", checksum=checksum))
        count_commits(connection)


_MAY = {
    EventKind.APPROVED: {RequestState.WAITING, RequestState.PAUSED},
    EventKind.REFUSED: {RequestState.WAITING, RequestState.PAUSED},
    EventKind.CANCELLED: {RequestState.WAITING, RequestState.PAUSED},
    EventKind.PAUSED: {RequestState.WAITING},
    EventKind.RESUMED: {RequestState.PAUSED},
    EventKind.EXTENDED: {RequestState.WAITING, RequestState.REBUILDING, RequestState.DELETING},
}
"""The states in which somebody may do this to a request."""

_NEED_NO_REASON = frozenset({EventKind.APPROVED, EventKind.CANCELLED})
_LARGEST_NUMBER = 2**31 - 1


def decide(
    connection: sa.Connection,
    members: Members,
    number: int,
    kind: EventKind,
    decision: Decision,
    *,
    until: datetime | None = None,
    forecast: str | None = None,
    interim: bool = False,
) -> None:
    """Do to a request what somebody has decided: approve, refuse, cancel, pause, resume or extend it.

    Args:
        connection: The ledger, for writing.
        members: Who the clients are.
        number: The request.
        kind: What to do.
        decision: Who decided, when and why.
        until: Where to extend the deadline to; None: as far as it may be.
        forecast: The digest of the forecast that was approved.
        interim: Whether the run promises a purge: until then an answer is an interim one, and may be extended.

    Raises:
        UnknownRequest: There is no such request.
        RequestNotOpen: It is not in a state in which this can be done.
        DeadlineRefused: The deadline is in the past, too far, or was extended or reached before.
        TextNamesClient: The name or the reason contains the id of a client.

    """
    keyring = members.keyring
    named, reasoned = kind is not EventKind.CANCELLED, kind not in _NEED_NO_REASON
    refuse_text(keyring, "the name of who decided", decision.by, longest=LONGEST_NAME, needed=named)
    refuse_text(keyring, "the reason", decision.reason, longest=LONGEST_REASON, needed=reasoned)
    request = numbered(connection, members, number)
    row = connection.execute(sa.select(requests).where(requests.c.id == number)).one()
    to_purge = interim and request.state is RequestState.ANSWERED and row.first_round is not None
    if request.state not in _MAY[kind] and not (kind is EventKind.EXTENDED and to_purge):
        raise RequestNotOpen(
            f"request {number} is {request.state.value}: it cannot be {kind.value}; nothing was changed"
        )
    if row.client == UNKNOWN:
        raise RequestNotOpen(
            f"request {number} is for clients who were forgotten before the run was restored: nobody decides about "
            "it, it is answered before anything else; nothing was changed"
        )
    if kind is EventKind.APPROVED and request.approval is Approval.APPROVED:
        raise RequestNotOpen(f"request {number} is approved already; nothing was changed")
    if kind is EventKind.EXTENDED:
        until = _extended(request, until, decision.at)
    note_event(
        connection,
        keyring,
        number,
        kind,
        at=decision.at,
        by=decision.by,
        reason=decision.reason,
        until=until,
        forecast=forecast,
    )


def delete_request_details(connection: sa.Connection, keyring: Keyring, number: int) -> None:
    """Delete what a request that was given up asked for: its records, and the folder unless another one waits.

    Only once it is committed that the request was given up: a request that still waits must not lose what it names.

    Args:
        connection: The ledger, for writing, so that nobody places a request meanwhile.
        keyring: The run's keyring.
        number: The request; one that is in force, or whose client is forgotten, is left alone.

    """
    row = connection.execute(sa.select(requests).where(requests.c.id == number)).one()
    if row.client is None or (row.cancelled_at is None and row.refused_at is None):
        return
    keyring.forget_requested_records(row.nonce)
    others = sa.select(requests.c.id).where(requests.c.client == row.client, in_force())
    if connection.execute(others).first() is None:
        keyring.ask_openings([row.client], None)  # whoever asks again asks for its own folder


def _extended(request: ErasureRequest, until: datetime | None, now: datetime) -> datetime:
    """To when a deadline is extended, if it may be."""
    deadline = request.deadline
    until = deadline.latest if until is None else until
    refusal = None
    if deadline.extended_until is not None:
        refusal = f"it was extended before, until {deadline.extended_until:%Y-%m-%d}"
    elif now >= deadline.due:
        refusal = f"it was due on {deadline.due:%Y-%m-%d}, and is extended only before that"
    elif until <= now:
        refusal = f"{until:%Y-%m-%d %H:%M} UTC is in the past"
    elif until <= deadline.due:
        refusal = f"{until:%Y-%m-%d %H:%M} UTC is not after {deadline.due:%Y-%m-%d %H:%M} UTC, when it is due"
    elif until > deadline.latest:
        refusal = f"it may be extended until {deadline.latest:%Y-%m-%d %H:%M} UTC at most (GDPR Art. 12(3))"
    if refusal is not None:
        raise DeadlineRefused(
            f"the deadline of request {request.number} cannot be set: {refusal}; nothing was changed"
        )
    return until


def numbered(connection: sa.Connection, members: Members, number: int) -> ErasureRequest:
    """The request of a number.

    Raises:
        UnknownRequest: There is none.

    """
    found = listed(connection, members, [number]) if 0 < number <= _LARGEST_NUMBER else ()
    if not found:
        raise UnknownRequest(f"there is no request {number} in this run; nothing was changed")
    return found[0]


def cancel(connection: sa.Connection, members: Members, client: str, decision: Decision) -> int:
    """Cancel the request of a client that waits; its number. Cancelling twice is cancelling once.

    A request with a verdict stays: its client is withdrawn already.
    """
    keyring = members.keyring
    refuse_broken_text(client)
    found = keyring.find(client)
    if found is None:
        raise _unknown(keyring, client)
    mine = sa.select(requests).where(requests.c.client == found.number)
    waiting = connection.execute(mine.where(requests.c.erasure.is_(None), in_force())).all()
    if len(waiting) > 1:
        raise ConfigError(
            f"{escaped(client)} has {len(waiting)} requests that wait; allowed: the number of one of them, "
            f"{' or '.join(str(row.id) for row in waiting)}"
        )
    row = waiting[0] if waiting else connection.execute(mine.order_by(requests.c.id.desc()).limit(1)).one_or_none()
    if row is None:
        raise RunError(f"{client!r} has not asked to be forgotten: there is nothing to cancel")
    cancelled: int = row.id
    if row.erasure is not None:
        raise RequestNotOpen(
            f"request {row.id} of {client!r} has its verdict and cannot be cancelled any more: {row.verdict}"
        )
    if row.cancelled_at is None:
        decide(connection, members, cancelled, EventKind.CANCELLED, decision)
    return cancelled


def in_force() -> sa.ColumnElement[bool]:
    """Say in a query that a request was neither cancelled nor refused."""
    return sa.and_(requests.c.cancelled_at.is_(None), requests.c.refused_at.is_(None))


def _request_of(client: int) -> sa.Select[int]:
    """The number of a client's request to be forgotten; one that was cancelled or refused does not count."""
    return sa.select(requests.c.id).where(requests.c.client == client, requests.c.records.is_(None), in_force())


def _withdrawn(connection: sa.Connection) -> set[int]:
    """The numbers of clients who have their verdict, and are not forgotten yet."""
    query = sa.select(requests.c.client).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))
    return set(connection.execute(query).scalars())


def _unknown(keyring: Keyring, client: str) -> UnknownClient:
    if keyring.has_left(client):
        return already_forgotten(client)
    return UnknownClient(f"{client!r} is not a client of this run, and never was; nothing was changed")


def already_forgotten(client: str) -> AlreadyForgotten:
    """Say that a client has left and was forgotten: by which request, only its opening tells."""
    return AlreadyForgotten(f"{client!r} has left this run and was forgotten: there is nothing left to erase")


def refuse_broken_text(client: str) -> None:
    """An id that is no proper text (bytes of a command line that are not UTF-8) can be no client's."""
    if not _is_proper(client):
        raise UnknownClient(f"{client!r} is not a client of this run, and never was; nothing was changed")


def _is_proper(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find(connection: sa.Connection, members: Members, client: str) -> ErasureRequest | None:
    """The request of a client in the keyring, if it has asked before and not cancelled it."""
    refuse_broken_text(client)
    found = members.keyring.find(client)
    number = None if found is None else connection.execute(_request_of(found.number)).scalar()
    return next(iter(listed(connection, members, [number])), None) if number else None


def listed(
    connection: sa.Connection, members: Members, numbers: Sequence[int] | None = None
) -> tuple[ErasureRequest, ...]:
    """Requests in the order in which they were placed: all, or those of these numbers."""
    query = (
        sa.select(requests, erasures)
        .outerjoin(erasures, erasures.c.id == requests.c.erasure)
        .order_by(requests.c.id)
    )
    if numbers is not None:
        query = query.where(requests.c.id.in_(numbers))
    found = connection.execute(query).all()
    ids = members.ids_of([row.client for row in found if row.client])
    history = events_of(connection, members.keyring, numbers)
    return tuple(_request(row, ids.get(row.client), history.get(row.id, ())) for row in found)


def open_numbers(connection: sa.Connection) -> list[int]:
    """The numbers of the requests about which something is still to be done, in order."""
    query = sa.select(requests.c.id).outerjoin(erasures, erasures.c.id == requests.c.erasure)
    unanswered = sa.or_(requests.c.erasure.is_(None), erasures.c.state != RequestState.ANSWERED.value)
    return list(connection.execute(query.where(in_force(), unanswered).order_by(requests.c.id)).scalars())


def judged_requests_of(
    connection: sa.Connection, members: Members, leavers: Sequence[int]
) -> tuple[JudgedRequest, ...]:
    """The requests, with their verdicts, of clients (by their numbers), in the order in which they were placed.

    Whoever is not in the keyring any more has its proof already.
    """
    return _judged(connection, members, requests.c.client.in_(leavers))


def judged_together(connection: sa.Connection, members: Members, erasure: int) -> tuple[JudgedRequest, ...]:
    """The requests that one erasure answers, of clients in the keyring, in the order in which they were placed."""
    return _judged(connection, members, requests.c.erasure == erasure)


def _judged(
    connection: sa.Connection, members: Members, which: sa.ColumnElement[bool]
) -> tuple[JudgedRequest, ...]:
    earlier = requests.alias()
    index = sa.select(sa.func.count()).where(earlier.c.erasure == requests.c.erasure, earlier.c.id < requests.c.id)
    query = (
        sa.select(
            requests.c.id.label("number"),
            requests.c.client,
            requests.c.erasure,
            index.scalar_subquery().label("index"),
            requests.c.verdict,
            requests.c.nonce,
            requests.c.records,
            requests.c.word,
            requests.c.asked_at,
            erasures.c.opened_at.label("judged_at"),
            erasures.c.rollback_to,
            erasures.c.target,
        )
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(which)
        .order_by(requests.c.id)
    )
    found = connection.execute(query).all()
    known = members.keyring.by_number([row.client for row in found if row.client])
    judged = []
    for row in found:
        if row.client in known:
            columns = {name: value for name, value in row._mapping.items() if name not in ("nonce", "records")}
            records = None if row.records is None else members.keyring.requested_records(row.client, row.nonce)
            judged.append(
                JudgedRequest(
                    **columns,
                    openings=members.keyring.openings(row.client),
                    salts=members.request_salts(row.client, row.nonce),
                    records=records,
                )
            )
    return tuple(judged)


def numbers_to_judge(connection: sa.Connection, keyring: Keyring, ids: Sequence[str]) -> list[int]:
    """The numbers of those of these clients who are not withdrawn yet; an unknown one is refused."""
    numbers = []
    for client in dict.fromkeys(ids):
        refuse_broken_text(client)
        found = keyring.find(client)
        if found is None:
            raise _unknown(keyring, client)
        numbers.append(found.number)
    withdrawn = _withdrawn(connection)
    return [number for number in numbers if number not in withdrawn]


def latest_stream_round(connection: sa.Connection) -> int:
    """The last round after which a request stream placed a request; 0 where there is none."""
    return connection.execute(sa.select(sa.func.max(requests.c.stream_round))).scalar() or 0


def _request(row: sa.Row[Any], client: str | None, history: tuple[RequestEvent, ...]) -> ErasureRequest:
    approval = Approval.NOT_NEEDED if row.approved_at is None else Approval.APPROVED
    if row.erasure is None:
        return ErasureRequest(
            number=row.id,
            client=client,
            asked_at=datetime.fromisoformat(row.asked_at),
            state=_unjudged_state(row),
            remark=row.note,
            cancelled_at=None if row.cancelled_at is None else datetime.fromisoformat(row.cancelled_at),
            records=row.records,
            approval=approval if row.refused_at is None else Approval.REFUSED,
            history=history,
        )
    kind = VerdictKind(row.verdict)
    back_to = row.rollback_to if row.broken is not None else None
    rollback = Verdict(VerdictKind.ROLLBACK, row.broken or row.rollback_to, back_to, row.criterion)
    return ErasureRequest(
        number=row.id,
        client=client,
        asked_at=datetime.fromisoformat(row.asked_at),
        state=RequestState(row.state),
        verdict=rollback if kind is VerdictKind.ROLLBACK else Verdict(kind),
        cost=(
            Cost(row.rounds, row.client_epochs, row.exchanged_bytes, row.seconds)
            if kind is VerdictKind.ROLLBACK
            else Cost()
        ),
        answered_at=None if row.finished_at is None else datetime.fromisoformat(row.finished_at),
        remark="; ".join(filter(None, (row.note, row.remark))),
        approximate=kind is VerdictKind.ROLLBACK and not MECHANISMS[row.mechanism].exact and row.rounds > 0,
        records=row.records,
        approval=approval,
        history=history,
    )


def _unjudged_state(row: sa.Row[Any]) -> RequestState:
    if row.cancelled_at is not None:
        return RequestState.CANCELLED
    if row.refused_at is not None:
        return RequestState.REFUSED
    return RequestState.WAITING if row.paused_at is None else RequestState.PAUSED
