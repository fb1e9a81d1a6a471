"""What the fast engine is built on: trainers, which take the clients of several federations at once.

A trainer is one way of using one kind of hardware. It knows no rounds and no runs, only asks; experiments and
audits put the asks of many federations (configs, seeds, shadow models) into one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from disavow.domain import Evaluation
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates


@dataclass(frozen=True, eq=False)
class Ask:
    """One federation's local training of one round."""

    workload: Workload
    model: Model
    clients: tuple[str, ...]
    round_number: int


class Trainer(Protocol):
    """Trains clients as fast as its hardware allows."""

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """The updates of each ask, as `Engine.train` would give them for it alone."""

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """How well each model does on the workload's held-out data, as `Engine.evaluate` would say."""

    def close(self) -> None:
        """Let go of workers and memory; closing twice is harmless."""
