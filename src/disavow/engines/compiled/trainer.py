"""The CPU way for the networks that the kernels know: each client's local training is one call, on one thread.

The calls need neither the interpreter nor each other, so that one thread a core keeps all of them busy, without
processes and without copies of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from disavow.domain import Evaluation, escaped
from disavow.engines.compiled.build import load
from disavow.engines.compiled.chain import Chain, chain_of
from disavow.engines.objectives import evaluation_of
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.threads import cores, one_thread
from disavow.rounds.vectors import Model, Updates, require_layout

_SCORED = 512
"""Images that are scored in one piece."""


class _Network:
    """A chain, as the library knows it."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._library = load()
        self._offsets = np.ascontiguousarray(chain.offsets, dtype=np.int64)
        fields = np.ascontiguousarray(chain.fields)
        self._handle: int | None = self._library.chain_create(fields.ctypes.data, len(chain.layers), chain.size)
        if not self._handle:
            raise MemoryError("there is no memory for the network")

    def destroy(self) -> None:
        """Free what the library holds. Nobody may be training."""
        self._library.chain_destroy(self._handle)
        self._handle = None

    def train(self, ask: Ask, client: str, update: npt.NDArray[np.float32]) -> None:
        """Train one client and write its update."""
        workload, settings = ask.workload, ask.workload.settings
        part = workload.parts[client]
        drawn = list(workload.batches_of(client, ask.round_number))
        order = np.ascontiguousarray(part[np.concatenate(drawn)], dtype=np.int64)
        sizes = np.array([len(batch) for batch in drawn], dtype=np.int64)
        _succeed(
            self._library.chain_train(
                self._handle,
                ask.model.vector.data_ptr(),
                self._offsets.ctypes.data,
                len(self._offsets),
                workload.images.data_ptr(),
                workload.labels.data_ptr(),
                order.ctypes.data,
                sizes.ctypes.data,
                len(sizes),
                settings.learning_rate,
                settings.momentum,
                settings.weight_decay,
                update.ctypes.data,
            )
        )

    def score(self, model: Model, images: Tensor, first: int, scores: npt.NDArray[np.float32]) -> None:
        """Write the scores of as many images as there are rows."""
        _succeed(
            self._library.chain_score(
                self._handle,
                model.vector.data_ptr(),
                self._offsets.ctypes.data,
                len(self._offsets),
                images.data_ptr(),
                first,
                len(scores),
                scores.ctypes.data,
            )
        )


class CompiledTrainer:
    """Trains networks that are chains. `NotAChain` for others, `NoKernels` where they cannot be built."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], *, threads: int | None = None) -> None:
        self._network = _Network(chain_of(network, shape))
        self._threads = ThreadPoolExecutor(threads or cores(), "disavow-train")

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        require_layout((ask.model for ask in asks), self._network.chain.layout)
        asks = [self._ready(ask) for ask in asks]
        vectors = [np.empty((len(ask.clients), len(ask.model.vector)), dtype=np.float32) for ask in asks]
        jobs = [(a, c) for a, ask in enumerate(asks) for c in range(len(ask.clients))]
        # those with most to do first, so that no thread is left alone with a long one at the end
        jobs.sort(key=lambda job: -len(asks[job[0]].workload.parts[asks[job[0]].clients[job[1]]]))
        done = [
            self._threads.submit(self._network.train, asks[a], asks[a].clients[c], vectors[a][c]) for a, c in jobs
        ]
        for future in done:
            future.result()
        return [
            Updates(
                ask.clients,
                tuple(len(ask.workload.parts[client]) for client in ask.clients),
                torch.from_numpy(rows),
                "compiled",
            )
            for ask, rows in zip(asks, vectors, strict=True)
        ]

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`."""
        require_layout(models, self._network.chain.layout)
        return [self._evaluate(workload, model) for model in models]

    def _evaluate(self, workload: Workload, model: Model) -> Evaluation:
        images = workload.test_images.float().contiguous()
        self._refuse(images)
        model = Model(model.layout, model.vector.cpu().contiguous())
        scores = np.empty((len(images), self._network.chain.layers[-1].outputs), dtype=np.float32)
        pieces = range(0, len(images), _SCORED)
        done = [
            self._threads.submit(self._network.score, model, images, first, scores[first : first + _SCORED])
            for first in pieces
        ]
        for future in done:
            future.result()
        with one_thread():
            return evaluation_of(torch.from_numpy(scores), workload.test_labels)

    def _ready(self, ask: Ask) -> Ask:
        """The same ask, laid out in memory as the kernels read it; they check nothing themselves."""
        workload = ask.workload
        images, labels = workload.images.contiguous(), workload.labels.contiguous()
        self._refuse(images)
        if images.dtype != torch.float32 or labels.dtype != torch.int64 or len(images) != len(labels):
            raise TypeError("images must be float32, and each must have a label of type int64")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self._network.chain.layers[-1].outputs:
            raise IndexError("a label is none of the classes that the network knows")
        for client in ask.clients:
            part = workload.parts[client]
            if len(part) and not 0 <= int(part.min()) <= int(part.max()) < len(images):
                raise IndexError(f"{escaped(client)} holds a sample that does not exist")
        model = Model(ask.model.layout, ask.model.vector.cpu().contiguous())
        return replace(ask, workload=replace(workload, images=images, labels=labels), model=model)

    def _refuse(self, images: Tensor) -> None:
        """Raise for images of another size than the chain was read for."""
        if tuple(images.shape[1:]) != self._network.chain.shape:
            raise TypeError(f"images are {tuple(images.shape[1:])}, the network takes {self._network.chain.shape}")

    def close(self) -> None:
        """See `Trainer`."""
        self._threads.shutdown(cancel_futures=True)
        self._network.destroy()


def _succeed(status: int) -> None:
    if status:
        raise MemoryError("there is no memory for another client's training")
