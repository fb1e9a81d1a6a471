"""Check the history of requests, the releases, and what tombstones say of those who returned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from disavow.domain import EventKind, RequestEvent, RequestState
from disavow.errors import ConfigError, IntegrityError
from disavow.ledger import rows
from disavow.ledger.findings import Checked, Finding, missing_rows
from disavow.ledger.keyring import Keyring
from disavow.ledger.readmission import check_readmissions
from disavow.ledger.releases import recipient_of
from disavow.ledger.request_events import SET_BY, read_event
from disavow.ledger.schema import erasures, releases, request_events, requests


def check_histories(checked: Checked) -> Iterator[Finding]:
    """Every event is as it was recorded, and every request is as its events have left it."""
    yield from missing_rows(checked, request_events)
    keyring = _usable(checked.members.keyring)
    histories: defaultdict[int, list[RequestEvent]] = defaultdict(list)
    for row in checked.connection.execute(sa.select(request_events).order_by(request_events.c.id)):
        where = f"event {row.id} of request {row.request}"
        if rows.request_event_checksum(dict(row._mapping)) != row.checksum:
            yield Finding(where, "is not what was recorded: it has another checksum")
        try:
            histories[row.request].append(read_event(row, keyring))
        except IntegrityError as error:
            yield Finding(where, str(error))
            histories[row.request].append(read_event(row, None))
    query = sa.select(requests, erasures.c.state).outerjoin(erasures, erasures.c.id == requests.c.erasure)
    for row in checked.connection.execute(query.order_by(requests.c.id)):
        yield from _check_request(row, histories[row.id])


def _check_request(row: sa.Row[Any], history: list[RequestEvent]) -> Iterator[Finding]:
    where = f"request {row.id}"
    kinds = [event.kind for event in history]
    received = [rows.time_to_text(event.at) for event in history if event.kind is EventKind.RECEIVED]
    if kinds[:1] != [EventKind.RECEIVED] or received != [row.asked_at]:
        yield Finding(where, "its history does not begin with when it was asked")
    for column, expected in _columns_after(history).items():
        if getattr(row, column) != expected:
            yield Finding(where, f"its {column} is not what its history says")
    if (row.erasure is not None) != (EventKind.JUDGED in kinds):
        yield Finding(where, "its history and its erasure differ in whether it was judged")
    if (row.state == RequestState.ANSWERED) != (EventKind.ANSWERED in kinds):
        yield Finding(where, "its history and its erasure differ in whether it was answered")


def _columns_after(history: list[RequestEvent]) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(SET_BY.values())
    for event in history:
        if event.kind in SET_BY:
            found[SET_BY[event.kind]] = rows.time_to_text(event.at)
        elif event.kind is EventKind.RESUMED:
            found["paused_at"] = None
    return found


def check_releases(checked: Checked) -> Iterator[Finding]:
    """Every release is as it was recorded."""
    yield from missing_rows(checked, releases)
    keyring = _usable(checked.members.keyring)
    for row in checked.connection.execute(sa.select(releases).order_by(releases.c.id)):
        where = f"release {row.id}"
        if rows.release_checksum(dict(row._mapping)) != row.checksum:
            yield Finding(where, "is not what was recorded: it has another checksum")
        elif keyring is not None:
            try:
                recipient_of(row, keyring)
            except IntegrityError as error:
                yield Finding(where, str(error))


def check_returns(checked: Checked) -> Iterator[Finding]:
    """What tombstones say of those who returned can be read."""
    keyring = _usable(checked.members.keyring)
    for fault in () if keyring is None else check_readmissions(keyring):
        yield Finding("keyring", fault)


def _usable(keyring: Keyring) -> Keyring | None:
    """The keyring, if it is there and has its secret; what is wrong with it is said elsewhere."""
    try:
        return keyring if keyring.secret else None
    except ConfigError:
        return None
