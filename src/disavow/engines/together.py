"""Several federations in step: their clients train in one call, their rounds are closed side by side.

Experiments and audits run the same small federation many times, with other settings, seeds or clients. One call for
all of them keeps the hardware busy where one federation alone would leave it waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from disavow.domain import Round
from disavow.engines.vectorised import VectorisedEngine
from disavow.federation.round import Conduct, close_round, open_round
from disavow.ledger import Ledger

_CLOSING = 3
"""Rounds that are closed at a time. Disk and hashes leave the interpreter to others, but more are no faster."""


@dataclass(frozen=True, eq=False)
class Federation:
    """One of those that train together. All their engines share one trainer."""

    ledger: Ledger
    engine: VectorisedEngine
    conduct: Conduct


def run_rounds(federations: Sequence[Federation]) -> list[Round]:
    """The next round of each, as `run_round` would run it for each alone.

    Where one is refused, the others' rounds are recorded all the same, and the refusal is raised after that.
    """
    opened = [open_round(each.ledger, each.conduct) for each in federations]
    asks = [
        each.engine.ask(opening.model, clients, opening.number)
        for each, (opening, clients) in zip(federations, opened, strict=True)
    ]
    updates = federations[0].engine.trainer.train(asks) if asks else []
    with ThreadPoolExecutor(_CLOSING) as threads:
        closing = [
            threads.submit(close_round, each.ledger, opening, answered, each.conduct)
            for each, (opening, _), answered in zip(federations, opened, updates, strict=True)
        ]
    return [each.result() for each in closing]
