"""The federation that a method is given: it counts what clients do, and holds back what was not declared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from disavow.compare.local_training import LocalTraining
from disavow.compare.memory_rounds import run_rounds
from disavow.compare.method import Method
from disavow.compare.problem import Problem
from disavow.compare.training import TrainedRound, Training
from disavow.data.dataset import Indices
from disavow.domain import Evaluation
from disavow.engines.batches import batches_from
from disavow.engines.stacked.task_stack import StackedClient, StackedOptimizer
from disavow.engines.stacked.tasks import reproducible
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.errors import StrategyError
from disavow.ledger import Ledger
from disavow.ledger.copying import scratch_copy
from disavow.rounds.randomness import Stream, derive
from disavow.rounds.vectors import Model, Updates
from disavow.tasks.loading import seeded
from disavow.tasks.samples import Positions, selected
from disavow.tasks.task import TARGETS
from disavow.tasks.training import optimizer_of

OnProgress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Show nothing of how far a method is."""


@dataclass
class Meter:
    """What a method cost.

    Attributes:
        client_epochs: Local epochs, over all clients.
        bytes_sent: Models to clients and updates from them.
        seconds: From its start to its end.

    """

    client_epochs: float = 0.0
    bytes_sent: int = 0
    seconds: float = 0.0

    def count(self, clients: int, epochs: int, model_bytes: int) -> None:
        """Count clients who get a model, train and send an update.

        Args:
            clients: How many.
            epochs: Local epochs of each.
            model_bytes: What a model takes, and an update.

        """
        self.client_epochs += clients * epochs
        self.bytes_sent += 2 * clients * model_bytes


class MeteredTrainer:
    """A trainer that counts.

    Args:
        trainer: What trains.
        meter: What counts.

    """

    def __init__(self, trainer: Trainer, meter: Meter) -> None:
        self._trainer, self._meter = trainer, meter

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        for ask in asks:
            self._meter.count(len(ask.clients), ask.workload.settings.epochs, 4 * ask.model.layout.size)
        return self._trainer.train(asks)

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`."""
        return self._trainer.evaluate(workload, models)

    def close(self) -> None:
        """Leave the trainer to whoever built it."""


class MeteredFederation:
    """See `method.Federation`.

    Args:
        problem: What is compared on.
        training: What the method starts from.
        method: Whose declarations count.
        trainer: Trains clients.
        copy: Where a copy of the training's ledger lies while the method works on it.
        on_progress: Called as the method goes on.

    Attributes:
        meter: What has been done so far.

    """

    def __init__(
        self,
        problem: Problem,
        training: Training,
        method: Method,
        *,
        trainer: Trainer,
        copy: Path,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        self.problem = problem
        self.meter = Meter()
        self.trainer = MeteredTrainer(trainer, self.meter)
        self._training, self._method = training, method
        self._copy, self._on_progress = copy, on_progress
        self._workload = problem.workload(training.seed, without_leaver=True)
        self._whole = problem.workload(training.seed, without_leaver=False)
        self._given = declared_training(training, method)

    @property
    def leaver(self) -> str:
        """See `Federation`."""
        return self.problem.leaver

    @property
    def remaining(self) -> tuple[str, ...]:
        """See `Federation`."""
        return self.problem.remaining

    @property
    def training(self) -> Training:
        """See `Federation`."""
        return self._given

    @property
    def epochs(self) -> int:
        """See `Federation`."""
        return self.problem.subject.settings.training.epochs

    @property
    def seed(self) -> int:
        """See `Federation`."""
        return self.problem.seed_of(self._training.seed)

    @property
    def workload(self) -> Workload:
        """What those who remain train on."""
        return self._workload

    def train(
        self, vector: Tensor, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Federation`.

        Raises:
            StrategyError: One of the clients does not remain.

        """
        self._refuse_strangers(clients)
        return self._train(self._workload, vector, clients, round_number, epochs)

    def train_with(
        self, vector: Tensor, clients: Sequence[str], round_number: int, optimizer: StackedOptimizer
    ) -> Tensor:
        """See `Federation`.

        Raises:
            StrategyError: One of the clients does not remain.

        """
        self._refuse_strangers(clients)
        self.meter.count(len(clients), self.epochs, self.problem.model_bytes)
        model = self._given.model(vector.cpu())
        stacked = [self._stacked_client(client, round_number) for client in clients]
        return self._local_training.train(model, stacked, optimizer)

    @cached_property
    def _local_training(self) -> LocalTraining:
        subject = self.problem.subject
        samples = {client: selected(subject.samples, self._held(client)) for client in self.remaining}
        loaded = replace(subject.loaded, samples=samples)
        workload = TaskWorkload(loaded, subject.settings.training, self.seed, self.problem.device)
        # the small kernels of one client leave a GPU idle; a core is busy with them, and slower with a stack's
        return LocalTraining(workload, stacked=self.problem.device.type == "cuda")

    def _stacked_client(self, client: str, round_number: int) -> StackedClient:
        """A client with the batches that `batches` gives."""
        ordered = list(
            self._ordered(len(self._held(client)), self._batch_stream(client, round_number), self.epochs)
        )
        drawn = self.stream(f"draws of {client} in round {round_number}")
        return StackedClient(client, drawn.below(1 << 63), ordered, drawn.words(len(ordered)))

    def train_leaver(self, vector: Tensor, round_number: int, *, epochs: int | None = None) -> Updates:
        """See `Federation`.

        Raises:
            StrategyError: The method does not declare that the leaver helps.

        """
        self._refuse_leaver()
        return self._train(self._whole, vector, [self.leaver], round_number, epochs)

    def _train(
        self, workload: Workload, vector: Tensor, clients: Sequence[str], number: int, epochs: int | None
    ) -> Updates:
        model = self._given.model(vector.cpu())
        return self.trainer.train([Ask(workload.training_for(epochs), model, tuple(clients), number)])[0]

    def run_rounds(self, vector: Tensor, first: int, last: int) -> Iterator[Tensor]:
        """See `Federation`."""
        run = self.problem.memory_run(
            self._training.seed,
            f"rounds of {self._method.name}",
            without_leaver=True,
            vector=vector,
            number=first,
            workload=self._workload,
        )
        run.previous = self._clusters_before(first)
        for _ in range(first, last + 1):
            run_rounds([run], self.trainer, 1)
            yield run.vector

    def _clusters_before(self, number: int) -> tuple[tuple[str, ...], ...]:
        """Who was together in the round before one of the training, or in the last: what a server goes on from."""
        training, newest = self._training, min(number - 1, len(self._training.rounds))
        if training.run is None or newest < 1:
            return ()
        with Ledger.open(training.run, keys=training.keys) as ledger:
            found = ledger.membership(newest)
        return tuple(tuple(client for client in group if client in self.remaining) for group in found)

    def network(self, vector: Tensor) -> nn.Module:
        """See `Federation`."""
        return self.problem.network(vector)

    def vector_of(self, network: nn.Module) -> Tensor:
        """See `Federation`."""
        return self.problem.vector_of(network)

    def loss(self, network: nn.Module, batch: Any) -> Tensor:
        """See `Federation`."""
        return self.problem.subject.task.loss(network, batch)

    def log_likelihoods(self, network: nn.Module, batch: Any) -> Tensor:
        """See `Federation`.

        Raises:
            StrategyError: The method does not declare that it needs likelihoods.

        """
        if not self._method.needs_likelihood:
            raise self._undeclared("computes likelihoods", "needs_likelihood")
        found = self.problem.subject.task.log_likelihoods(network, batch)
        if found is None:
            raise self._undeclared("computes likelihoods, and the loss of the task is none")
        return found

    def optimizer(self, network: nn.Module, round_number: int) -> Optimizer:
        """See `Federation`."""
        return optimizer_of(self.problem.subject.task, network, round_number)

    def batches(self, client: str, round_number: int, *, epochs: int = 1, gradients: bool = False) -> Iterator[Any]:
        """See `Federation`.

        Raises:
            StrategyError: It is the leaver, and the method does not declare that it helps.

        """
        positions = self._held(client)
        self.meter.count(1, epochs, self.problem.model_bytes)
        drawn = self._batches(positions, self._batch_stream(client, round_number), epochs)
        return self._exchanged(drawn) if gradients else drawn

    def _exchanged(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Count a model and a gradient for each batch after the first, which `Meter.count` counts."""
        for number, batch in enumerate(batches):
            if number:
                self.meter.bytes_sent += 2 * self.problem.model_bytes
            yield batch

    def public_batches(self, seed: int, *, epochs: int = 1) -> Iterator[Any]:
        """See `Federation`.

        Raises:
            StrategyError: The method does not declare that it needs public data.

        """
        if not self._method.needs_public_data:
            raise self._undeclared("uses public data", "needs_public_data")
        for batch in self._batches(self.problem.public, self.stream(f"public batches {seed}"), epochs):
            yield _unlabelled(batch)

    def _batches(self, positions: Indices, stream: Stream, epochs: int) -> Iterator[Any]:
        for batch in self._ordered(len(positions), stream, epochs):
            yield self.problem.batch(positions[batch])

    def _batch_stream(self, client: str, round_number: int) -> Stream:
        return self.stream(f"batches of {client} in round {round_number}")

    def _ordered(self, samples: int, stream: Stream, epochs: int) -> Iterator[Positions]:
        size = self.problem.subject.settings.training.batch_size
        return batches_from(stream, samples, epochs=epochs, batch_size=size)

    def samples_of(self, client: str) -> int:
        """See `Federation`."""
        subject = self.problem.subject
        if client != self.leaver:
            return len(subject.parts[client])
        return len(subject.kept if subject.erased and not self._method.leaver_helps else subject.own)

    def _held(self, client: str) -> Indices:
        """What a client trains on: all that leaves, where the leaver helps with that; else what stays of it."""
        subject = self.problem.subject
        if client != self.leaver:
            return np.asarray(subject.parts[client])
        if not subject.erased:
            self._refuse_leaver()
        return subject.own if self._method.leaver_helps else subject.kept

    @contextmanager
    def copied_run(self) -> Iterator[Ledger]:
        """See `Federation`."""
        training = self._training
        if training.run is None or training.keys is None:
            raise self._undeclared(f"opens a ledger, and the scheme {self._method.scheme!r} has none")
        with scratch_copy(training.run, self._copy, keys=training.keys) as ledger:
            yield ledger

    def stream(self, purpose: str) -> Stream:
        """See `Federation`."""
        problem, training = self.problem, self._training
        return Stream(derive("compare", problem.seed_of(training.seed), self._method.name, purpose))

    def tell(self, done: int, total: int) -> None:
        """See `Federation`."""
        self._on_progress(done, total)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the seconds of what is done in here.

        A method's own steps are small and many: one thread takes them sooner than several, and by kernels that
        repeat themselves.
        """
        began = time.perf_counter()
        try:
            # dropout draws from torch's generators, whose state depends on what this process did before
            with (
                reproducible(self.problem.device),
                seeded(self.stream("draws").below(1 << 63), self.problem.device),
            ):
                yield
        finally:
            self.meter.seconds += time.perf_counter() - began

    def _refuse_strangers(self, clients: Sequence[str]) -> None:
        strangers = [client for client in clients if client not in self.remaining]
        if strangers:
            raise self._undeclared(f"lets {strangers[0]} train, who does not remain")

    def _refuse_leaver(self) -> None:
        if not self._method.leaver_helps:
            raise self._undeclared("lets the leaver help", "leaver_helps")

    def _undeclared(self, what: str, declaration: str = "") -> StrategyError:
        return undeclared(self._method.name, what, declaration)


def _unlabelled(batch: Any) -> Any:
    """The same inputs with zeros in the place of targets."""
    if isinstance(batch, tuple | list) and batch and isinstance(batch[-1], Tensor):
        return (*batch[:-1], torch.zeros_like(batch[-1]))
    if isinstance(batch, Mapping):
        return {name: torch.zeros_like(value) if name in TARGETS else value for name, value in batch.items()}
    return batch


def undeclared(method: str, what: str, declaration: str = "") -> StrategyError:
    """Make the refusal of what a method does without having declared it.

    Args:
        method: Its name.
        what: What it does, as the end of a sentence.
        declaration: What would allow it.

    """
    allowed = f"; allowed where it declares {declaration}" if declaration else ""
    return StrategyError(f'method "{method}" {what}{allowed}')


class _HeldBack(TrainedRound):
    """A round of which a server that stores less knows less: looking at the rest is refused."""

    method: str
    lacking: tuple[str, ...]

    def __getattribute__(self, name: str) -> Any:
        if name in ("before", "updates") and name in object.__getattribute__(self, "lacking"):
            needed = {"before": "models", "updates": "updates"}[name]
            method = object.__getattribute__(self, "method")
            raise undeclared(method, f"looks at the {needed} of a round", f'stores = "{needed}"')
        return object.__getattribute__(self, name)


@dataclass(frozen=True, eq=False)
class _DeclaredTraining(Training):
    """A training whose first model is known, whatever was stored: a server has the model that it began with."""

    first: Tensor | None = field(default=None)

    @property
    def initial(self) -> Tensor:
        """The model before the first round."""
        if self.first is None:
            return super().initial
        return self.first


def declared_training(training: Training, method: Method) -> Training:
    """Give a training as a server knows it that stores what a method declares.

    Args:
        training: All of it.
        method: Whose server it is.

    """
    lacking = {"nothing": ("before", "updates"), "models": ("updates",), "updates": ()}[method.stores]
    known = {name: getattr(training, name) for name in ("layout", "served", "seed", "run", "keys")}
    rounds = (
        tuple(_held_back(each, method.name, lacking) for each in training.rounds) if lacking else training.rounds
    )
    return _DeclaredTraining(rounds=rounds, first=training.initial, **known)


def _held_back(each: TrainedRound, method: str, lacking: tuple[str, ...]) -> TrainedRound:
    found = object.__new__(_HeldBack)
    for name in ("number", "before", "clients", "samples", "updates"):
        object.__setattr__(found, name, getattr(each, name))
    object.__setattr__(found, "method", method)
    object.__setattr__(found, "lacking", lacking)
    return found
