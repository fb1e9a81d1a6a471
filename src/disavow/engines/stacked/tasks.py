"""Train the clients of any task in one stack: the task's own loss and optimizer, over stacked parameters.

    clients -> stacks that fit into memory -> one step of all of them after the other -> updates

The loss is the user's own code, mapped over clients by `torch.func.vmap`. The optimizer is PyTorch's own: SGD, Adam
and AdamW treat every number by itself, so that over stacked parameters each client has its own state. Whatever
cannot be stacked is found out by trying: one step of two clients, compared with the same steps taken alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disavow.domain import EngineChoice
from disavow.engines.stacked.check import CannotStack, error_line
from disavow.engines.stacked.dropout import keys_of
from disavow.engines.stacked.precision import Precision, multiplication_precision
from disavow.engines.stacked.task_check import StackTrial
from disavow.engines.stacked.task_stack import (
    ClientRows,
    StackedClient,
    StackedLoss,
    StackedOptimizer,
    TaskStack,
    read_optimizer,
)
from disavow.engines.stacked.trainer import even_chunks, in_chunks
from disavow.engines.state import layout_of
from disavow.engines.task_workload import TaskWorkload
from disavow.errors import DisavowError
from disavow.rounds.randomness import training_stream
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Model, Updates, require_layout
from disavow.tasks.loading import seeded
from disavow.tasks.training import not_finite

_STACKED = EngineChoice("stacked")


@contextmanager
def reproducible(device: torch.device, precision: Precision = "float32") -> Iterator[None]:
    """Compute with a precision, and by kernels that repeat themselves where there are some.

    Args:
        device: Where; on a CPU one thread computes, as the reference does.
        precision: How exact products are.

    """
    if device.type != "cuda":
        with one_thread():
            yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.cuda.device(device), multiplication_precision(precision), warnings.catch_warnings():
        # where a kernel has no other form, an erasure's report says that the retraining is not reproducible
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=only_warns)


class ClientStacks:
    """Trains clients of a task in stacks that fit into memory, by the task's loss and any optimizer.

    Args:
        workload: The task, with the device where it is trained.
        precision: How exact products are, on a GPU.

    Raises:
        CannotStack: Its clients cannot be stacked.

    """

    def __init__(self, workload: TaskWorkload, *, precision: Precision = "float32") -> None:
        self._workload, self._precision = workload, precision
        self._device = workload.device
        self._layout = layout_of(workload.network)
        # in full precision: rounding of TF32 differs between a stack and a client alone by more than a trial allows
        with reproducible(self._device), seeded(0, self._device):
            trial = StackTrial.of(workload)
            self._network = StackedLoss(workload.loaded.task, workload.network, self._device)
            self._at_most = trial.compare(workload, self._network)
        self._rows = ClientRows.of(workload)

    def train_clients(
        self,
        model: Model,
        clients: Sequence[StackedClient],
        optimizer: StackedOptimizer,
        *,
        seed: int = 0,
        clip_gradients: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Train clients from a model.

        Args:
            model: What they start from.
            clients: Who trains, on which batches.
            optimizer: Makes the optimizer of each stack.
            seed: Of whatever draws that is no client's.
            clip_gradients: Bounds the norm of each client's gradient; None: it is not bounded.

        Returns:
            The update of each client, one row each, and the sum of its losses; on the CPU.

        Raises:
            CannotStack: What worked on the first samples does not on these.

        """
        require_layout([model], self._layout)
        # those with most steps first: whoever has done its last is at the end of the stack, and is cut off
        order = sorted(range(len(clients)), key=lambda i: -len(clients[i].batches))
        vectors, losses = torch.zeros(len(clients), self._layout.size), torch.zeros(len(clients))

        def train_some(which: Sequence[int]) -> tuple[Tensor, Tensor]:
            try:
                return self._train_stack(model, [clients[i] for i in which], optimizer, clip_gradients)
            except (CannotStack, DisavowError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise CannotStack(f"torch.func cannot: {error_line(error)}") from error

        def shortage(stacked: int) -> None:
            self._at_most = max(1, stacked // 2)
            torch.cuda.empty_cache()

        size = even_chunks(len(order), self._at_most)
        with reproducible(self._device, self._precision), seeded(seed, self._device):
            for which, (part, total) in in_chunks(order, size, train_some, shortage=shortage):
                vectors[list(which)], losses[list(which)] = part.to(vectors.device), total.to(losses.device)
        return vectors, losses

    def close(self) -> None:
        """Let go of what is on the device."""
        self._rows = ClientRows(None, {})
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _train_stack(
        self,
        model: Model,
        clients: Sequence[StackedClient],
        optimizer: StackedOptimizer,
        clip_gradients: float | None,
    ) -> tuple[Tensor, Tensor]:
        """The updates and losses of clients that are stacked at once, sorted by their steps."""
        start = model.vector.to(self._device)
        stack = TaskStack(
            self._network, Model(model.layout, start), len(clients), optimizer, clip_gradients=clip_gradients
        )
        data = [self._rows.read(self._workload, client) for client in clients]
        words = np.stack([_padded(client.words, len(clients[0].batches)) for client in clients])
        keys = keys_of(words, self._device)
        total = torch.zeros(len(clients), device=self._device)
        for step in range(len(clients[0].batches)):
            active = sum(step < len(client.batches) for client in clients)
            stack.keep(active)
            groups = self._rows.groups(clients[:active], data[:active], step, self._device)
            total[:active] += stack.step(groups, keys[:active, step])
        stack.keep(0)
        return stack.vectors - start, total


class StackedTasks(ClientStacks):
    """Trains all clients of a task at once, by the task's own optimizer.

    Args:
        workload: The task, with the device where it is trained.
        precision: How exact products are, on a GPU.
        choice: Why no faster engine trains.

    Raises:
        CannotStack: Its clients cannot be stacked.

    """

    def __init__(
        self,
        workload: TaskWorkload,
        *,
        precision: Precision = "float32",
        choice: EngineChoice = _STACKED,
    ) -> None:
        self.choice = choice
        self._task = workload.loaded.task
        if hasattr(self._task, "train_client"):
            raise CannotStack("the task has a training loop of its own")
        super().__init__(workload, precision=precision)
        read_optimizer(self._task, workload.network, 1)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`.

        Raises:
            CannotStack: What worked on the first samples does not on these.
            RoundRefused: The loss of a client became NaN or infinite.

        """
        workload = self._workload.training_for(epochs)
        vectors, losses = self.train_clients(
            model,
            [StackedClient.of(workload, client, round_number) for client in clients],
            read_optimizer(self._task, self._network.network, round_number).over,
            seed=training_stream(workload.seed, "stack", round_number=round_number).below(1 << 63),
            clip_gradients=self._task.clip_gradients,
        )
        finite = torch.isfinite(losses).tolist()
        if not all(finite):
            raise not_finite(clients[finite.index(False)], round_number)
        samples = tuple(len(workload.parts[client]) for client in clients)
        name = "stacked" if self._precision == "float32" else f"stacked {self._precision}"
        return Updates(tuple(clients), samples, vectors, name)


def _padded(words: np.ndarray[Any, np.dtype[np.uint64]], length: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.pad(words, (0, length - len(words)))
