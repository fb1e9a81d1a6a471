"""The engine of any task: whatever trains its clients fastest, with the task's own evaluation.

Kernels and stacks know plain SGD, cross entropy, and samples that are tensors. A task of these parts is recognised
and trained by them; every other one runs its own loss and optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from disavow.config import EngineSettings, TrainingSettings
from disavow.domain import Evaluation, Layout
from disavow.engines.factory import build as build_for_images
from disavow.engines.factory import device_of
from disavow.engines.sequential import SequentialEngine
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.workload import Workload
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model, Updates
from disavow.tasks.loading import LoadedTask
from disavow.tasks.samples import TensorSamples
from disavow.tasks.task import PartsTask, Task, is_cross_entropy


class NotRecognised(Exception):
    """A task that no kernel knows; the message says why."""


class TaskEngine:
    """Trains the clients of a task by one engine and evaluates as the task does.

    Attributes:
        note: What trains, and why nothing faster does.

    """

    def __init__(self, workload: TaskWorkload, trained_by: Engine, note: str) -> None:
        """Put an engine in front of a task.

        Args:
            workload: The task, which evaluates.
            trained_by: What trains its clients.
            note: What trains, and why nothing faster does.

        """
        self.note = note
        self._workload = workload
        self._engine = trained_by
        self._evaluator = SequentialEngine(workload)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        return self._engine.train(model, clients, round_number, epochs=epochs)

    def evaluate(self, model: Model) -> Evaluation | None:
        """See `Engine`."""
        return self._evaluator.evaluate(model)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        self._workload.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`."""
        self._engine.close()


def build_for_task(loaded: LoadedTask, training: TrainingSettings, seed: int, settings: EngineSettings) -> Engine:
    """Build the fastest engine for a task, or the one that the settings ask for.

    Args:
        loaded: The task, its model and its data.
        training: How clients train.
        seed: The run's seed.
        settings: Which engine, on which device.

    """
    own = TaskWorkload(loaded, training, seed)
    try:
        known = recognise(loaded, training, seed)
    except NotRecognised as reason:
        return _build_generic(own, settings, str(reason))
    engine = build_for_images(known, settings)
    if has_own_evaluation(loaded.task) or loaded.test is None:
        return TaskEngine(own, engine, type(engine).__name__)
    return engine


def _build_generic(workload: TaskWorkload, settings: EngineSettings, reason: str) -> Engine:
    # a user's own code may make tensors on the CPU: a GPU is used where it is asked for
    device = device_of(settings) if settings.device == "cuda" else torch.device("cpu")
    placed = TaskWorkload(workload.loaded, workload.settings, workload.seed, device)
    return TaskEngine(placed, SequentialEngine(placed), f"one client after the other: {reason}")


def has_own_evaluation(task: Task) -> bool:
    """Tell whether a task is measured by code of its own."""
    if isinstance(task, PartsTask):
        return bool(task.metrics)
    return type(task).evaluate is not Task.evaluate


def recognise(loaded: LoadedTask, training: TrainingSettings, seed: int) -> Workload:
    """Describe a task as images or rows with labels, which kernels and stacks can train.

    Args:
        loaded: The task.
        training: How clients train.
        seed: The run's seed.

    Returns:
        What the engines of images are made from.

    Raises:
        NotRecognised: The task does something that they do not know.

    """
    task = loaded.task
    if hasattr(task, "train_client"):
        raise NotRecognised("the task has a training loop of its own")
    if task.collate is not None:
        raise NotRecognised("the task collates its samples itself")
    if task.clip_gradients is not None:
        raise NotRecognised("gradients are clipped")
    if type(task).learning_rate_factor is not Task.learning_rate_factor:
        raise NotRecognised("the learning rate has a schedule")
    if not is_cross_entropy(task):
        raise NotRecognised("the loss is not plain cross entropy")
    sgd = _sgd_of(task, loaded.network, training)
    inputs, labels, parts = _tensors_of(loaded)
    test_inputs, test_labels = _test_of(loaded, inputs, labels)
    return Workload(
        network=loaded.network,
        images=inputs,
        labels=labels,
        parts=parts,
        test_images=test_inputs,
        test_labels=test_labels,
        settings=sgd,
        seed=seed,
    )


def _sgd_of(task: Task, network: nn.Module, training: TrainingSettings) -> TrainingSettings:
    """Read the settings of plain SGD from the task's optimizer."""
    optimizer = task.optimizer(network)
    if type(optimizer) is not SGD:
        raise NotRecognised(f"the optimizer is {type(optimizer).__name__}, not SGD")
    trained = {id(parameter) for parameter in network.parameters() if parameter.requires_grad}
    group = optimizer.param_groups[0]
    given = {id(parameter) for parameter in group["params"] if parameter.requires_grad}
    if len(optimizer.param_groups) > 1 or given != trained:
        raise NotRecognised("the optimizer has several groups of parameters, or not all of them")
    if group["nesterov"] or group["maximize"] or group["dampening"]:
        raise NotRecognised("SGD is not the plain one")
    return training.model_copy(
        update={
            "learning_rate": float(group["lr"]),
            "momentum": float(group["momentum"]),
            "weight_decay": float(group["weight_decay"]),
        }
    )


def _tensors_of(loaded: LoadedTask) -> tuple[Tensor, Tensor, dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """Give all clients' inputs and labels as two tensors, and who holds which rows."""
    held = {client: _pair(samples) for client, samples in loaded.samples.items()}
    first = next(iter(held.values()))
    if all(samples.tensors[0] is first.tensors[0] and samples.positions is not None for samples in held.values()):
        shared = {
            client: samples.positions.numpy() for client, samples in held.items() if samples.positions is not None
        }
        return *first.tensors, shared  # type: ignore[return-value]
    shapes = {(each[0].shape[1:], each[0].dtype, each[1].shape[1:], each[1].dtype) for each in _rows(held)}
    if len(shapes) > 1:
        raise NotRecognised("clients hold samples of several shapes or types")
    parts, start = {}, 0
    for client, samples in held.items():
        parts[client] = np.arange(start, start + len(samples))
        start += len(samples)
    rows = _rows(held)
    return torch.cat([inputs for inputs, _ in rows]), torch.cat([labels for _, labels in rows]), parts


def _rows(held: dict[str, TensorSamples]) -> list[tuple[Tensor, ...]]:
    return [samples.batch(np.arange(len(samples))) for samples in held.values()]


def _pair(samples: object) -> TensorSamples:
    if not isinstance(samples, TensorSamples) or len(samples.tensors) != 2:  # noqa: PLR2004 - inputs, labels
        raise NotRecognised("samples are not two tensors, inputs and labels")
    inputs, labels = samples.tensors
    if inputs.dtype != torch.float32:
        raise NotRecognised(f"inputs are {inputs.dtype}, not float32")
    if labels.dim() != 1 or labels.dtype != torch.int64:
        raise NotRecognised("labels are not one class a sample")
    return samples


def _test_of(loaded: LoadedTask, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Give the test data as tensors where it is; otherwise nothing, and the task evaluates by itself."""
    try:
        from disavow.tasks.samples import samples_of

        test = _pair(samples_of(loaded.test, owner="the test data"))
    except Exception:
        return inputs[:0], labels[:0]
    given = test.batch(np.arange(len(test)))
    return given[0], given[1]
