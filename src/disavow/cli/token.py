"""`disavow token`: API tokens and log-in links of the service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.domain import escaped
from disavow.errors import ConfigError
from disavow.server import tokens
from disavow.server.settings import state_folder
from disavow.server.state import State

_DAY_SECONDS = 86_400
_LONGEST_NAME = 100


def create(
    runs: Path,
    state: Path | None,
    *,
    name: str,
    roles: list[str],
    only: list[str] | None,
    days: int,
    as_json: bool,
) -> None:
    """Make a token and print it."""
    if not 0 < len(name.strip()) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"--name is {name!r}; allowed: up to {_LONGEST_NAME} printable characters")
    wanted, now = tokens.roles_of(roles), time.time()
    with _opened(runs, state) as opened:
        text, token = tokens.create(
            opened,
            name=name.strip(),
            roles=wanted,
            runs=only or None,
            now=now,
            expires_at=now + days * _DAY_SECONDS if days else None,
        )
    if as_json:
        print_json({"token": text, **token.to_json()})
    else:
        results().print(text)


def list_tokens(runs: Path, state: Path | None, *, as_json: bool) -> None:
    """List tokens."""
    with _opened(runs, state) as opened:
        found = tokens.listed(opened)
    if as_json:
        print_json({"tokens": [token.to_json() for token in found]})
        return
    console = results()
    if not found:
        console.print("no tokens")
        return
    console.print("  id  prefix        expires     last used   roles, runs, name", style="bold")
    for token in found:
        expires = "revoked" if token.revoked_at else _day(token.expires_at)
        scope = "all runs" if token.runs is None else ", ".join(sorted(token.runs))
        granted = f"{', '.join(sorted(token.roles))}; {scope}; {escaped(token.name)}"
        console.print(f"{token.id:4d}  {token.prefix:12s}  {expires:10s}  {_day(token.used_at):10s}  {granted}")


def revoke(runs: Path, state: Path | None, number: int, *, as_json: bool) -> None:
    """Revoke a token."""
    with _opened(runs, state) as opened:
        token = tokens.revoke(opened, number, now=time.time())
    if as_json:
        print_json(token.to_json())
    else:
        results().print(f"token {token.id} ({token.prefix}…) is revoked")


def link(runs: Path, state: Path | None, url: str, *, as_json: bool) -> None:
    """Print a link that logs in once."""
    with _opened(runs, state) as opened:
        text = f"{url.rstrip('/')}/login?token={tokens.new_link(opened, now=time.time())}"
    if as_json:
        print_json({"login": text})
    else:
        results().print(text)


@contextmanager
def _opened(runs: Path, state: Path | None) -> Iterator[State]:
    folder = state_folder(runs, state)
    if state is None and not runs.is_dir():
        raise ConfigError(f"--runs is {runs}; allowed: a folder that exists, or --state")
    opened = State(folder)
    try:
        yield opened
    finally:
        opened.close()


def _day(seconds: float | None) -> str:
    return "never" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
