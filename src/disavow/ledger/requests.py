"""Erasure requests as rows: placed by anyone, found again by tombstone, listed with what became of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import Cost, ErasureRequest, RequestState, Verdict, VerdictKind
from disavow.domain.strategies import MECHANISMS
from disavow.errors import LedgerError, RunError, UnknownClient
from disavow.ledger.keys import another_key, fingerprint, tombstone
from disavow.ledger.rows import request_checksum, time_to_text
from disavow.ledger.schema import clients, erasures, requests, run


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
        rounds_salt: Opens the log's commitment to the rounds it was in.
        client_salt: Opens the log's commitment to who asked.

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
    rounds_salt: bytes | None
    client_salt: bytes | None


def place(
    connection: sa.Connection,
    ids: Sequence[str],
    *,
    key: bytes,
    at: datetime,
    stream_round: int | None = None,
    openings: str | None = None,
    note: str = "",
) -> tuple[int, ...]:
    """Make requests wait; their numbers. Asking twice gives the number of the first request, unless cancelled.

    A client that the ledger has never known is refused, and then nothing is placed. `openings` is the folder, as an
    absolute path, into which whoever answers is to write the openings; it is deleted with the client.
    `note` is said of the requests wherever they are listed.
    """
    run_id = bind_key(connection, key)
    numbers = []
    for client in ids:
        refuse_broken_text(client)
        stone = tombstone(key, run_id, client)
        number = connection.execute(_request_with(stone)).scalar()
        if number is None:
            found = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar()
            if found is None:
                raise UnknownClient(f"{client!r} is not a client of this run, and never was; nothing was changed")
            row = {
                "tombstone": stone,
                "asked_at": time_to_text(at),
                "stream_round": stream_round,
                "cancelled_at": None,
                "note": note,
            }
            placed = requests.insert().values(**row, client=found, checksum=request_checksum(row))
            number = connection.execute(placed.returning(requests.c.id)).scalar_one()
        if openings is not None:
            mine = requests.c.id == number, requests.c.client.is_not(None)  # once it is deleted, nothing is written
            connection.execute(requests.update().where(*mine).values(openings=openings))
        numbers.append(number)
    return tuple(numbers)


def cancel(connection: sa.Connection, client: str, *, at: datetime) -> int:
    """Cancel the request of a client that waits; its number. Cancelling twice is cancelling once.

    A request with a verdict stays: its client is withdrawn already.
    """
    refuse_broken_text(client)
    number = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar()
    if number is None:
        raise UnknownClient(f"{client!r} is not a client of this run, or has left it; nothing was changed")
    newest = sa.select(requests).where(requests.c.client == number).order_by(requests.c.id.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    if row is None:
        raise RunError(f"{client!r} has not asked to be forgotten: there is nothing to cancel")
    if row.erasure is not None:
        raise RunError(
            f"request {row.id} of {client!r} has its verdict and cannot be cancelled any more: {row.verdict}"
        )
    if row.cancelled_at is None:
        values = {**row._mapping, "cancelled_at": time_to_text(at)}
        connection.execute(
            requests.update()
            .where(requests.c.id == row.id)
            .values(cancelled_at=values["cancelled_at"], checksum=request_checksum(values))
        )
    cancelled: int = row.id
    return cancelled


def _request_with(stone: bytes) -> sa.Select[int]:
    """The number of the request with this tombstone; a cancelled one is as if it had not been placed."""
    return sa.select(requests.c.id).where(requests.c.tombstone == stone, requests.c.cancelled_at.is_(None))


def refuse_broken_text(client: str) -> None:
    """An id that is no proper text (bytes of a command line that are not UTF-8) can be no client's."""
    try:
        client.encode()
    except UnicodeEncodeError:
        raise UnknownClient(f"{client!r} is not a client of this run, and never was; nothing was changed") from None


def bind_key(connection: sa.Connection, key: bytes) -> str:
    """The run's id, once it is sure that it goes by this operator's key; the first one given is remembered."""
    known = connection.execute(sa.select(run.c.tombstone_key)).scalar_one()
    if known is None:
        connection.execute(run.update().values(tombstone_key=fingerprint(key)))
    return check_key(connection, key)


def check_key(connection: sa.Connection, key: bytes) -> str:
    """The run's id; or `LedgerError` where the run goes by another key than this one. Nothing is written."""
    row = connection.execute(sa.select(run.c.run_id, run.c.tombstone_key)).one()
    if row.tombstone_key not in (None, fingerprint(key)):
        raise another_key()
    run_id: str = row.run_id
    return run_id


def find(connection: sa.Connection, client: str, *, key: bytes) -> ErasureRequest | None:
    """The request of a client, if it has asked before and not cancelled it."""
    refuse_broken_text(client)
    run_id: str = connection.execute(sa.select(run.c.run_id)).scalar_one()
    number = connection.execute(_request_with(tombstone(key, run_id, client))).scalar()
    return None if number is None else listed(connection, [number])[0]


def refuse_leavers(
    connection: sa.Connection, ids: Sequence[str], key: bytes, *, listed: Collection[bytes] = ()
) -> None:
    """Raise if one of these has asked to be forgotten: it cannot come back under the same id.

    `listed` are tombstones that are kept outside the run.
    """
    run_id = bind_key(connection, key)
    for client in ids:
        stone = tombstone(key, run_id, client)
        if stone in listed or connection.execute(_request_with(stone)).first():
            raise LedgerError(f"{client!r} has asked to be forgotten and cannot return under this id")


def listed(connection: sa.Connection, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
    """Requests in the order in which they were placed: all, or those of these numbers."""
    query = (
        sa.select(requests, clients.c.id.label("client_id"), erasures)
        .outerjoin(clients, clients.c.number == requests.c.client)
        .outerjoin(erasures, erasures.c.id == requests.c.erasure)
        .order_by(requests.c.id)
    )
    if numbers is not None:
        query = query.where(requests.c.id.in_(numbers))
    return tuple(_request(row) for row in connection.execute(query))


def judged_requests_of(connection: sa.Connection, leavers: Sequence[int]) -> tuple[JudgedRequest, ...]:
    """The requests, with their verdicts, of clients (by their numbers), in the order in which they were placed."""
    return _judged(connection, requests.c.client.in_(leavers))


def judged_together(connection: sa.Connection, erasure: int) -> tuple[JudgedRequest, ...]:
    """The requests that one erasure answers, in the order in which they were placed."""
    return _judged(connection, requests.c.erasure == erasure)


def _judged(connection: sa.Connection, which: sa.ColumnElement[bool]) -> tuple[JudgedRequest, ...]:
    earlier = requests.alias()
    index = sa.select(sa.func.count()).where(earlier.c.erasure == requests.c.erasure, earlier.c.id < requests.c.id)
    query = (
        sa.select(
            requests.c.id.label("number"),
            requests.c.client,
            requests.c.erasure,
            index.scalar_subquery().label("index"),
            requests.c.verdict,
            requests.c.asked_at,
            erasures.c.opened_at.label("judged_at"),
            erasures.c.rollback_to,
            erasures.c.target,
            requests.c.openings,
            requests.c.rounds_salt,
            requests.c.client_salt,
        )
        .join(erasures, erasures.c.id == requests.c.erasure)
        .where(which)
        .order_by(requests.c.id)
    )
    return tuple(JudgedRequest(**row._mapping) for row in connection.execute(query))


def numbers_to_judge(connection: sa.Connection, ids: Sequence[str]) -> list[int]:
    """The numbers of those of these clients who are not withdrawn yet; an unknown one is refused."""
    numbers = []
    for client in dict.fromkeys(ids):
        refuse_broken_text(client)
        found = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar()
        if found is None:
            raise UnknownClient(f"{client!r} is not a client of this run, or has left it; nothing was changed")
        numbers.append(found)
    gone = sa.select(requests.c.client).where(requests.c.client.in_(numbers), requests.c.erasure.is_not(None))
    withdrawn = set(connection.execute(gone).scalars())
    return [number for number in numbers if number not in withdrawn]


def latest_stream_round(connection: sa.Connection) -> int:
    """The last round after which a request stream placed a request; 0 where there is none."""
    return connection.execute(sa.select(sa.func.max(requests.c.stream_round))).scalar() or 0


def _request(row: sa.Row[Any]) -> ErasureRequest:
    if row.erasure is None:
        return ErasureRequest(
            number=row.id,
            client=row.client_id,
            asked_at=datetime.fromisoformat(row.asked_at),
            state=RequestState.WAITING if row.cancelled_at is None else RequestState.CANCELLED,
            remark=row.note,
            cancelled_at=None if row.cancelled_at is None else datetime.fromisoformat(row.cancelled_at),
        )
    kind = VerdictKind(row.verdict)
    back_to = row.rollback_to if row.broken is not None else None
    rollback = Verdict(VerdictKind.ROLLBACK, row.broken or row.rollback_to, back_to, row.criterion)
    return ErasureRequest(
        number=row.id,
        client=row.client_id,
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
    )
