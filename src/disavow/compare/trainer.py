"""What trains the federations of a comparison: one trainer for all of them where kernels know the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from disavow.compare.problem import Problem
from disavow.domain import Evaluation
from disavow.engines.factory import trainer_for
from disavow.engines.task_engine import build_for_task
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model, Updates


def trainer_of(problem: Problem) -> Trainer:
    """Build what trains all federations of a comparison.

    Args:
        problem: What is compared on.

    Returns:
        The trainer, to be closed by the caller.

    """
    subject = problem.subject
    if subject.labelled:
        return trainer_for(subject.workload(), subject.settings.engine)
    return TaskTrainer(problem)


class TaskTrainer:
    """Trains any task by its own engine, which is built anew for other batches or other records."""

    def __init__(self, problem: Problem) -> None:
        """Build no engine yet.

        Args:
            problem: What is compared on.

        """
        self._settings = problem.subject.settings
        self._engine: Engine | None = None
        self._made_for: tuple[Any, int] | None = None

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        return [
            self._engine_of(ask.workload).train(
                ask.model, ask.clients, ask.round_number, epochs=ask.workload.settings.epochs
            )
            for ask in asks
        ]

    def _engine_of(self, workload: Any) -> Engine:
        """The engine of a workload; only the newest is kept, because each may have worker processes."""
        if self._engine is None or self._made_for is None or self._made_for != (workload.loaded, workload.seed):
            self.close()
            settings = self._settings
            self._engine = build_for_task(workload.loaded, settings.training, workload.seed, settings.engine)
            self._made_for = (workload.loaded, workload.seed)
        return self._engine

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:  # noqa: ARG002
        """See `Trainer`: measures evaluate by themselves."""
        return [Evaluation() for _ in models]

    def close(self) -> None:
        """See `Trainer`."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
