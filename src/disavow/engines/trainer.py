"""What engines and trainers share: the interface behind which every kernel stands.

A *trainer* is one way of using one kind of hardware: `compiled` and `pool` on a CPU, `fused` and `stacked` on a
GPU. It knows no rounds and no runs; audits and benchmarks hand it the local training of many federations in one
call. A new one is a class with the three methods of `Trainer`, chosen in `factory`, and held to the tests of
`tests/engines/contract.py`.

`VectorisedEngine` makes a trainer the engine of one federation. `SequentialEngine` is an engine by itself: the
reference that all trainers are tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from disavow.domain import EngineChoice, Evaluation, Layout
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates


@dataclass(frozen=True, eq=False)
class Ask:
    """One federation's local training of one round.

    Args:
        workload: Network, samples and training settings.
        model: The broadcast model.
        clients: Who trains, by id.
        round_number: Seeds the batches, with the client's id and the workload's seed.
    """

    workload: Workload
    model: Model
    clients: tuple[str, ...]
    round_number: int


class Trainer(Protocol):
    """Train clients as fast as its hardware allows."""

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """Train the clients of several federations.

        Args:
            asks: One for each federation.

        Returns:
            The updates of each ask, as `Engine.train` would give them for it alone.

        Raises:
            ModelMismatch: A model is not one of the network.
        """

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """Evaluate models on the workload's held-out data.

        Args:
            workload: The network and the data.
            models: Any number of them.

        Returns:
            What `Engine.evaluate` would say of each.

        Raises:
            ModelMismatch: A model is not one of the network.
        """

    def close(self) -> None:
        """Let go of workers and memory; closing twice is harmless."""


class VectorisedEngine:
    """One federation's view of a trainer, which several may share.

    Args:
        workload: The federation's network, samples and training settings.
        trainer: What trains its clients.
        choice: Which trainer that is, and why no faster one; where nobody has chosen, its class says it.
    """

    def __init__(self, workload: Workload, trainer: Trainer, choice: EngineChoice | None = None) -> None:
        self.workload = workload
        self.trainer = trainer
        self.choice = choice or EngineChoice(type(trainer).__name__.removesuffix("Trainer").lower())

    def ask(self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None) -> Ask:
        """Make the trainer's input for this federation's round.

        Args:
            model: The broadcast model.
            clients: Who trains.
            round_number: The round.
            epochs: Local epochs, where not those of the settings.

        Returns:
            The ask.
        """
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
