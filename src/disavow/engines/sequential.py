"""The reference engine: one client after the other, in plain PyTorch, the same bits on every run.

It is short and obvious on purpose. Other engines are tested against it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from disavow.domain import EngineChoice, Layout
from disavow.engines.state import layout_of, put_model, vector_of, write_model
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Model, Updates, require_layout

_REFERENCE = EngineChoice("sequential")

Measured_co = TypeVar("Measured_co", covariant=True)


class LocalWorkload(Protocol[Measured_co]):
    """What one client after the other is trained on: `Workload` for images, `TaskWorkload` for any task."""

    @property
    def network(self) -> nn.Module:
        """The architecture; its weights play no part."""

    @property
    def parts(self) -> Mapping[str, Sized]:
        """What each client holds."""

    def prepared(self, network: nn.Module) -> nn.Module:
        """Give a network as it is trained: on its device, in its memory format."""

    def samples_of(self, client: str) -> Any:
        """Give what a client trains on."""

    def training_for(self, epochs: int | None) -> LocalWorkload[Measured_co]:
        """Give the same with another number of local epochs; None for its own."""

    def train(self, network: nn.Module, samples: Any, client: str, round_number: int) -> None:
        """Train a network in place for one client's round, with every draw from seed, round and client."""

    def evaluate(self, network: nn.Module) -> Measured_co:
        """Measure a network, in evaluation mode."""

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""


class SequentialEngine(Generic[Measured_co]):
    """Trains clients one by one."""

    def __init__(self, workload: LocalWorkload[Measured_co], choice: EngineChoice = _REFERENCE) -> None:
        """Prepare a network and the clients' samples.

        Args:
            workload: What is trained: images with labels, or any task.
            choice: Why no faster engine trains.

        """
        self.choice = choice
        self._network = workload.prepared(copy.deepcopy(workload.network))
        # counters and hidden buffers are not in the vector: each client must find them as the first one did
        self._outside = [
            (module, name, buffer.clone())
            for module in self._network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and (not buffer.is_floating_point() or name in module._non_persistent_buffers_set)
        ]
        self._held: dict[str, Any] = {client: workload.samples_of(client) for client in workload.parts}
        self._workload = workload

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        require_layout([model], layout_of(self._network))
        with one_thread():
            rows = [self._train_one(model, client, round_number, epochs) - model.vector for client in clients]
        samples = tuple(len(self._workload.parts[client]) for client in clients)
        vectors = torch.stack(rows) if rows else torch.zeros(0, model.layout.size)
        return Updates(tuple(clients), samples, vectors, "sequential")

    def _train_one(self, model: Model, client: str, round_number: int, epochs: int | None) -> Tensor:
        """The client's model after its local epochs, as a vector."""
        write_model(self._network, model)
        for module, name, first in self._outside:
            module._buffers[name] = first.clone()
        self._workload.training_for(epochs).train(self._network, self._held[client], client, round_number)
        return vector_of(self._network).to(model.vector.device)

    def evaluate(self, model: Model) -> Measured_co:
        """See `Engine`."""
        put_model(self._network, model)
        self._network.eval()
        with one_thread(), torch.no_grad():
            return self._workload.evaluate(self._network)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        self._workload.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`: there is nothing to let go of."""
