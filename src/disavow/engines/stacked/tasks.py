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
from disavow.engines.stacked.task_stack import ClientRows, StackedClient, StackedLoss, TaskStack, read_optimizer
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


class StackedTasks:
    """Trains all clients of a task at once.

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
        self._workload, self._precision = workload, precision
        self._task, self._device = workload.loaded.task, workload.device
        if hasattr(self._task, "train_client"):
            raise CannotStack("the task has a training loop of its own")
        self._layout = layout_of(workload.network)
        # in full precision: rounding of TF32 differs between a stack and a client alone by more than a trial allows
        with reproducible(self._device), seeded(0, self._device):
            trial = StackTrial.of(workload)
            read_optimizer(self._task, workload.network, 1)
            self._network = StackedLoss(self._task, workload.network, self._device)
            self._at_most = trial.compare(workload, self._network)
        self._rows = ClientRows.of(workload)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`.

        Raises:
            CannotStack: What worked on the first samples does not on these.
            RoundRefused: The loss of a client became NaN or infinite.

        """
        require_layout([model], self._layout)
        workload = self._workload.training_for(epochs)
        jobs = [StackedClient.of(workload, client, round_number) for client in clients]
        # those with most steps first: whoever has done its last is at the end of the stack, and is cut off
        order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i].batches))
        vectors = torch.zeros(len(jobs), self._layout.size)

        def train_some(which: Sequence[int]) -> Tensor:
            try:
                return self._train_stack(model, [jobs[i] for i in which], round_number)
            except (CannotStack, DisavowError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise CannotStack(f"in round {round_number} torch.func cannot: {error_line(error)}") from error

        def shortage(stacked: int) -> None:
            self._at_most = max(1, stacked // 2)
            torch.cuda.empty_cache()

        size = even_chunks(len(order), self._at_most)
        seed = training_stream(workload.seed, "stack", round_number=round_number).below(1 << 63)
        with reproducible(self._device, self._precision), seeded(seed, self._device):
            for which, part in in_chunks(order, size, train_some, shortage=shortage):
                vectors[list(which)] = part.to(vectors.device)
        samples = tuple(len(workload.parts[client]) for client in clients)
        name = "stacked" if self._precision == "float32" else f"stacked {self._precision}"
        return Updates(tuple(clients), samples, vectors, name)

    def close(self) -> None:
        """Let go of what is on the device."""
        self._rows = ClientRows(None, {})
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _train_stack(self, model: Model, clients: Sequence[StackedClient], round_number: int) -> Tensor:
        """The updates of clients that are stacked at once, sorted by their steps."""
        start = model.vector.to(self._device)
        stack = TaskStack(self._network, self._task, Model(model.layout, start), len(clients), round_number)
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
        finite = torch.isfinite(total).tolist()
        if not all(finite):
            raise not_finite(clients[finite.index(False)].client, round_number)
        return stack.vectors - start


def _padded(words: np.ndarray[Any, np.dtype[np.uint64]], length: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.pad(words, (0, length - len(words)))
