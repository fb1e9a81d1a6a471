"""A task that trains a round only once a test lets it: so that a page can be looked at while rounds are trained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import disavow

CLIENTS, EXAMPLES = 8, 6


class Gated(disavow.Task):
    """A linear model on a few measurements.

    Args:
        gate: A file with the number of the last round that may be trained; without it, all may.

    """

    epochs, batch_size = 1, 8

    def __init__(self, gate: str) -> None:
        self._gate = Path(gate)

    def model(self) -> nn.Module:
        layer = nn.Linear(4, 2)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def clients(self) -> dict[str, Any]:
        rng = np.random.Generator(np.random.PCG64(1))
        inputs = {name: rng.normal(size=(EXAMPLES, 4)).astype(np.float32) for name in self._names()}
        return {name: (each, (each.sum(axis=1) > 0).astype(np.int64)) for name, each in inputs.items()}

    def record_keys(self, client: str) -> Sequence[str]:
        return [f"{client}/visit-{i}" for i in range(EXAMPLES - 1)] + ["shared-visit"]

    def learning_rate_factor(self, round_number: int) -> float:
        """Wait until the round may be trained."""
        while self._closed(round_number):
            time.sleep(0.01)
        return 1.0

    def _closed(self, round_number: int) -> bool:
        try:
            return round_number > int(self._gate.read_text(encoding="ascii"))
        except FileNotFoundError:
            return False

    def _names(self) -> list[str]:
        return [f"practice-{i}" for i in range(CLIENTS)]


def build(gate: str) -> Gated:
    """Make the task, as the settings of a run name it."""
    return Gated(gate)


def let_train(gate: Path, last: int) -> None:
    """Let rounds be trained up to this one."""
    new = gate.with_suffix(".new")
    new.write_text(str(last), encoding="ascii")
    new.replace(gate)
