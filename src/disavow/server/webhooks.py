"""Webhooks: who wants to hear of what, and what is still to be sent to whom.

An event is one row for each webhook that wants it, written in the transaction that notes the change it is about: so
none is lost, and none is sent of a change that did not happen. `deliveries` sends them.
"""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from disavow.errors import BadRequest, NotFound
from disavow.server.state import State

EVENTS = (
    "request.received",
    "request.waiting",
    "request.paused",
    "request.rebuilding",
    "request.deleting",
    "request.answered",
    "request.purged",
    "request.cancelled",
    "request.refused",
)
ALL = "*"
_MOST = 100


def add(state: State, url: str, events: Sequence[str], *, now: float, private: bool) -> dict[str, Any]:
    """Add a webhook.

    Args:
        state: The service's database.
        url: Where events are sent.
        events: Which ones; "*" for all.
        now: The present time.
        private: Whether it may be a private address, and without TLS.

    Returns:
        The webhook, with the secret that its deliveries are signed with.

    Raises:
        BadRequest: The URL or an event cannot be used, or there are too many.

    """
    check_url(url, private=private)
    unknown = sorted(set(events) - {*EVENTS, ALL})
    if unknown:
        raise BadRequest(f"events: there is no such event; allowed: {ALL}, {', '.join(EVENTS)}")
    salt = secrets.token_bytes(32)
    with state.writing() as connection:
        [count] = connection.execute("SELECT count(*) FROM webhooks WHERE removed_at IS NULL").fetchone()
        if count >= _MOST:
            raise BadRequest(f"there are {count} webhooks already; allowed: {_MOST}")
        made = connection.execute(
            "INSERT INTO webhooks (url, salt, events, created_at) VALUES (?, ?, ?, ?)",
            (url, salt, ",".join(dict.fromkeys(events)), now),
        )
        number = made.lastrowid
    return {"id": number, "url": url, "events": list(dict.fromkeys(events)), "secret": secret_of(state, salt)}


def secret_of(state: State, salt: bytes) -> str:
    """Derive what the deliveries of a webhook are signed with: the database alone does not tell it.

    Args:
        state: The service's database, with its key.
        salt: The webhook's.

    """
    return base64.urlsafe_b64encode(state.keyed_hash("webhook", salt)).rstrip(b"=").decode()


def listed(state: State) -> list[dict[str, Any]]:
    """List webhooks, without their secrets."""
    rows = state.rows("SELECT * FROM webhooks WHERE removed_at IS NULL ORDER BY id")
    return [{"id": row["id"], "url": row["url"], "events": row["events"].split(",")} for row in rows]


def remove(state: State, number: int, *, now: float) -> None:
    """Remove a webhook; what waits to be sent to it is dropped.

    Raises:
        NotFound: There is none.

    """
    with state.writing() as connection:
        removed = connection.execute(
            "UPDATE webhooks SET removed_at = ?, salt = x'' WHERE id = ? AND removed_at IS NULL", (now, number)
        )
        if removed.rowcount == 0:
            raise NotFound("there is no such webhook")
        connection.execute("DELETE FROM deliveries WHERE webhook = ? AND next_at IS NOT NULL", (number,))


def deliveries(state: State, *, dead: bool, most: int) -> list[dict[str, Any]]:
    """List deliveries, the newest first; with `dead`, those that were given up."""
    which = "WHERE next_at IS NULL AND delivered_at IS NULL" if dead else ""
    rows = state.rows(f"SELECT * FROM deliveries {which} ORDER BY id DESC LIMIT ?", (most,))  # noqa: S608
    return [delivery_view(row) for row in rows]


def delivery_view(row: sqlite3.Row) -> dict[str, Any]:
    """Show a delivery; times in seconds since 1970."""
    names = ("id", "webhook", "url", "event", "attempts", "created_at", "next_at", "delivered_at", "failure")
    outcome = "delivered" if row["delivered_at"] else "waiting" if row["next_at"] else "dead"
    return {**{name: row[name] for name in names}, "outcome": outcome}


def retry(state: State, number: int, *, now: float) -> dict[str, Any]:
    """Try a delivery that was given up again.

    Raises:
        NotFound: There is none that was given up.

    """
    with state.writing() as connection:
        changed = connection.execute(
            "UPDATE deliveries SET next_at = ?, attempts = 0 "
            "WHERE id = ? AND next_at IS NULL AND delivered_at IS NULL",
            (now, number),
        )
        if changed.rowcount == 0:
            raise NotFound("there is no such delivery among those that were given up")
        row: sqlite3.Row = connection.execute("SELECT * FROM deliveries WHERE id = ?", (number,)).fetchone()
    return delivery_view(row)


def enqueue(connection: sqlite3.Connection, event: str, document: Mapping[str, Any], *, now: float) -> None:
    """Have an event sent to every webhook that wants it.

    Args:
        connection: The transaction that notes the change.
        event: What happened.
        document: What is sent of it; it names no client.
        now: The present time.

    """
    body = json.dumps({"event": event, **document})
    for row in connection.execute("SELECT id, url, events FROM webhooks WHERE removed_at IS NULL").fetchall():
        if {event, ALL} & set(row["events"].split(",")):
            enqueue_to(connection, row["url"], event, body, now=now, webhook=row["id"])


def enqueue_to(
    connection: sqlite3.Connection, url: str, event: str, body: str, *, now: float, webhook: int | None = None
) -> None:
    """Have one body sent to one URL."""
    connection.execute(
        "INSERT INTO deliveries (webhook, url, event, body, created_at, next_at) VALUES (?, ?, ?, ?, ?, ?)",
        (webhook, url, event, body, now, now),
    )


def check_url(url: str, *, private: bool) -> None:
    """Refuse a URL to which nothing may be sent.

    Raises:
        BadRequest: It is no URL, without TLS, or has a user and password in it.

    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    schemes = ("https", "http") if private else ("https",)
    if not host or parts.scheme not in schemes or parts.username is not None or not url.isprintable() or " " in url:
        raise BadRequest(f"this URL cannot be called; allowed: {' and '.join(schemes)}, without user and password")
