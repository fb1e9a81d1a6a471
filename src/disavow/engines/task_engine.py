"""The engine of any task: whatever trains its clients fastest, with the task's own evaluation.

Kernels know plain SGD, cross entropy, and samples that are tensors. A task of these parts is recognised and trained
by them. Every other one runs its own loss and optimizer: on a GPU in one stack (`stacked/tasks.py`), on a CPU in
worker processes, and where neither can be, one client after the other.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from disavow.config import EngineSettings, TrainingSettings
from disavow.domain import EngineChoice, Evaluation, Layout
from disavow.engines.factory import SEQUENTIAL, device_of, no_stack, one_line, refuse_precision
from disavow.engines.factory import build as build_for_images
from disavow.engines.pool import START_SECONDS, PoolTrainer, why_unsendable
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.check import CannotStack
from disavow.engines.stacked.precision import Precision
from disavow.engines.stacked.tasks import StackedTasks, reproducible
from disavow.engines.task_workload import CannotRebuild, TaskWorkload
from disavow.engines.trainer import VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import ConfigError, DisavowError
from disavow.rounds.local_training import Engine
from disavow.rounds.threads import cores
from disavow.rounds.vectors import Model, Updates
from disavow.tasks.loading import LoadedTask, seeded
from disavow.tasks.samples import Parts, TensorSamples, join, samples_of
from disavow.tasks.task import PartsTask, Task, is_cross_entropy
from disavow.tasks.training import optimizer_of

_log = logging.getLogger(__name__)


class NotRecognised(Exception):
    """A task that no kernel knows; the message says why."""


class Trains(Protocol):
    """What trains the clients of a task: an engine without its evaluation, which is the task's."""

    @property
    def choice(self) -> EngineChoice:
        """What trains, and why nothing faster does."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""

    def close(self) -> None:
        """See `Engine`."""


class TaskEngine:
    """Trains the clients of a task by one engine and evaluates as the task does.

    Where that engine finds out while it trains that it cannot, the reference takes over.

    Args:
        workload: The task, which evaluates.
        trained_by: What trains its clients.
        precision: How exact products are, on a GPU.
        evaluated_by: What measures a model as the task would, and faster.

    """

    def __init__(
        self,
        workload: TaskWorkload,
        trained_by: Trains,
        precision: Precision = "float32",
        evaluated_by: Engine | None = None,
    ) -> None:
        self._workload = workload
        self._precision = precision
        self._trains = trained_by
        self._evaluates = evaluated_by
        self._reference = SequentialEngine(workload)

    @property
    def choice(self) -> EngineChoice:
        """What trains, and why nothing faster does."""
        return self._trains.choice

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        with reproducible(self._workload.device, self._precision):
            try:
                return self._trains.train(model, clients, round_number, epochs=epochs)
            except (CannotRebuild, CannotStack) as reason:
                self._fall_back(reason)
                return self._trains.train(model, clients, round_number, epochs=epochs)

    def _fall_back(self, reason: Exception) -> None:
        """Let the reference train from now on."""
        before = self.choice
        _log.warning("clients train one after the other from now on, not by %s: %s", before.name, reason)
        passed_over = ((before.name, one_line(reason)), *before.passed_over)
        self._trains.close()
        self._reference.choice = EngineChoice(_sequential_on(self._workload.device), passed_over)
        self._trains, self._evaluates = self._reference, None

    def evaluate(self, model: Model) -> Evaluation | None:
        """See `Engine`."""
        if self._evaluates is not None:
            try:
                return self._evaluates.evaluate(model)
            except DisavowError:
                raise
            except Exception:
                self._evaluates = None  # the task's own evaluation says what is wrong, if anything is
        with reproducible(self._workload.device, self._precision):
            return self._reference.evaluate(model)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        self._workload.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`."""
        self._trains.close()


@dataclass(frozen=True, eq=False)
class TaskAsk:
    """Some clients of a task in one round, as the pool is asked for them."""

    workload: TaskWorkload
    model: Model
    clients: tuple[str, ...]
    round_number: int


class PooledTasks:
    """Trains the clients of a task in worker processes, bit for bit as the reference does.

    Args:
        workload: The task.
        choice: Why no faster engine trains.
        pool: The processes; by default one a core, started when it pays.

    """

    def __init__(self, workload: TaskWorkload, choice: EngineChoice, pool: PoolTrainer | None = None) -> None:
        self.choice = choice
        self._workload = workload
        # a worker imports torch and loads the task before it trains: that must have been lost first
        self._pool = pool or PoolTrainer(start_after=START_SECONDS + workload.loaded.seconds)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`.

        Raises:
            CannotRebuild: The task does not come out the same in a worker process.

        """
        ask = TaskAsk(self._workload.training_for(epochs), model, tuple(clients), round_number)
        return self._pool.train([ask])[0]

    def close(self) -> None:
        """See `Engine`."""
        self._pool.close()


def build_for_task(loaded: LoadedTask, training: TrainingSettings, seed: int, settings: EngineSettings) -> Engine:
    """Build the fastest engine for a task, or the one that the settings ask for.

    Args:
        loaded: The task, its model and its data.
        training: How clients train.
        seed: The run's seed.
        settings: Which engine, on which device.

    Returns:
        The engine, to be closed by the caller. Its `choice` says what trains, and why nothing faster does.

    Raises:
        ConfigError: The device or precision is not to be had here.

    """
    own = TaskWorkload(loaded, training, seed)
    device = device_of(settings)
    try:
        known = recognise(loaded, training, seed)
        engine = build_for_images(known, settings)
        if isinstance(engine, VectorisedEngine) and isinstance(engine.trainer, StackedTrainer):
            _refuse_unstackable(engine, known)
    except NotRecognised as reason:
        if device.type == "cpu" or settings.name == "sequential":
            return _on_cpu(own, settings, (("compiled", str(reason)), no_stack(settings)))
        return _on_gpu(own, settings, device, str(reason))
    measured = not has_own_evaluation(loaded.task) and len(known.test_labels) > 0
    return TaskEngine(own, engine, evaluated_by=engine if measured else None)


def _refuse_unstackable(engine: VectorisedEngine, known: Workload) -> None:
    try:
        engine.trainer.prepare(known)  # type: ignore[attr-defined]
    except ConfigError as error:
        engine.close()
        raise NotRecognised(one_line(error).partition("; ")[0]) from error


def _on_cpu(workload: TaskWorkload, settings: EngineSettings, passed_over: tuple[tuple[str, str], ...]) -> Engine:
    """Let worker processes train a task, or else this one."""
    if settings.name == "sequential":
        return TaskEngine(workload, SequentialEngine(workload, SEQUENTIAL))
    refuse_precision(settings)
    obstacle = why_unsendable(workload)
    if obstacle is not None:
        why = f"the task is only a Python object, which no other process can import ({obstacle})"
    elif cores() == 1:
        why = "there is one core"
    else:
        return TaskEngine(workload, PooledTasks(workload, EngineChoice("pool", passed_over)))
    choice = EngineChoice("sequential", (("pool", why), *passed_over))
    return TaskEngine(workload, SequentialEngine(workload, choice))


def _on_gpu(workload: TaskWorkload, settings: EngineSettings, device: torch.device, unknown: str) -> Engine:
    """Stack the clients of a task on a GPU, or else train them there one after the other.

    Where the device was not asked for by name and a user's code does not run there, the CPU trains.
    """
    if settings.precision == "bf16":
        raise ConfigError('engine.precision is "bf16"; allowed for this task: "float32", "tf32"')
    placed = replace(workload, device=device)
    fused = ("fused", unknown)
    try:
        choice = EngineChoice("stacked", (fused,))
        stacked = StackedTasks(placed, precision=settings.precision, choice=choice)
        return TaskEngine(placed, stacked, settings.precision)
    except CannotStack as reason:
        passed_over = (("stacked", one_line(reason)), fused)
        # a training loop of the user's own cannot be tried: it may make tensors on the CPU
        runs_here = reason.runs_here and not hasattr(workload.loaded.task, "train_client")
    if settings.device == "cuda" or runs_here:
        choice = EngineChoice(_sequential_on(device), passed_over)
        return TaskEngine(placed, SequentialEngine(placed, choice), settings.precision)
    return _on_cpu(workload, settings, (("compiled", unknown), *passed_over[:1]))


def _sequential_on(device: torch.device) -> str:
    return "sequential" if device.type == "cpu" else f"sequential on {device.type}"


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
    _refuse_unfit_samples(loaded.network, inputs, labels)
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
    optimizer = optimizer_of(task, network, 1)
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


def _tensors_of(loaded: LoadedTask) -> tuple[Tensor, Tensor, Parts]:
    """Give all clients' inputs and labels as two tensors, and who holds which rows."""
    try:
        (inputs, labels), parts = join({client: _pair(samples) for client, samples in loaded.samples.items()})
    except ValueError as error:
        raise NotRecognised(str(error)) from error
    return inputs, labels, parts


def _refuse_unfit_samples(network: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Leave what cross entropy cannot take to the generic engine, which says whose batch it was, and its shapes."""
    tried = copy.deepcopy(network).eval()
    try:
        with torch.no_grad(), seeded(0):
            scores = tried(inputs[:1])
    except Exception as error:
        raise NotRecognised(f"the model does not take the inputs ({type(error).__name__})") from error
    if not isinstance(scores, Tensor) or scores.dim() != 2:  # noqa: PLR2004 - samples, classes
        raise NotRecognised("the model does not give one row of scores a sample")
    if not 0 <= int(labels.min()) <= int(labels.max()) < scores.shape[1]:
        raise NotRecognised("a label is none of the classes of the model")


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
    """Give the test data as tensors where it is such; otherwise nothing, and the task evaluates by itself."""
    if loaded.test is None:
        return inputs[:0], labels[:0]
    try:
        test = _pair(samples_of(loaded.test, owner="the test data"))
        given = test.batch(np.arange(len(test)))
        _refuse_unfit_samples(loaded.network, *given)
    except NotRecognised:
        return inputs[:0], labels[:0]
    return given[0], given[1]
