"""Trains the clients of any number of federations in stacks. For networks that the kernels know, on a GPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from disavow.domain import Evaluation
from disavow.engines.fused import nvrtc
from disavow.engines.fused.batching import Client, batch_index_of, clients_of
from disavow.engines.fused.check import check_reading
from disavow.engines.fused.memory import Memory
from disavow.engines.fused.network import row_of
from disavow.engines.fused.nodes import Convolution, cells
from disavow.engines.fused.stack import Stack
from disavow.engines.fused.tiling import CHUNK, tiling_of, whole_rows
from disavow.engines.objectives import evaluation_of, task_of
from disavow.engines.state import layout_of
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates, require_layout

K = TypeVar("K")
V = TypeVar("V")

_SHARE = 0.5
"""Of the memory that is free, how much a stack may take."""

_SCORED = 10_000
"""Images that are scored at once."""

_KEPT = 3
"""Stacks and data sets that are kept from call to call."""


class FusedTrainer:
    """Trains networks of parts that the kernels know.

    `NotFusable` for other networks, `NoKernels` where PyTorch cannot compile for the GPU.
    """

    def __init__(
        self, network: nn.Module, shape: tuple[int, int, int], device: torch.device, *, graphs: bool = True
    ) -> None:
        self._row = row_of(network, shape)
        check_reading(network, shape, self._row)
        self._shape, self._layout = shape, layout_of(network)
        self._convolutions = [node for node in self._row.nodes if isinstance(node, Convolution)]
        for node in self._convolutions:
            tiling_of(node)
        if device.type == "cuda":
            nvrtc.compile_kernel(
                "steps.cu", "loss"
            )  # whether anything can be compiled is better known now than later
        self._device, self._graphs = device, graphs
        self._most: int | None = None
        self._stacks: OrderedDict[Hashable, Stack] = OrderedDict()
        self._data: OrderedDict[Hashable, tuple[Tensor, ...]] = OrderedDict()

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        require_layout((ask.model for ask in asks), self._layout)
        vectors = [torch.empty(len(ask.clients), len(ask.model.vector), device=self._device) for ask in asks]
        for group in _sharing_data(asks):
            clients = [client for a in group for client in clients_of(asks[a], a)]
            # those with most to do first, so that as clients finish it is always the first rows that go on
            clients.sort(key=lambda client: (-client.steps, -client.largest))
            self._train_all(asks, clients, vectors)
        return [
            Updates(ask.clients, tuple(len(ask.workload.parts[c]) for c in ask.clients), rows, "fused")
            for ask, rows in zip(asks, vectors, strict=True)
        ]

    def _train_all(self, asks: Sequence[Ask], clients: list[Client], vectors: list[Tensor]) -> None:
        done = 0
        while done < len(clients):
            batch = max(client.largest for client in clients[done:])
            most = self._most or self._fitting(batch)
            some = clients[done : done + most]
            try:
                self._train_some(asks, some, batch, vectors)
            except torch.cuda.OutOfMemoryError:
                self._stacks.clear()
                torch.cuda.empty_cache()
                if len(some) == 1:
                    raise
                self._most = len(some) // 2
                continue
            done += len(some)

    def _train_some(self, asks: Sequence[Ask], clients: list[Client], batch: int, vectors: list[Tensor]) -> None:
        """One stack, from the broadcast models to the updates."""
        images, labels = self._on_device(asks[clients[0].ask].workload.images, asks[clients[0].ask].workload.labels)
        stack = self._stack(whole_rows(len(clients)), batch, images, labels)
        stack.prepare()
        memory = stack.memory
        batches = batch_index_of(asks, clients, rows=memory.rows, batch=batch, device=self._device)
        mine = {
            ask: (torch.tensor(rows).to(self._device), torch.tensor(where).to(self._device))
            for ask, rows, where in _by_ask(clients)
        }
        models = {ask: asks[ask].model.vector.to(self._device) for ask in mine}
        self._begin(memory, asks, clients, [(models[ask], rows) for ask, (rows, _) in mine.items()])
        for step, active in enumerate(batches.active):
            memory.index.copy_(batches.index[step])
            memory.count.copy_(batches.count[step])
            stack.step(active)
        # from the first step on nothing is copied here from or to the CPU: that would wait for all the steps
        for ask, (rows, where) in mine.items():
            vectors[ask][where] = self._end(memory, rows) - models[ask]

    def _begin(
        self, memory: Memory, asks: Sequence[Ask], clients: list[Client], models: list[tuple[Tensor, Tensor]]
    ) -> None:
        """Put each broadcast model into its rows, and the hyperparameters of SGD."""
        rates = np.zeros((memory.rows, 3), dtype=np.float32)
        for row, client in enumerate(clients):
            settings = asks[client.ask].workload.settings
            rates[row] = settings.learning_rate, settings.momentum, settings.weight_decay
        memory.rates.copy_(torch.from_numpy(rates))
        memory.velocity.zero_()
        for vector, rows in models:
            for first, offset, length in self._row.spans:
                memory.parameters[rows, offset : offset + length] = vector[first : first + length]

    def _end(self, memory: Memory, rows: Tensor) -> Tensor:
        """The models in these rows, as vectors."""
        return torch.cat(
            [memory.parameters[rows, offset : offset + length] for _, offset, length in self._row.spans], dim=1
        )

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`."""
        require_layout(models, self._layout)
        images, labels = self._on_device(workload.test_images, workload.test_labels)
        if not models or not len(labels):
            nothing = torch.empty(0, self._row.nodes[-1].shape[0])
            return [evaluation_of(nothing, workload.test_labels) for _ in models]
        batch = min(_SCORED, len(labels))
        rows = 1 if len(models) == 1 else min(len(models), self._fitting(batch))  # asking for free memory is slow
        scored = []
        for first in range(0, len(models), rows):
            scored += self._evaluate(self._stack(rows, batch, images, labels), models[first : first + rows], labels)
        return scored

    def _evaluate(self, stack: Stack, models: Sequence[Model], labels: Tensor) -> list[Evaluation]:
        """Score one model a row."""
        memory, scores = stack.memory, []
        vectors = torch.stack([model.vector for model in models]).to(self._device)
        for first, offset, length in self._row.spans:
            memory.parameters[: len(models), offset : offset + length] = vectors[:, first : first + length]
        for first in range(0, len(labels), memory.batch):
            here = min(memory.batch, len(labels) - first)
            memory.index[:, :here] = torch.arange(first, first + here, dtype=torch.int32, device=self._device)
            memory.count.fill_(here)
            stack.score(len(models))
            scores.append(stack.scores[: len(models), :here].clone())
        return [evaluation_of(of_model, labels) for of_model in torch.cat(scores, dim=1)]

    def close(self) -> None:
        """See `Trainer`."""
        self._stacks.clear()
        self._data.clear()

    # -- memory ------------------------------------------------------------------------------------------------

    def _fitting(self, batch: int) -> int:
        """How many rows fit into the share of the memory that a stack may take."""
        if self._device.type != "cuda":
            return 1 << 20
        free, _ = torch.cuda.mem_get_info(self._device)
        free += torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        an_image = sum(9 * cells(node) for node in self._row.nodes)
        slots = sum(4 * (-(-batch // CHUNK)) * node.weights for node in self._convolutions)
        return max(1, int(_SHARE * free / (batch * an_image + slots + 16 * self._row.size)))

    def _stack(self, rows: int, batch: int, images: Tensor, labels: Tensor) -> Stack:
        key = (rows, batch, _identity(images), _identity(labels))
        if key not in self._stacks:
            self._stacks[key] = Stack(
                self._row, rows=rows, batch=batch, images=images, labels=labels, graphs=self._graphs
            )
        return _kept(self._stacks, key)

    def _on_device(self, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The data set on the device, once for all who use the same tensors."""
        key = (_identity(images), _identity(labels))
        if key not in self._data:
            self._refuse(images, labels)
            moved = images.to(self._device).contiguous(), labels.to(self._device).contiguous()
            # what they were moved from is kept with them, or another tensor could take its place in memory
            self._data[key] = (*moved, images, labels)
        return _kept(self._data, key)[:2]

    def _refuse(self, images: Tensor, labels: Tensor) -> None:
        """Raise for samples that the kernels would misread."""
        outputs = self._row.nodes[-1].shape[0]
        if images.dtype != torch.float32 or images.shape[1:] != self._shape:
            raise TypeError(f"images must be of type float32 and {self._shape}")
        if labels.dtype not in (torch.int64, torch.float32):
            raise TypeError("each image must have a class of type int64, or attributes of type float32")
        wanted = (len(images),) if task_of(labels) == "classes" else (len(images), outputs)
        if tuple(labels.shape) != wanted:
            raise TypeError(f"labels are {tuple(labels.shape)}, and not {wanted}")
        if (
            task_of(labels) == "classes"
            and len(labels)
            and not 0 <= int(labels.min()) <= int(labels.max()) < outputs
        ):
            raise ValueError(f"a class is not one of the {outputs} that the network scores")


def _identity(tensor: Tensor) -> Hashable:
    """What tells a tensor from others for as long as it is kept."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _kept(cache: OrderedDict[K, V], key: K) -> V:
    """The value of a key that was just used; the least recently used go."""
    cache.move_to_end(key)
    while len(cache) > _KEPT:
        cache.popitem(last=False)
    return cache[key]


def _sharing_data(asks: Sequence[Ask]) -> Iterator[list[int]]:
    """The numbers of the asks whose samples are the same tensors."""
    groups: dict[Hashable, list[int]] = {}
    for a, ask in enumerate(asks):
        key = (_identity(ask.workload.images), _identity(ask.workload.labels))
        groups.setdefault(key, []).append(a)
    yield from groups.values()


def _by_ask(clients: Sequence[Client]) -> Iterator[tuple[int, list[int], list[int]]]:
    """For each ask the rows that are its clients', and the positions of these clients in the ask."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for row, client in enumerate(clients):
        rows.setdefault(client.ask, []).append((row, client.position))
    for ask, pairs in rows.items():
        yield ask, [row for row, _ in pairs], [position for _, position in pairs]
