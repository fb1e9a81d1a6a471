"""The fast engine: a federation's rounds on whichever trainer is fastest for the network and the device."""

from __future__ import annotations

from collections.abc import Sequence

from disavow.domain import Evaluation, Layout
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates


class VectorisedEngine:
    """One federation's view of a trainer, which several may share."""

    def __init__(self, workload: Workload, trainer: Trainer) -> None:
        self.workload = workload
        self.trainer = trainer

    def ask(self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None) -> Ask:
        """What the trainer is asked for this federation's round."""
        return Ask(self.workload.training_for(epochs), model, tuple(clients), round_number)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        return self.trainer.train([self.ask(model, clients, round_number, epochs=epochs)])[0]

    def evaluate(self, model: Model) -> Evaluation:
        """See `Engine`."""
        return self.trainer.evaluate(self.workload, [model])[0]

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        self.workload.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`. The trainer ends with the engine, even where others share it."""
        self.trainer.close()
