"""How well a model does, on test records and on what leaves, and how often it answers as retrained models do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from disavow.audit.game import Floats
from disavow.compare.problem import Problem
from disavow.data.dataset import Indices
from disavow.engines.objectives import losses_of, right_of
from disavow.tasks.record_loss import mean_loss
from disavow.tasks.task import targets_of
from disavow.tasks.user_errors import name_of, own_code


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says.

    Attributes:
        accuracy: On the measured half of the test data; where targets are no classes or attributes, the task's own
            first metric, or None.
        loss: There, the task's own.
        leaver_accuracy: On what leaves.
        leaver_loss: There.
        answers: To the measured test records: classes, attributes, tokens, or what the model gave.
        categorical: Whether they are one of the first three, which are the same or not.

    """

    accuracy: float | None
    loss: float | None
    leaver_accuracy: float | None
    leaver_loss: float
    answers: Floats
    categorical: bool


def predictions(problem: Problem, vector: Tensor) -> Predictions:
    """Let a model predict.

    Args:
        problem: What is compared on.
        vector: The model.

    """
    subject = problem.subject
    if not subject.classes:
        tokens = _task_answers(problem, vector)
        return Predictions(
            _task_metric(problem, vector, problem.measured),
            _task_loss(problem, vector, problem.measured) if len(problem.measured) else None,
            _task_metric(problem, vector, subject.own),
            _task_loss(problem, vector, subject.own),
            _numbers(problem, vector) if tokens is None else tokens,
            categorical=tokens is not None,
        )
    outputs = problem.outputs(vector, problem.measured)
    accuracy, loss = _scored(outputs, _targets(problem, problem.measured))
    own = problem.outputs(vector, subject.own)
    leaver_accuracy, leaver_loss = _scored(own, _targets(problem, subject.own))
    attributes = _targets(problem, subject.own[:1]).is_floating_point()
    answers = (outputs > 0).double().flatten(1) if attributes else outputs.argmax(dim=1)[:, None].double()
    return Predictions(accuracy, loss, leaver_accuracy, leaver_loss or 0.0, answers.numpy(), categorical=True)


def loss_on_leaver(problem: Problem, vector: Tensor) -> float:
    """Compute the mean loss on what leaves.

    Args:
        problem: What is compared on.
        vector: The model.

    """
    own = problem.subject.own
    if not problem.subject.classes:
        return _task_loss(problem, vector, own)
    return float(losses_of(problem.outputs(vector, own), _targets(problem, own)).mean())


def agreement(mine: Predictions, others: Sequence[Predictions]) -> float | None:
    """Compute how often a model answers as others do, on average over them.

    Where answers are no classes, attributes or tokens, it is the correlation between what both models gave.

    Args:
        mine: What the model said.
        others: What the others said.

    Returns:
        A share, or a correlation; None where there is nothing to compare.

    """
    if not others or not mine.answers.size:
        return None
    if mine.categorical:
        return float(np.mean([(mine.answers == other.answers).mean() for other in others]))
    return float(np.mean([_correlation(mine.answers, other.answers) for other in others]))


def _correlation(mine: Floats, other: Floats) -> float:
    """Of all numbers of two arrays; 0 where one of them is constant."""
    if mine.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(mine.ravel(), other.ravel())[0, 1])


def _scored(outputs: Tensor, targets: Tensor) -> tuple[float | None, float | None]:
    if not len(outputs):
        return None, None
    return float(right_of(outputs, targets).double().mean()), float(losses_of(outputs, targets).mean())


def _targets(problem: Problem, positions: Indices) -> Tensor:
    return torch.as_tensor(targets_of(problem.subject.samples.batch(np.ascontiguousarray(positions))))


def _task_answers(problem: Problem, vector: Tensor) -> Floats | None:
    """What the model answers by the task's own word, for test records; None where the task does not say."""
    if not len(problem.measured):
        return None
    task, batch = problem.subject.task, problem.batch(problem.measured)
    with torch.no_grad(), own_code(name_of(task, "answers")):
        found = task.answers(problem.network(vector).eval(), batch)
    return None if found is None else found.cpu().double().numpy()


def _numbers(problem: Problem, vector: Tensor) -> Floats:
    """What the model gives for test records; none where it gives nothing without the task's own loss."""
    if problem.outputs_obstacle is not None:
        return np.zeros((0, 0))
    outputs = problem.outputs(vector, problem.measured)
    return outputs.reshape(len(outputs), -1).numpy()


def accuracy_name(problem: Problem) -> str:
    """Name what stands for accuracy: that, or the first metric of a task that has no classes.

    Args:
        problem: What is compared on.

    """
    if problem.subject.classes:
        return "accuracy"
    found = _task_figure(problem, problem.subject.initial.vector, problem.measured)
    return "accuracy" if found is None else found[0]


def _task_metric(problem: Problem, vector: Tensor, positions: Indices) -> float | None:
    found = _task_figure(problem, vector, positions)
    return found[1] if found is not None and np.isfinite(found[1]) else None


def _task_figure(problem: Problem, vector: Tensor, positions: Indices) -> tuple[str, float] | None:
    """The first figure of the task's own evaluation; None where it does not take some records by themselves."""
    if not len(positions):
        return None
    records = problem.batch(positions)
    try:
        with torch.no_grad():
            figures = problem.subject.task.evaluate(problem.network(vector).eval(), records)
        return next(((name, float(value)) for name, value in figures.items() if name != "loss"), None)
    except Exception:  # the user's code: it may take its own kind of data alone
        return None


def _task_loss(problem: Problem, vector: Tensor, positions: Indices) -> float:
    subject = problem.subject
    return mean_loss(subject.task, problem.network(vector), subject.samples, positions, problem.device)
