"""① Broadcast: which round it is, and which model goes out. To whom, `participation` says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import torch

from disavow.ledger import Ledger
from disavow.rounds.vectors import Model


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The model that opens a round, with its digest."""

    number: int
    attempt: int
    model: Model
    digest: str
    opened_at: datetime


def broadcast(ledger: Ledger, at: datetime) -> Broadcast:
    """Open the next round with the model that the ledger says it starts from.

    Args:
        ledger: The run.
        at: When the round opens.

    Returns:
        Number, attempt, model and its digest.

    """
    number, attempt = ledger.next_round()
    vector = torch.from_numpy(ledger.model_before(number))
    return Broadcast(number, attempt, Model(ledger.layout, vector), ledger.digest_before(number), at)
