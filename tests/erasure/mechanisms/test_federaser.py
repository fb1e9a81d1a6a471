"""FedEraser: against the formula, on real files, one erasure after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from disavow.erasure.mechanisms import Mechanism, Step
from disavow.erasure.mechanisms.federaser import FedEraser, calibrate
from disavow.rounds.vectors import Model, Updates
from tests.erasure.mechanisms.contract import (
    MechanismContract,
    ToyEngine,
    ahead,
    leave,
    mates,
    start_toy,
    toy_settings,
)
from tests.erasure.mechanisms.federaser_runs import toy

Vector = npt.NDArray[np.float64]


class TestFedEraser(MechanismContract):
    """Approximate, and needs updates."""

    def make(self) -> Mechanism:
        return FedEraser()


def test_it_says_that_it_is_approximate() -> None:
    assert (FedEraser().name, FedEraser().exact) == ("federaser", False)


@pytest.mark.parametrize(
    ("share", "epochs", "due"), [(0.5, 3, 2), (0.5, 2, 1), (0.5, 1, 1), (0.1, 3, 1), (1.0, 3, 3), (0.34, 3, 2)]
)
def test_a_calibration_takes_a_share_of_the_epochs_rounded_up(
    tmp_path: Path, share: float, epochs: int, due: int
) -> None:
    with toy(tmp_path / "run", calibration=share, rounds=3, training={"epochs": epochs}) as run:
        assert ahead(run, first=1, last=3).steps == (Step(9, 0), Step(9, due))


# -- the formula -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingCall:
    """What an engine was asked, and what it answered."""

    number: int
    epochs: int | None
    start: torch.Tensor
    updates: Updates


@dataclass(frozen=True)
class Remembering(ToyEngine):
    """Remembers every update it ever gave."""

    calls: list[TrainingCall] = field(default_factory=list)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number, epochs=epochs)
        self.calls.append(TrainingCall(round_number, epochs, model.vector.clone(), updates))
        return updates


def average(samples: Sequence[int], rows: Sequence[Vector]) -> Vector:
    total = np.zeros_like(rows[0])
    for count, row in zip(samples, rows, strict=True):
        total = total + count * row
    return total / sum(samples)


def length(row: Vector) -> float:
    return math.sqrt(math.fsum(float(number) ** 2 for number in row))


def test_it_computes_what_the_paper_says(tmp_path: Path) -> None:
    """Written out again in float64, from nothing but what the engine returned."""
    settings = toy_settings(rounds=7, mechanism={"name": "federaser", "interval": 3})
    engine = Remembering(settings.seed)
    with start_toy(tmp_path / "run", settings) as started:
        run = replace(started, own_engine=engine)
        run.train()
        then = {call.number: call.updates for call in engine.calls}
        engine.calls.clear()
        model = run.ledger.model_before(1).astype(np.float64)
        pair = mates(run)
        leave(run, *pair)
        trial, *calibrations = engine.calls
        assert len(trial.updates) == 1  # whether the engine can train this run, before anything is undone
        assert [(each.number, each.epochs) for each in calibrations] == [(2, 1), (3, 1)]
        for number, kept in enumerate((1, 4, 7), start=1):
            updates = then[kept]
            samples = dict(zip(updates.clients, updates.samples, strict=True))
            rows = dict(zip(updates.clients, updates.vectors.double().numpy(), strict=True))
            survivors = sorted(set(rows) - set(pair))
            if number > 1:
                now = calibrations[number - 2]
                assert set(now.updates.clients) == set(survivors)
                np.testing.assert_allclose(now.start.numpy(), model, rtol=0, atol=2e-6)
                for client, row in zip(now.updates.clients, now.updates.vectors.double().numpy(), strict=True):
                    rows[client] = length(rows[client]) * row / length(row)
            model = model + average([samples[c] for c in survivors], [rows[c] for c in survivors])
            np.testing.assert_allclose(run.ledger.model_after(number), model, rtol=0, atol=2e-6)
        assert run.ledger.last_round == 3


def test_a_client_that_would_not_move_contributes_nothing() -> None:
    then = np.array([3.0, 4.0], dtype=np.float32)
    assert calibrate(then, np.zeros(2, dtype=np.float32)).tolist() == [0.0, 0.0]
    assert calibrate(then, np.array([0.0, -1e-30], dtype=np.float32)).tolist() == [0.0, -5.0]
    assert calibrate(np.zeros(2, dtype=np.float32), then).tolist() == [0.0, 0.0]
