"""What the reference engine trains of any task: each client by the task's own loss and optimizer."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Exclusions, Layout, escaped
from disavow.engines.batches import batches
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import frozen_digest, model_of, refuse_run
from disavow.errors import TaskError
from disavow.rounds.randomness import training_stream
from disavow.tasks.factory import Factory
from disavow.tasks.loading import LoadedTask, load, seeded
from disavow.tasks.samples import Positions, Samples
from disavow.tasks.task import Task
from disavow.tasks.training import train_client
from disavow.tasks.user_errors import name_of, own_code


@dataclass(frozen=True, eq=False)
class TaskWorkload:
    """A task with the settings and the seed of a run.

    Args:
        loaded: The task, its model and its data.
        settings: How clients train.
        seed: The run's seed.
        device: Where they train.

    """

    loaded: LoadedTask
    settings: TrainingSettings
    seed: int
    device: torch.device = torch.device("cpu")
    _others: dict[int, TaskWorkload] = field(default_factory=dict, init=False, repr=False)

    @property
    def network(self) -> nn.Module:
        """The model's architecture; its weights play no part."""
        return self.loaded.network

    @property
    def parts(self) -> Mapping[str, Samples]:
        """Each client's samples."""
        return self.loaded.samples

    def prepared(self, network: nn.Module) -> nn.Module:
        """Give a network where it is trained."""
        return network.to(self.device)

    def samples_of(self, client: str) -> Samples:
        """Give what a client trains on."""
        return self.loaded.samples[client]

    def training_for(self, epochs: int | None) -> TaskWorkload:
        """Give the same with another number of local epochs; None for its own."""
        if epochs is None or epochs == self.settings.epochs:
            return self
        if epochs not in self._others:  # made once: worker processes know a workload again by its identity
            other = self.settings.model_copy(update={"epochs": epochs})
            self._others[epochs] = replace(self, settings=other)
        return self._others[epochs]

    def shared_tensors(self) -> tuple[Tensor, ...]:
        """List nothing: a worker process loads the task's data itself."""
        return ()

    def bare(self) -> TaskCopy:
        """Give what a worker process builds the same from."""
        loaded = self.loaded
        return TaskCopy(
            loaded.factory,
            loaded.task if loaded.factory is None else None,
            loaded.task.training,
            self.settings,
            self.seed,
            _fingerprint(loaded.network),
            loaded.digests,
            loaded.exclusions,
        )

    @cached_property
    def _engine(self) -> SequentialEngine[Evaluation | None]:
        return SequentialEngine(self)

    def engine_for(self, clients: Sequence[str]) -> SequentialEngine[Evaluation | None]:  # noqa: ARG002
        """Give the reference engine, which copies no samples."""
        return self._engine

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `rounds.local_training.ChecksRuns`."""
        refuse_run("task", self.network, self.parts, layout, clients)

    def train(self, network: nn.Module, samples: Samples, client: str, round_number: int) -> None:
        """Train a network in place for one client's round, with every draw from seed, round and client.

        Args:
            network: The model as it was broadcast.
            samples: What the client holds.
            client: Who trains.
            round_number: Which round it is.

        Raises:
            RoundRefused: The loss became NaN or infinite.
            TaskError: The user's code raised.

        """
        task = self.loaded.task
        stream = training_stream(self.seed, "task", round_number=round_number, client=client)
        seed = stream.below(1 << 63)
        own_loop = getattr(task, "train_client", None)
        with seeded(seed, self.device):
            if own_loop is None:
                train_client(
                    task,
                    network,
                    samples,
                    self.batches_of(client, round_number),
                    client=client,
                    round_number=round_number,
                    device=self.device,
                )
                return
            network.train()
            with own_code(f"client {escaped(client)} in round {round_number}: {name_of(task, 'train_client')}"):
                own_loop(network, self.loaded.data[client], seed)

    def batches_of(self, client: str, round_number: int) -> Iterator[Positions]:
        """Order a client's samples in batches, as every engine takes them."""
        return batches(
            len(self.parts[client]),
            epochs=self.settings.epochs,
            batch_size=self.settings.batch_size,
            seed=self.seed,
            round_number=round_number,
            client=client,
        )

    def evaluate(self, network: nn.Module) -> Evaluation | None:
        """Measure a network, in evaluation mode, on the task's test data; None where it has none.

        Raises:
            TaskError: The user's code raised, or returned something else than figures by name.

        """
        task, data = self.loaded.task, self.loaded.test
        if data is None:
            return None
        name = name_of(task, "evaluate")
        stream = training_stream(self.seed, "evaluation")
        with own_code(name), seeded(stream.below(1 << 63), self.device):
            measured: Any = task.evaluate(network, data)
            if not isinstance(measured, Mapping):
                raise TaskError(f"{name} is a {type(measured).__name__}; allowed: a mapping from names to numbers")
            figures = {str(metric): _finite_or_nan(value) for metric, value in measured.items()}
        _refuse_ids(name, figures, self.parts)
        return Evaluation(**figures)


class CannotRebuild(Exception):
    """A task that a worker process could not build again, or built otherwise. The process that trains has it."""


@dataclass(frozen=True, eq=False)
class TaskCopy:
    """What a worker process builds a task from, and by what it knows that it is the same.

    Args:
        factory: What makes the task; None where the task itself is sent.
        task: The task itself, whose class can be imported.
        training: How clients train, as the task was given it.
        settings: The same, perhaps with another number of epochs.
        seed: The run's seed.
        network: The fingerprint of the model.
        digests: What each client holds.
        exclusions: Records that were erased: the worker leaves them out by itself, and is sent hashes of them.

    """

    factory: Factory | None
    task: Task | None
    training: TrainingSettings
    settings: TrainingSettings
    seed: int
    network: str
    digests: Mapping[str, str]
    exclusions: Mapping[str, Exclusions] = field(default_factory=dict)

    def filled(self, tensors: Sequence[Tensor]) -> TaskWorkload:  # noqa: ARG002 - a task brings its own
        """Build the task again, as it was in the process that trains.

        Args:
            tensors: None are needed.

        Raises:
            CannotRebuild: Its code raised, or it came out another.

        """
        try:
            task = self.task if self.factory is None else self.factory.build()
            if task is None:
                raise CannotRebuild("neither it nor its factory was sent")
            loaded = load(task, training=self.training, seed=self.seed, factory=self.factory)
            loaded = loaded.without(self.exclusions)
            digests = loaded.digests
        except Exception as error:
            raise CannotRebuild(f"it cannot be built in a worker process: {error}") from error
        if _fingerprint(loaded.network) != self.network:
            raise CannotRebuild("its model comes out another in a worker process")
        changed = [client for client, digest in self.digests.items() if digests.get(client) != digest]
        if changed:
            raise CannotRebuild(f"the data of {escaped(changed[0])} comes out other in a worker process")
        return TaskWorkload(loaded, self.settings, self.seed)


def _fingerprint(network: nn.Module) -> str:
    """Compute the SHA-256 of all that a model starts with: what is trained, what is frozen, and whole numbers."""
    model = model_of(network)
    found = hashlib.sha256(model.layout.to_json().encode())
    found.update(model.vector.cpu().numpy().data)
    found.update((frozen_digest(network) or "").encode())
    return found.hexdigest()


def _refuse_ids(name: str, metrics: Iterable[str], clients: Iterable[str]) -> None:
    """Refuse metrics that are named after a client: they would stay in the run when it has left.

    An id of digits alone may be any number, such as that of a top-5 accuracy.
    """
    for metric in set(metrics) - {"accuracy", "loss"}:
        for client in clients:
            if client not in metric or client.isdigit():
                continue
            if re.search(rf"(?<![^\W_]){re.escape(client)}(?![^\W_])", metric):  # a word of its own
                raise TaskError(
                    f"{name} has the metric {metric!r}, named after client {escaped(client)}, and a run keeps no "
                    "ids; allowed: any other name"
                )


def _finite_or_nan(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else math.nan
