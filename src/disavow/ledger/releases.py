"""Which models left the run, and who received them, sealed under the keyring's secret (`sealed_texts`).

A rollback undoes a round and all that stand after it, so a model is superseded once the newest round in it is
undone, also where it is the mean of several.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from disavow.domain import Release
from disavow.errors import LedgerError
from disavow.ledger.keyring import Keyring
from disavow.ledger.rows import release_checksum, time_to_text
from disavow.ledger.run_state import count_commits
from disavow.ledger.schema import erasures, releases, rounds
from disavow.ledger.sealed_texts import LONGEST_NAME, open_texts, refuse_text, seal_texts


def note_release(
    connection: sa.Connection,
    keyring: Keyring,
    *,
    digest: str,
    newest: int,
    after: str,
    averaged: int,
    to: str,
    at: datetime,
) -> int:
    """Write down that a model is given to somebody. It counts as a commit of the run.

    Args:
        connection: The ledger, for writing.
        keyring: The run's keyring.
        digest: The SHA-256 of the file.
        newest: The number of the newest round in it; 0 for the initial model.
        after: The digest of the model that this round produced.
        averaged: Of how many rounds' models it is the mean.
        to: Who receives it.
        at: When.

    Returns:
        The number of the release.

    Raises:
        ConfigError: The name of who receives it cannot be kept.
        TextNamesClient: It contains the id of a client.

    """
    refuse_text(keyring, "the name of who receives the model", to, longest=LONGEST_NAME)
    # by its model, too: a rollback may have undone the round since the model was read
    made = sa.select(rounds.c.id).where(rounds.c.number == newest, rounds.c.after == after)
    found = connection.execute(made.order_by(rounds.c.id.desc()).limit(1)).scalar()
    if found is None and newest:
        raise LedgerError(f"no round {newest} of this run produced the model {after}")
    row: dict[str, Any] = {
        "digest": digest,
        "round_id": found,
        "averaged": averaged,
        "released_at": time_to_text(at),
    }
    row["sealed"] = seal_texts(keyring, _place(row), to)
    noted = releases.insert().values(**row, checksum=release_checksum(row)).returning(releases.c.id)
    number: int = connection.execute(noted).scalar_one()
    count_commits(connection)
    return number


def listed(connection: sa.Connection, keyring: Keyring) -> tuple[Release, ...]:
    """All releases in their order; without the keyring nobody is named."""
    query = (
        sa.select(releases, rounds.c.number.label("round"), rounds.c.standing, erasures.c.opened_at)
        .outerjoin(rounds, rounds.c.id == releases.c.round_id)
        .outerjoin(erasures, erasures.c.id == rounds.c.superseded_by)
        .order_by(releases.c.id)
    )
    readable = keyring.exists
    return tuple(
        Release(
            row.id,
            row.digest,
            row.round or 0,
            row.averaged,
            datetime.fromisoformat(row.released_at),
            recipient_of(row, keyring) if readable else None,
            datetime.fromisoformat(row.opened_at) if row.standing is False else None,
        )
        for row in connection.execute(query)
    )


def recipient_of(row: sa.Row[Any], keyring: Keyring) -> str:
    """Who received a model.

    Raises:
        IntegrityError: What is sealed is not what was recorded.

    """
    [recipient] = open_texts(keyring, _place(row._mapping), row.sealed)
    return recipient


def _place(row: Any) -> str:
    return f"release of {row['digest']} {row['released_at']}"
