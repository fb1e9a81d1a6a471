"""Requests page by page and counted: what a list shows must not take longer the more requests there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from disavow.domain import ErasureRequest, EventKind, RequestState
from disavow.ledger.members import Members
from disavow.ledger.requests import listed
from disavow.ledger.schema import erasures, request_events, requests

_STATE = sa.case(
    (requests.c.cancelled_at.is_not(None), RequestState.CANCELLED.value),
    (requests.c.refused_at.is_not(None), RequestState.REFUSED.value),
    (sa.and_(requests.c.erasure.is_(None), requests.c.paused_at.is_not(None)), RequestState.PAUSED.value),
    (requests.c.erasure.is_(None), RequestState.WAITING.value),
    else_=erasures.c.state,
)
"""The state of a request, as `requests.listed` tells it."""

_JOINED = requests.outerjoin(erasures, erasures.c.id == requests.c.erasure)


def page(
    connection: sa.Connection,
    members: Members,
    *,
    states: Collection[RequestState] | None = None,
    before: int | None = None,
    after: int | None = None,
    oldest_first: bool = False,
    most: int,
) -> tuple[ErasureRequest, ...]:
    """List requests, the newest first, or the oldest.

    Args:
        connection: To read through.
        members: Who the clients are.
        states: Only those in one of these states; None for all.
        before: Only those with lower numbers.
        after: Only those with higher numbers.
        oldest_first: Begin with the oldest.
        most: How many at most.

    """
    order = requests.c.id.asc() if oldest_first else requests.c.id.desc()
    query = sa.select(requests.c.id).select_from(_JOINED).order_by(order).limit(most)
    if states is not None:
        query = query.where(_STATE.in_([state.value for state in states]))
    if before is not None:
        query = query.where(requests.c.id < before)
    if after is not None:
        query = query.where(requests.c.id > after)
    numbers: Sequence[int] = connection.execute(query).scalars().all()
    found = listed(connection, members, numbers)
    return found if oldest_first else tuple(reversed(found))


def counts(connection: sa.Connection) -> dict[RequestState, int]:
    """Count requests by their state."""
    # not called "state": grouping goes by a column of that name before it goes by what is selected
    query = sa.select(_STATE.label("now"), sa.func.count()).select_from(_JOINED).group_by("now")
    found = {RequestState(state): count for state, count in connection.execute(query)}
    return {state: found.get(state, 0) for state in RequestState}


def last_changed(connection: sa.Connection, most: int) -> list[int]:
    """Give the numbers of the requests to which something happened last, at most so many, in no order."""
    last = sa.select(request_events.c.request).order_by(request_events.c.id.desc()).limit(most)
    return sorted(set(connection.execute(last).scalars()))


def purged_since(connection: sa.Connection, event: int) -> dict[int, int]:
    """Give the requests that were purged after an event: the number of the event that says so, by request.

    Args:
        connection: To read through.
        event: The number of the event.

    """
    columns = request_events.c
    query = sa.select(columns.request, columns.id).where(columns.id > event, columns.kind == EventKind.PURGED.value)
    return {row.request: row.id for row in connection.execute(query.order_by(columns.id))}


def states_from(connection: sa.Connection, first: int) -> dict[int, RequestState]:
    """Give the states of the requests from a number on, and nothing else of them: that is quick.

    Args:
        connection: To read through.
        first: The lowest number.

    """
    query = sa.select(requests.c.id, _STATE).select_from(_JOINED).where(requests.c.id >= first)
    return {number: RequestState(state) for number, state in connection.execute(query)}


def verdicts(connection: sa.Connection) -> dict[str, int]:
    """Count judged requests by their verdict."""
    query = sa.select(requests.c.verdict, sa.func.count()).where(requests.c.verdict.is_not(None))
    found = connection.execute(query.group_by(requests.c.verdict)).all()
    return {str(verdict): int(count) for verdict, count in found}


def rollbacks(connection: sa.Connection) -> int:
    """Count the erasures that undid rounds."""
    query = sa.select(sa.func.count()).select_from(erasures).where(erasures.c.rollback_to.is_not(None))
    return connection.execute(query).scalar_one()
