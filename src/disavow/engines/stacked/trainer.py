"""The stacked trainer: what a GPU does with the clients of one federation or of many."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from disavow.domain import Evaluation
from disavow.engines.stacked.architecture import architecture
from disavow.engines.stacked.arithmetic import Precision, arithmetic
from disavow.engines.stacked.convolution import Convolution
from disavow.engines.stacked.data import DeviceData, Placed, sent
from disavow.engines.stacked.evaluation import evaluate
from disavow.engines.stacked.memory import RowCost, even_chunks, in_chunks, memory_of
from disavow.engines.stacked.plan import Row, row_of
from disavow.engines.stacked.stack import Stack
from disavow.engines.stacked.ways import ClientAxis, Compile, Graphs, Ways
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates, require_layout

_STACKS = 4
"""Architectures that stay prepared."""


class StackedTrainer:
    """Trains all clients at once: their parameters are stacked, and a step is one program for all of them.

    `precision`: `float32` multiplies exactly; `tf32` and `bf16` are faster and deviate by 1e-3 and 1e-2 or so.
    `compile`: `always` compiles steps. On an H200 that takes half a minute for each form, of which a round has
    several, and halves a step of ResNet-mini, so nobody gets it unasked.
    `graphs`: `auto` captures launches as CUDA graphs.
    `convolution`: see that module; `auto` is `unfold` on a GPU and where steps are compiled, `grouped` elsewhere.
    `client_axis`: what happens when the number of clients changes. `padded`: rows that belong to nobody fill a
    launch up to one of a few fixed widths, so that what was compiled and captured for one serves again. `exact`:
    each width is compiled and captured anew. `auto` pads where there is something to compile or to capture.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        precision: Precision = "float32",
        compile: Compile = "never",
        graphs: Graphs = "auto",
        convolution: Literal["auto", "grouped", "unfold"] = "auto",
        client_axis: ClientAxis = "auto",
    ) -> None:
        # by its number, as tensors name it
        self._device = torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device
        device = self._device
        self._precision: Precision = precision
        self._ways = Ways(device, compile=compile, graphs=graphs, client_axis=client_axis)
        products = device.type == "cuda" or compile == "always"
        self._convolution: Convolution = (
            convolution if convolution != "auto" else "unfold" if products else "grouped"
        )
        self._data = DeviceData(device)
        self._memory = memory_of(device)
        self._stacks: OrderedDict[Hashable, Stack] = OrderedDict()

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`: clients of all asks whose networks are built alike are trained together."""
        together: dict[Hashable, list[int]] = {}
        for number, ask in enumerate(asks):
            together.setdefault(_kind(ask.workload), []).append(number)
        vectors: dict[int, Tensor] = {}
        with self._working():
            for kind, numbers in together.items():
                stack = self._stack(kind, asks[numbers[0]].workload)
                trained = self._train(stack, [asks[number] for number in numbers])
                vectors.update(zip(numbers, trained, strict=True))
        name = "stacked" if self._precision == "float32" else f"stacked {self._precision}"
        return [
            Updates(ask.clients, tuple(len(ask.workload.parts[c]) for c in ask.clients), vectors[number], name)
            for number, ask in enumerate(asks)
        ]

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`."""
        if not models:
            return []
        with self._working():
            stack = self._stack(_kind(workload), workload)
            data = self._data.place([(workload.test_images, workload.test_labels)])
            vectors = self._vectors(stack, models)
            return evaluate(stack.network, vectors, data, after_shortage=self._make_room)

    def close(self) -> None:
        """See `Trainer`: everything on the device is let go of."""
        self._stacks.clear()
        self._data.clear()
        self._memory.release()

    def _train(self, stack: Stack, asks: Sequence[Ask]) -> list[Tensor]:
        """The updates of asks of one stack."""
        data = self._data.place([(ask.workload.images, ask.workload.labels) for ask in asks])
        models = self._vectors(stack, [ask.model for ask in asks])
        rates = torch.tensor([_rates(ask) for ask in asks], dtype=torch.float32, device=self._device)
        momentum = any(ask.workload.settings.momentum for ask in asks)
        rows = _rows(asks, data)
        updates = torch.zeros(len(rows), models.shape[1], device=self._device)
        # the longest first, so that the clients of a chunk have about as far to go
        rows.sort(key=lambda row: -len(row.sizes))
        cost = stack.cost(rows, self._memory)

        def after_shortage() -> None:
            cost.was_too_low()
            self._make_room()

        chunks = in_chunks(
            rows,
            even_chunks(len(rows), self._at_most(stack, cost, len(rows))),
            lambda chunk: stack.updates(chunk, models, rates, data, momentum=momentum),
            after_shortage=after_shortage,
        )
        for chunk, part in chunks:
            places = np.array([row.place for row in chunk], dtype=np.int64)
            updates.index_copy_(0, sent(places, self._device), part)
        return list(updates.split([len(ask.clients) for ask in asks]))

    def _stack(self, kind: Hashable, workload: Workload) -> Stack:
        if kind not in self._stacks:
            while len(self._stacks) >= _STACKS:
                self._stacks.popitem(last=False)
            with arithmetic("float32"):
                # whether a network can be stacked is a matter of its code, not of the precision
                self._stacks[kind] = Stack(
                    workload, self._device, self._convolution, self._ways, bf16=self._precision == "bf16"
                )
        self._stacks.move_to_end(kind)
        return self._stacks[kind]

    def _vectors(self, stack: Stack, models: Sequence[Model]) -> Tensor:
        """The models on the device, one a row."""
        require_layout(models, stack.network.layout)
        return torch.stack([model.vector.detach().to(self._device) for model in models])

    def _at_most(self, stack: Stack, cost: RowCost, wanted: int) -> int:
        """How many rows are trained at once: what fits, and never less than what has fitted before."""
        fitted = stack.launcher.room(cost.size)
        fits = max(fitted, cost.at_most(self._memory.free()))
        if fits < wanted and len(self._stacks) > 1:
            self._make_room(keep=stack)
            fits = max(fitted, cost.at_most(self._memory.free()))
        return fits

    def _make_room(self, *, keep: Stack | None = None) -> None:
        """Let go of whatever can be made again."""
        for stack in self._stacks.values():
            if stack is not keep:
                stack.launcher.forget()
        self._data.clear()
        self._memory.release()

    @contextmanager
    def _working(self) -> Iterator[None]:
        on_device = torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
        with on_device, torch.no_grad(), arithmetic(self._precision):
            yield


def _kind(workload: Workload) -> Hashable:
    """Equal for workloads whose clients can share a stack."""
    images, labels = workload.images, workload.labels
    return architecture(workload.network), images.shape[1:], images.dtype, labels.shape[1:], labels.dtype


def _rates(ask: Ask) -> tuple[float, float, float]:
    settings = ask.workload.settings
    return settings.learning_rate, settings.momentum, settings.weight_decay


def _rows(asks: Sequence[Ask], data: Placed) -> list[Row]:
    everyone = ((number, client) for number, ask in enumerate(asks) for client in ask.clients)
    return [
        row_of(asks[number], client, number=number, place=place, start=data.starts[number])
        for place, (number, client) in enumerate(everyone)
    ]
