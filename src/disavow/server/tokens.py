"""API tokens, sessions and log-in links: 256 random bits each, of which only the SHA-256 is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from disavow.errors import ConfigError, NotAuthenticated
from disavow.server.access import STAFF, Identity, Role
from disavow.server.state import State

PREFIX = "dsv_"
_SHOWN = 12
"""Letters of a token that are kept, to tell it from others."""

_SECRET_BYTES = 32
_NOTED_SECONDS = 60.0
"""How exactly the last use of a token is known: not every call writes."""

SESSION_SECONDS = 8 * 3600.0
LINK_SECONDS = 15 * 60.0
LINK, PENDING = "link", "oidc"


@dataclass(frozen=True)
class Token:
    """A token as it is listed; the token itself is known only to whoever holds it."""

    id: int
    prefix: str
    name: str
    roles: frozenset[Role]
    runs: frozenset[str] | None
    created_at: float
    expires_at: float | None
    used_at: float | None
    revoked_at: float | None

    @property
    def identity(self) -> Identity:
        """Who uses it."""
        return Identity(self.name, self.roles, self.runs, key=f"token {self.id}")

    def noted(self, now: float) -> bool:
        """Whether it is known well enough when it was used last."""
        return self.used_at is not None and self.used_at >= now - _NOTED_SECONDS

    def to_json(self) -> dict[str, Any]:
        """The same for machines; times in seconds since 1970."""
        return {
            "id": self.id,
            "prefix": self.prefix,
            "name": self.name,
            "roles": sorted(self.roles),
            "runs": None if self.runs is None else sorted(self.runs),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "last_used_at": self.used_at,
            "revoked_at": self.revoked_at,
        }


def roles_of(names: Collection[str]) -> frozenset[Role]:
    """Read roles of people.

    Raises:
        ConfigError: There is no such role, or it is a client's, who has a node key instead.

    """
    allowed = ", ".join(sorted(STAFF))
    try:
        found = frozenset(Role(name) for name in names)
    except ValueError:
        raise ConfigError(f"--role is {', '.join(names)}; allowed: {allowed}") from None
    if not found or Role.CLIENT in found:
        raise ConfigError(f"--role is {', '.join(names) or 'not set'}; allowed: {allowed}")
    return found


def create(
    state: State,
    *,
    name: str,
    roles: frozenset[Role],
    runs: Collection[str] | None,
    now: float,
    expires_at: float | None,
) -> tuple[str, Token]:
    """Make a token; the token itself, which cannot be had again, and what is kept of it."""
    text = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    values = (text[:_SHOWN], _hash(text), name, _joined(roles), _joined(runs), now, expires_at)
    with state.writing() as connection:
        made = connection.execute(
            "INSERT INTO tokens (prefix, hash, name, roles, runs, created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        number = made.lastrowid
    found = state.row("SELECT * FROM tokens WHERE id = ?", (number,))
    assert found is not None  # noqa: S101 - it was inserted above
    return text, _token(found)


def listed(state: State) -> list[Token]:
    """List all tokens, revoked and expired ones too."""
    return [_token(row) for row in state.rows("SELECT * FROM tokens ORDER BY id")]


def revoke(state: State, number: int, *, now: float) -> Token:
    """Revoke a token, from the next call on. Revoking twice is revoking once.

    Raises:
        ConfigError: There is no such token.

    """
    with state.writing() as connection:
        connection.execute("UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, number))
    found = state.row("SELECT * FROM tokens WHERE id = ?", (number,))
    if found is None:
        raise ConfigError(f"there is no token {number}; `disavow token list` lists them")
    return _token(found)


def identify(state: State, text: str, *, now: float) -> Token:
    """Tell whose token this is.

    Raises:
        NotAuthenticated: Nobody's, or it was revoked or has expired.

    """
    wanted = _hash(text)
    row = state.row("SELECT * FROM tokens WHERE hash = ?", (wanted,))
    if row is None or not hmac.compare_digest(row["hash"], wanted):
        raise NotAuthenticated("this token is not known")
    if row["revoked_at"] is not None:
        raise NotAuthenticated("this token was revoked")
    if row["expires_at"] is not None and row["expires_at"] <= now:
        raise NotAuthenticated("this token has expired")
    return _token(row)


def note_use(state: State, token: Token, *, now: float) -> None:
    """Note that a token is used; it waits for the disk."""
    with state.writing() as connection:
        connection.execute("UPDATE tokens SET used_at = ? WHERE id = ?", (now, token.id))


# -- sessions and log-in links -----------------------------------------------------------------------------------


def new_link(state: State, *, now: float) -> str:
    """Make what a single-use log-in link carries; whoever opens it has all roles of staff."""
    return remember(state, LINK, _joined(STAFF) or "", now=now)


def remember(state: State, kind: str, value: str, *, now: float) -> str:
    """Remember something for one log-in; the secret by which `recall` gives it back, once."""
    text = secrets.token_urlsafe(_SECRET_BYTES)
    with state.writing() as connection:
        connection.execute("INSERT INTO logins VALUES (?, ?, ?, ?)", (_hash(text), kind, value, now + LINK_SECONDS))
    return text


def recall(state: State, kind: str, text: str, *, now: float) -> str:
    """Give back what `remember` has kept, and forget it.

    Raises:
        NotAuthenticated: Nothing is remembered under this, or it was given back before, or it is too old.

    """
    with state.writing() as connection:
        found = connection.execute(
            "DELETE FROM logins WHERE hash = ? AND kind = ? AND expires_at > ? RETURNING value",
            (_hash(text), kind, now),
        ).fetchone()
    if found is None:
        raise NotAuthenticated("this log-in link was used before, or has expired")
    value: str = found["value"]
    return value


def new_session(
    state: State, *, name: str, roles: frozenset[Role], now: float, runs: Collection[str] | None = None
) -> str:
    """Begin a session; what its cookie carries."""
    text = secrets.token_urlsafe(_SECRET_BYTES)
    values = (_hash(text), name, _joined(roles), _joined(runs), now + SESSION_SECONDS)
    with state.writing() as connection:
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", values)
    return text


def identify_session(state: State, text: str, *, now: float) -> Identity:
    """Tell whose session this is.

    Raises:
        NotAuthenticated: Nobody's, or it has ended.

    """
    wanted = _hash(text)
    row = state.row("SELECT * FROM sessions WHERE hash = ? AND expires_at > ?", (wanted, now))
    if row is None or not hmac.compare_digest(row["hash"], wanted):
        raise NotAuthenticated("this session has ended; log in again")
    return Identity(row["name"], _roles(row), _runs(row), key=f"person {row['name']}")


def end_session(state: State, text: str) -> None:
    """End a session."""
    with state.writing() as connection:
        connection.execute("DELETE FROM sessions WHERE hash = ?", (_hash(text),))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _joined(values: Collection[str] | None) -> str | None:
    return None if values is None else ",".join(sorted(values))


def _roles(row: sqlite3.Row) -> frozenset[Role]:
    return frozenset(Role(name) for name in row["roles"].split(",") if name)


def _runs(row: sqlite3.Row) -> frozenset[str] | None:
    return None if row["runs"] is None else frozenset(row["runs"].split(","))


def _token(row: sqlite3.Row) -> Token:
    columns = {
        name: row[name] for name in ("id", "prefix", "name", "created_at", "expires_at", "used_at", "revoked_at")
    }
    return Token(roles=_roles(row), runs=_runs(row), **columns)
