"""What the reference engine trains of any task: each client by the task's own loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Layout, escaped
from disavow.engines.batches import batches
from disavow.engines.state import refuse_run
from disavow.errors import DisavowError, TaskError
from disavow.rounds.randomness import training_stream
from disavow.tasks.loading import LoadedTask, seeded
from disavow.tasks.samples import Positions, Samples
from disavow.tasks.training import own_frames, train_client


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
        return replace(self, settings=self.settings.model_copy(update={"epochs": epochs}))

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
                    self._batches(len(samples), client, round_number),
                    client=client,
                    round_number=round_number,
                    device=self.device,
                )
                return
            network.train()
            try:
                own_loop(network, self.loaded.data[client], seed)
            except DisavowError:
                raise
            except Exception as error:
                raise TaskError(
                    f"client {escaped(client)} in round {round_number}: train_client raised "
                    f"{type(error).__name__}: {error}{own_frames(error)}"
                ) from error

    def _batches(self, samples: int, client: str, round_number: int) -> Iterator[Positions]:
        return batches(
            samples,
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
        with seeded(training_stream(self.seed, "evaluation").below(1 << 63), self.device):
            try:
                measured: Any = task.evaluate(network, data)
                return Evaluation(**{str(name): _finite_or_nan(value) for name, value in dict(measured).items()})
            except DisavowError:
                raise
            except Exception as error:
                raise TaskError(
                    f"{type(task).__name__}.evaluate() raised {type(error).__name__}: {error}{own_frames(error)}"
                ) from error


def _finite_or_nan(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else math.nan
