from __future__ import annotations

import math
from pathlib import Path

import torch

from disavow import config
from disavow.domain import VARIANCE_FLOOR
from disavow.federation import Federation
from disavow.models.resnet_mini import Block
from disavow.rounds.vectors import Model


def test_a_block_halves_the_sides_and_rounds_up() -> None:
    block = Block(3, 4, 8).eval()
    assert block(torch.zeros(2, 3, 28, 27)).shape == (2, 8, 14, 14)
    assert block(torch.zeros(2, 3, 1, 1)).shape == (2, 8, 1, 1)


def test_under_heavy_noise_the_loss_stays_finite_over_twenty_rounds(tmp_path: Path) -> None:
    # noise of ten spreads in a hundred falls on running variances too, which must not fall below the floor
    settings = config.from_values(
        {
            "seed": 3,
            "rounds": 20,
            "draws": "seeded",
            "data": {"clients": 20},
            "model": {"name": "resnet-mini"},
            "training": {"learning_rate": 0.02, "batch_size": 128, "epochs": 3},
            "noise": {"mode": "paper", "sigma": 0.1},
        },
        source="test",
    )
    with Federation.create(tmp_path / "run", settings) as run:
        run.train()
        losses = [summary.evaluation.loss for summary in run.ledger.summaries() if summary.evaluation is not None]
        assert len(losses) == 20
        assert all(math.isfinite(loss) for loss in losses)
        last = Model(run.ledger.layout, torch.from_numpy(run.ledger.model_after(20)))
        assert bool(torch.isfinite(last.vector).all())
        for start, end in last.layout.variances():
            assert bool((last.vector[start:end] >= torch.tensor(VARIANCE_FLOOR)).all())
