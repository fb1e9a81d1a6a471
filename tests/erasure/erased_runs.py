"""Runs that clients leave, the verdicts that they get, and steps that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from disavow.domain import Verdict, VerdictKind
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.ledger.schema import erasures
from tests.erasure.mechanisms.contract import start_toy, toy_settings

DENIABLE = Verdict(VerdictKind.DENIABLE)
NEVER = Verdict(VerdictKind.NEVER_PRESENT)


REAL: dict[str, Any] = {
    "seed": 11,
    "rounds": 4,
    "draws": "seeded",
    "data": {"clients": 10},
    "model": {"name": "resnet-mini"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3, "sticky": False},
    "deniability": {"x": 2},
}
"""Digits; a fresh partition each round, so that rollbacks need not begin at round 1."""


def rollback(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def toy(directory: Path, **changed: Any) -> Federation:
    run = start_toy(directory, toy_settings(**changed))
    run.train()
    return run


def erasure_rows(ledger: Ledger) -> int:
    with ledger._connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(erasures)).scalar_one()


def reopened(directory: Path, *, keys: Path | None = None) -> Federation:
    return Federation.open(directory, keys=keys, write=True)


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
