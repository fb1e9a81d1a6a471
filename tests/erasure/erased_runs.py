"""Runs that clients leave, the verdicts that they get, and steps that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from disavow.domain import Verdict, VerdictKind
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from disavow.ledger.schema import erasures, rounds
from tests.erasure.mechanisms.contract import toy_settings, trained_toy
from tests.ledger.making import files_of

DENIABLE = Verdict(VerdictKind.DENIABLE)
NEVER = Verdict(VerdictKind.NEVER_PRESENT)


REAL: dict[str, Any] = {
    "seed": 11,
    "rounds": 4,
    "draws": "seeded",
    "data": {"clients": 10},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3, "sticky": False},
    "deniability": {"x": 2},
}
"""Digits; a fresh partition each round, so that rollbacks need not begin at round 1."""


def rollback(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def toy(directory: Path, **changed: Any) -> Federation:
    return trained_toy(directory, toy_settings(**changed))


def erasure_rows(ledger: Ledger) -> int:
    with ledger._connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(erasures)).scalar_one()


def reopened(directory: Path, *, keys: Path | None = None) -> Federation:
    return Federation.open(directory, keys=keys, write=True)


def secrets_of(ledger: Ledger, client: str) -> list[bytes]:
    """All that opens or links a client's slots: salts and update digests, of all recorded rounds."""
    with ledger._connect() as connection:
        headers = connection.execute(sa.select(rounds).order_by(rounds.c.id)).all()
        filled = [slot for row in headers for slot in ledger.members.of_round(connection, row).values()]
    return [value for slot in filled if slot.client.id == client for value in (slot.salt, slot.update_digest)]


def keys_of(ledger: Ledger, *clients: str) -> list[bytes]:
    """The keys that all pseudonyms of these clients derive from."""
    found = ledger.keyring.find_all(clients)
    assert set(found) == set(clients)
    return [key for client in clients for key in found[client].keys]


def files_holding(directory: Path, secret: bytes) -> list[str]:
    return [name for name, data in files_of(directory).items() if secret in data]


def forgotten(keyring: Keyring, keys: Sequence[bytes], *clients: str) -> bool:
    """Whether a keyring neither has the keys of clients any more, nor names them."""
    named = [path for client in clients for path in files_with(keyring.folder, client)]
    return not named and not any(files_holding(keyring.folder, key) for key in keys)


class Interrupted(Exception):
    pass


def failing(times: Sequence[int]) -> Callable[..., Any]:
    """A hook that raises on these calls, counted from 1."""
    count = 0

    def hook(*_: Any, **__: Any) -> None:
        nonlocal count
        count += 1
        if count in times:
            raise Interrupted

    return hook
