"""What an engine is made from: a network, the samples, who holds which of them, and how clients train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Layout
from disavow.engines.batches import batches
from disavow.engines.objectives import EVALUATION_BATCH, Task, evaluation_of, task_of
from disavow.engines.sequential import SequentialEngine
from disavow.engines.sgd import layout_for, train_network
from disavow.engines.state import refuse_run
from disavow.rounds.randomness import training_stream
from disavow.tasks.images import ImageTask
from disavow.tasks.loading import seeded
from disavow.tasks.samples import Positions
from disavow.tasks.training import cannot_train


@dataclass(frozen=True, eq=False)
class Workload:
    """The same for every engine, so that one can be put in place of another.

    `network` gives the architecture; its weights play no part. `images` and `labels` are all training samples,
    `parts` the numbers of those that each client holds. Labels are classes, (n,) whole numbers, or attributes,
    (n, attributes) of 0 or 1 in float32; `tasks` says what is learned from either.
    """

    network: nn.Module
    images: Tensor
    labels: Tensor
    parts: Mapping[str, npt.NDArray[np.int64]]
    test_images: Tensor
    test_labels: Tensor
    settings: TrainingSettings
    seed: int
    _others: dict[int, Workload] = field(default_factory=dict, init=False, repr=False)

    @property
    def task(self) -> Task:
        """What the labels are: one class a sample, or attributes."""
        return task_of(self.labels)

    def training_for(self, epochs: int | None) -> Workload:
        """Give the same workload another number of local epochs.

        Made once for each number: trainers know a workload again by its identity.

        Args:
            epochs: How many; None for its own.

        Returns:
            The workload.
        """
        if epochs is None or epochs == self.settings.epochs:
            return self
        if epochs not in self._others:
            other = self.settings.model_copy(update={"epochs": epochs})
            self._others[epochs] = replace(self, settings=other)
        return self._others[epochs]

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `rounds.local_training.ChecksRuns`."""
        refuse_run("engine", self.network, self.parts, layout, clients)

    def shared_tensors(self) -> tuple[Tensor, ...]:
        """List the samples, which worker processes map and are not sent."""
        return self.images, self.labels, self.test_images, self.test_labels

    def bare(self) -> Workload:
        """Give the same without its samples, as it is sent to a worker process."""
        none = torch.empty(0)
        return replace(self, images=none, labels=none, test_images=none, test_labels=none)

    def filled(self, tensors: Sequence[Tensor]) -> Workload:
        """Undo `bare`, with the samples where they are now."""
        images, labels, test_images, test_labels = tensors
        return replace(self, images=images, labels=labels, test_images=test_images, test_labels=test_labels)

    def engine_for(self, clients: Sequence[str]) -> SequentialEngine[Evaluation]:
        """Build the reference engine for some clients, copying only their samples."""
        return SequentialEngine(replace(self, parts={client: self.parts[client] for client in clients}))

    def prepared(self, network: nn.Module) -> nn.Module:
        """Give a network in the memory format in which it is trained on a CPU."""
        return network.to(memory_format=layout_for(network))  # type: ignore[call-overload,no-any-return]

    def samples_of(self, client: str) -> tuple[Tensor, Tensor]:
        """Copy what a client trains on; all images, in another memory format, would be a second copy of them."""
        images, labels = self.images[self.parts[client]], self.labels[self.parts[client]]
        is_image = images.dim() == 4  # noqa: PLR2004 - a batch of channels, height and width
        return images.contiguous(memory_format=layout_for(self.network)) if is_image else images, labels

    def train(self, network: nn.Module, samples: tuple[Tensor, Tensor], client: str, round_number: int) -> None:
        """Train a network in place for one client's round, with every draw from seed, round and client.

        Args:
            network: The model as it was broadcast.
            samples: What `samples_of` gave.
            client: Who trains.
            round_number: Which round it is.

        Raises:
            TaskError: The network, which may be the user's own, cannot take a batch.

        """
        stream = training_stream(self.seed, "task", round_number=round_number, client=client)
        newest: Positions = np.empty(0, np.int64)

        def batches_seen() -> Iterator[Positions]:
            nonlocal newest
            for newest in self.batches_of(client, round_number):  # noqa: UP028
                yield newest  # and an error names it

        try:
            with seeded(stream.below(1 << 63)):
                train_network(network, *samples, batches_seen(), self.settings)
        except Exception as error:
            batch = tuple(each[newest] for each in samples)
            raise cannot_train(client, round_number, batch, error) from error

    def evaluate(self, network: nn.Module) -> Evaluation:
        """Measure a network, in evaluation mode, on the test samples."""
        scores = torch.cat([network(part) for part in self.test_images.split(EVALUATION_BATCH)])
        return evaluation_of(scores, self.test_labels)

    def batches_of(self, client: str, round_number: int) -> Iterator[npt.NDArray[np.int64]]:
        """Order a client's samples in batches, as every engine takes them.

        Args:
            client: Its id.
            round_number: The round.

        Yields:
            Positions among the client's own samples.
        """
        return batches(
            len(self.parts[client]),
            epochs=self.settings.epochs,
            batch_size=self.settings.batch_size,
            seed=self.seed,
            round_number=round_number,
            client=client,
        )


def image_workload(task: ImageTask, network: nn.Module, settings: TrainingSettings, seed: int) -> Workload:
    """Describe the built-in images as what their engines train on.

    Args:
        task: The images, read.
        network: The architecture.
        settings: How clients train.
        seed: The run's seed.

    """
    data = task.data
    return Workload(
        network=network,
        images=data.train.images,
        labels=data.train.labels,
        parts=data.parts,
        test_images=data.test.images,
        test_labels=data.test.labels,
        settings=settings,
        seed=seed,
    )
