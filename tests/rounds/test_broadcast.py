from __future__ import annotations

from pathlib import Path

import torch

from disavow.rounds.round import close_round
from tests.rounds.builders import (
    OPTIONS,
    POLICY,
    gaussian,
    layout_of_size,
    ledger_of,
    opened,
    updates_of,
)


def test_the_first_broadcast_is_the_initial_model_and_the_next_what_the_round_made(tmp_path: Path) -> None:
    updates = updates_of(gaussian(6, 4))
    initial = torch.arange(4.0)
    with ledger_of(tmp_path / "run", updates.clients, layout_of_size(4), POLICY, initial) as ledger:
        opening = opened(ledger)
        assert (opening.number, opening.attempt, opening.digest) == (1, 1, ledger.initial_model)
        assert torch.equal(opening.model.vector, initial)
        recorded = close_round(ledger, opening, updates, OPTIONS)
        following = opened(ledger)
        assert (following.number, following.attempt, following.digest) == (2, 1, recorded.after)
        assert torch.equal(following.model.vector, torch.from_numpy(ledger.model_after(1)))
