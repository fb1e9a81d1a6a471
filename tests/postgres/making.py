"""Runs in a PostgreSQL database."""

from __future__ import annotations

import json
from pathlib import Path

from disavow.ledger import Ledger
from tests.ledger.making import IDS, LAYOUT, MOMENT, POLICY, vector
from tests.postgres_server import DATABASE, Server


def create(directory: Path, url: str, *, keys: Path | None = None) -> Ledger:
    """A new ledger whose initial model is `vector(0)`."""
    return Ledger.create(
        directory,
        policy=POLICY,
        layout=LAYOUT,
        initial=vector(0),
        clients=IDS,
        config="",
        created_by="tests",
        at=MOMENT,
        keys=keys,
        database=url,
    )


def schema_of(directory: Path) -> str:
    """The schema of a run."""
    found: str = json.loads((directory / "database.json").read_text())["schema"]
    return found


def schemas(server: Server) -> set[str]:
    """All schemas of runs."""
    query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'disavow%'"
    return set(server.psql(query, DATABASE).split())


def by_hand(server: Server, directory: Path, statement: str) -> str:
    """Change the rows of a run as the administrator, foreign keys switched off."""
    before = f"SET session_replication_role = replica; SET search_path TO {schema_of(directory)}; "
    return server.psql(before + statement, DATABASE)
