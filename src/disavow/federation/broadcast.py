"""① Broadcast: which round it is, which model goes out, and to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import torch

from disavow.config import participants_of
from disavow.federation.randomness import derive
from disavow.federation.vectors import Model
from disavow.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The model that opens a round, with its digest."""

    number: int
    attempt: int
    model: Model
    digest: str
    opened_at: datetime


def broadcast(ledger: Ledger, at: datetime) -> Broadcast:
    """The next round's number and attempt, and the model the ledger says it starts from."""
    number, attempt = ledger.next_round()
    vector = torch.from_numpy(ledger.model_before(number))
    return Broadcast(number, attempt, Model(ledger.layout, vector), ledger.digest_before(number), at)


def participants(
    clients: Sequence[str], *, fraction: float, seed: int, round_number: int, at_least: int = 1
) -> tuple[str, ...]:
    """Those of `clients` who take part: the ones with the lowest hash of seed, round and id, sorted by id.

    A hash, not a draw: when a client leaves, at most one other participant changes.

    >>> participants(["a", "b", "c", "d"], fraction=0.5, seed=1, round_number=1)
    ('b', 'c')
    """
    count = participants_of(len(clients), fraction, at_least)
    if count >= len(clients):
        return tuple(sorted(clients))
    ranked = sorted(clients, key=lambda client: (derive("participation", seed, round_number, client), client))
    return tuple(sorted(ranked[:count]))
