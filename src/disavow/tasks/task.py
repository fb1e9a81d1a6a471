"""What a user brings to a federation: a model, each client's data, and how a client trains and is measured."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

from disavow.config import TrainingSettings
from disavow.errors import TaskError
from disavow.tasks.samples import Collate, moved, samples_of

EVALUATION_BATCH = 1024
"""Samples that are evaluated at once."""

Metric = Callable[[Tensor, Tensor], float | Tensor]
"""A figure from the model's outputs and the targets of all test samples."""

RecordKeys = Mapping[str, Sequence[str]] | Callable[[str], Sequence[str] | None]
"""The names of each client's examples, in their order, by the client's id."""

TARGETS = ("labels", "label", "target", "targets")
"""Where a batch is a mapping: the keys under which its targets are looked for."""


class Task(ABC):
    """A model, each client's data, and how they are trained and evaluated. Subclass it; two methods suffice.

    Everything random in `model`, in the data and in training derives from the run's seed, the round and the client,
    through the global generators of torch, NumPy and Python. A generator that is seeded by the operating
    system, such as `numpy.random.default_rng()`, breaks that: then a retraining is exact no more, and says so.

    Attributes:
        epochs: Local epochs of a round; None for `training.epochs` of the settings.
        batch_size: Samples of a batch; None for `training.batch_size`.
        clip_gradients: The largest L2 norm of the gradient of a batch; None for no limit.
        training: How clients train, from the settings. Set before any other method is called.

    Example::

        class Hospitals(disavow.Task):
            def model(self):
                return torch.nn.Linear(30, 2)

            def clients(self):
                return {"hospital-1": (features, labels), ...}

    """

    epochs: int | None = None
    batch_size: int | None = None
    clip_gradients: float | None = None
    training: TrainingSettings = TrainingSettings()
    collate: Collate | None = None
    """Makes a batch of a list of samples; None for what PyTorch's loaders do."""
    kept_options: Mapping[str, Any] | None = None
    """Options that a run keeps in the place of those that it was started with, such as full paths; None: those."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Build the model with its initial weights. Parameters that need no gradient stay as they are.

        Returns:
            The model. It must be the same each time that it is built.
        """

    @abstractmethod
    def clients(self) -> Mapping[str, Any]:
        """Give each client's data, by its id: a dataset, or a tuple of tensors or arrays.

        Returns:
            Data by client; the same clients and data each time.
        """

    def test_data(self) -> Any | None:
        """Give held-out data, in the same form; None where there is none.

        Returns:
            That data, or None.
        """
        return None

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Compute the mean loss of a batch; by default the cross entropy of (inputs, targets).

        Args:
            model: The model in training mode.
            batch: A tuple whose last element are the targets, or a mapping with a key "labels".

        Returns:
            A scalar with a gradient.

        """
        outputs, targets = outputs_and_targets(model, batch)
        return default_loss(outputs, targets)

    def log_likelihoods(self, model: nn.Module, batch: Any) -> Tensor | None:
        """Compute log p(target | input) of each record of a batch, for methods that need more than a mean loss.

        Args:
            model: The model.
            batch: What `loss` takes.

        Returns:
            One number a record, with a gradient; None where the loss is no likelihood. By default that of classes,
            where the loss is their plain cross entropy, and otherwise None.

        """
        if not is_cross_entropy(self):
            return None
        return -functional.cross_entropy(*outputs_and_targets(model, batch), reduction="none")

    def answers(self, model: nn.Module, batch: Any) -> Tensor | None:  # noqa: ARG002 - for those who override it
        """Give what a model answers to a batch in whole numbers, where it answers by several, such as tokens.

        Args:
            model: The model in evaluation mode.
            batch: What `loss` takes.

        Returns:
            A vector, in which two models agree where they have the same number; None, by default, where a record
            has one answer or answers are no whole numbers.

        """
        return None

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Build the optimizer of one client's round; by default SGD as the settings say.

        Args:
            model: What is trained; its parameters are those of the model as it was broadcast.

        Returns:
            An optimizer over the model's parameters.

        """
        training = self.training
        return SGD(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )

    def learning_rate_factor(self, round_number: int) -> float:  # noqa: ARG002 - for those who override it
        """Give what every learning rate is multiplied by in a round; 1 by default.

        Args:
            round_number: Which round, from 1 on.

        Returns:
            The factor.

        """
        return 1.0

    def evaluate(self, model: nn.Module, data: Any) -> Mapping[str, float]:
        """Measure a model on the test data; by default its loss, and where targets are classes its accuracy.

        Args:
            model: The model in evaluation mode.
            data: What `test_data` gave.

        Returns:
            Figures by name. They are stored with the round.

        """
        outputs, targets = self.outputs(model, data)
        measured = {"loss": float(default_loss(outputs.double(), targets))}
        if not targets.is_floating_point():
            measured = {"accuracy": float((outputs.argmax(1) == targets).double().mean()), **measured}
        return measured

    def outputs(self, model: nn.Module, data: Any) -> tuple[Tensor, Tensor]:
        """Compute the model's outputs on all of some data, in evaluation.

        Args:
            model: The model.
            data: A dataset, or a tuple of tensors or arrays.

        Returns:
            Outputs and targets, one row a sample, on the CPU.

        """
        device = next(model.parameters()).device
        pairs = [outputs_and_targets(model, moved(batch, device)) for batch in self.batches(data)]
        outputs, targets = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
        return outputs.cpu(), targets.cpu()

    def batches(self, data: Any) -> Iterator[Any]:
        """Read data batch by batch, in order.

        Args:
            data: A dataset, or a tuple of tensors or arrays.

        Yields:
            What `loss` and `evaluate` take.

        """
        samples = samples_of(data, owner="the test data", collate=self.collate)
        for start in range(0, len(samples), EVALUATION_BATCH):
            yield samples.batch(np.arange(start, min(start + EVALUATION_BATCH, len(samples))))

    def record_keys(self, client: str) -> Sequence[str] | None:  # noqa: ARG002 - for those who override it
        """Name each example of a client, in the order of its data; by default None: nobody can name its records.

        A record is all examples with one key, such as everything of one patient; keys need not differ. They must
        stay the same when other examples go, or records can be erased only with the whole client: positions do not.

        Args:
            client: The client's id.

        Returns:
            One text for each example; None where this client's records have no names, and none can be erased.

        """
        return None


class PartsTask(Task):
    """A task that `task` made."""

    def __init__(self, model: nn.Module | Callable[[], nn.Module], clients: Mapping[str, Any], test: Any) -> None:
        self._model = model
        self._clients = clients
        self._test = test
        self.loss_function: Callable[[Tensor, Tensor], Tensor] | None = None
        self.optimizer_function: Callable[[Any], Optimizer] | None = None
        self.metrics: dict[str, Metric] = {}
        self.keys: RecordKeys | None = None

    def model(self) -> nn.Module:
        """See `Task`."""
        if isinstance(self._model, nn.Module):
            return copy.deepcopy(self._model)
        return self._model()

    def clients(self) -> Mapping[str, Any]:
        """See `Task`."""
        return self._clients

    def test_data(self) -> Any | None:
        """See `Task`."""
        return self._test

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """See `Task`."""
        if self.loss_function is None:
            return super().loss(model, batch)
        outputs, targets = outputs_and_targets(model, batch)
        if isinstance(self.loss_function, nn.Module):  # class weights go where the outputs are
            self.loss_function.to(outputs.device)
        return self.loss_function(outputs, targets)

    def optimizer(self, model: nn.Module) -> Optimizer:
        """See `Task`."""
        if self.optimizer_function is None:
            return super().optimizer(model)
        return self.optimizer_function([each for each in model.parameters() if each.requires_grad])

    def evaluate(self, model: nn.Module, data: Any) -> Mapping[str, float]:
        """See `Task`."""
        if self.loss_function is None and not self.metrics:
            return super().evaluate(model, data)
        outputs, targets = self.outputs(model, data)
        measured = {name: float(metric(outputs, targets)) for name, metric in self.metrics.items()}
        if isinstance(self.loss_function, nn.Module):
            self.loss_function.to(outputs.device)
        if "loss" not in measured:
            measured["loss"] = float((self.loss_function or default_loss)(outputs, targets))
        if not self.metrics and not targets.is_floating_point() and outputs.dim() == targets.dim() + 1:
            measured["accuracy"] = float((outputs.argmax(1) == targets).double().mean())
        return measured

    def record_keys(self, client: str) -> Sequence[str] | None:
        """See `Task`."""
        return self.keys.get(client) if isinstance(self.keys, Mapping) else self.keys and self.keys(client)


class LoopTask(PartsTask):
    """A task whose clients train by a function of the user's own."""

    def __init__(self, *parts: Any, train_client: Callable[[nn.Module, Any, int], None]) -> None:
        super().__init__(*parts)
        self._train_client = train_client

    def train_client(self, model: nn.Module, data: Any, seed: int) -> None:
        """Train a model in place on one client's data."""
        self._train_client(model, data, seed)


def task(
    *,
    model: nn.Module | Callable[[], nn.Module],
    clients: Mapping[str, Any],
    test: Any = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    optimizer: Callable[[Any], Optimizer] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    clip_gradients: float | None = None,
    collate: Collate | None = None,
    train_client: Callable[[nn.Module, Any, int], None] | None = None,
    record_keys: RecordKeys | None = None,
) -> Task:
    """Make a task from parts, without a class.

    Args:
        model: A function that builds the model, whose weights are then drawn from the run's seed; or the model,
            which keeps its own, such as pretrained ones.
        clients: Each client's data, by id: a dataset, or a tuple of tensors or arrays, the targets last.
        test: Held-out data in the same form.
        loss: The mean loss from outputs and targets, such as `torch.nn.CrossEntropyLoss(weight=...)`; by default
            cross entropy.
        optimizer: Makes an optimizer of parameters, such as `lambda p: torch.optim.Adam(p, lr=1e-3)`; by default
            SGD as the settings say.
        metrics: Figures from the outputs and targets of all test samples, by name.
        epochs: Local epochs of a round; by default those of the settings.
        batch_size: Samples of a batch; by default that of the settings.
        clip_gradients: The largest L2 norm of the gradient of a batch.
        collate: Makes a batch of a list of samples.
        train_client: Trains a model in place on one client's data, with a seed of its own, in place of all that.
        record_keys: Names each example of a client, so that single records can be erased: texts by client, or a
            function of the client's id. See `Task.record_keys`.

    Returns:
        The task.

    Raises:
        TaskError: Parts that exclude each other.

    """
    if train_client is not None:
        if optimizer is not None or epochs is not None or batch_size is not None or clip_gradients is not None:
            raise TaskError(
                "a task with train_client has a training loop of its own; allowed beside it: model, clients, test, "
                "loss, metrics, collate, record_keys"
            )
        made: PartsTask = LoopTask(model, clients, test, train_client=train_client)
    else:
        made = PartsTask(model, clients, test)
    made.loss_function, made.optimizer_function, made.metrics = loss, optimizer, dict(metrics or {})
    made.epochs, made.batch_size, made.clip_gradients, made.collate = epochs, batch_size, clip_gradients, collate
    made.keys = record_keys
    return made


def outputs_and_targets(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Apply a model to a batch.

    Args:
        model: The model. It gets all of the batch but the targets: by position, or by keyword.
        batch: A tuple whose last element are the targets, or a mapping with one of the keys `TARGETS`.

    Returns:
        What the model gave, and the targets.

    """
    if isinstance(batch, Mapping):
        key = next((key for key in TARGETS if key in batch), None)
        if key is None:
            raise ValueError(f"the batch has no targets under any of {', '.join(TARGETS)}: override Task.loss")
        return model(**{name: value for name, value in batch.items() if name != key}), batch[key]
    *inputs, targets = batch
    return model(*inputs), targets


def targets_of(batch: Any) -> Any:
    """Give the targets of a batch: the last element of a tuple, or what a mapping has under one of `TARGETS`."""
    if isinstance(batch, Mapping):
        return next((batch[key] for key in TARGETS if key in batch), None)
    return batch[-1] if isinstance(batch, tuple | list) and batch else None


def is_cross_entropy(task: Task) -> bool:
    """Tell whether a task's loss is the plain cross entropy of classes."""
    if not isinstance(task, PartsTask):
        return type(task).loss is Task.loss
    loss = task.loss_function
    if isinstance(loss, nn.CrossEntropyLoss):
        plain = loss.weight is None and loss.reduction == "mean" and loss.label_smoothing == 0.0
        return plain and loss.ignore_index == nn.CrossEntropyLoss().ignore_index
    return loss is None or loss is functional.cross_entropy


def default_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean cross entropy of outputs, one row a sample, and targets, one class each.

    Args:
        outputs: What the model returned.
        targets: The right classes.

    """
    if targets.is_floating_point():
        raise ValueError(
            f"targets are {targets.dtype}, and the default loss is the cross entropy of whole-number classes: give "
            "a loss, such as torch.nn.functional.mse_loss"
        )
    return functional.cross_entropy(outputs, targets)
