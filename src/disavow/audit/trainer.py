"""What trains the worlds of an audit: the trainers of labelled samples, or for any other task its own engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from disavow.audit.subject import Subject
from disavow.domain import Evaluation
from disavow.engines.factory import trainer_for
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates


def trainer_of(subject: Subject) -> Trainer:
    """Build what trains all worlds of an audit.

    Args:
        subject: The client and its run.

    Returns:
        The trainer, to be closed by the caller.

    """
    if subject.labelled:
        return trainer_for(subject.workload(), subject.settings.engine)
    return TaskTrainer(subject)


class TaskTrainer:
    """Trains worlds of any task by the run's own engine. A shadow's records in the client's place, which that
    engine does not know, are trained by the reference.
    """

    def __init__(self, subject: Subject) -> None:
        """Build the run's engine.

        Args:
            subject: The client and its run.

        """
        self._subject = subject
        self._engine = subject.engine()

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        return [self._train(ask) for ask in asks]

    def _train(self, ask: Ask) -> Updates:
        workload: Any = ask.workload
        epochs = workload.settings.epochs
        if workload.loaded is self._subject.loaded or self._subject.client not in ask.clients:
            return self._engine.train(ask.model, ask.clients, ask.round_number, epochs=epochs)
        place = ask.clients.index(self._subject.client)
        others = [client for client in ask.clients if client != self._subject.client]
        rest = self._engine.train(ask.model, others, ask.round_number, epochs=epochs)
        own = SequentialEngine(workload).train(ask.model, [self._subject.client], ask.round_number)
        vectors = torch.cat([rest.vectors[:place], own.vectors.to(rest.vectors), rest.vectors[place:]])
        samples = (*rest.samples[:place], *own.samples, *rest.samples[place:])
        return Updates(ask.clients, samples, vectors, rest.trainer)

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:  # noqa: ARG002
        """See `Trainer`: nobody looks at how well a world does."""
        return [Evaluation() for _ in models]

    def close(self) -> None:
        """See `Trainer`."""
        self._engine.close()
