"""The reference engine: one client after the other, in plain PyTorch, the same bits on every run.

It is short and obvious on purpose. Other engines are tested against it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Layout
from disavow.engines.objectives import EVALUATION_BATCH, evaluation_of, loss_of
from disavow.engines.state import layout_of, model_of, put_model
from disavow.engines.workload import Workload
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Model, Updates, require_layout


class SequentialEngine:
    """Trains clients one by one on the CPU."""

    def __init__(self, workload: Workload) -> None:
        layout = layout_for(workload.network)
        self._network = copy.deepcopy(workload.network)
        self._network.to(memory_format=layout)  # type: ignore[call-overload]
        images, labels = workload.images, workload.labels
        self._held = {
            # of these clients only: all images, in another layout, would be a second copy of them
            client: (images[i].contiguous(memory_format=layout), labels[i])
            for client, i in workload.parts.items()
        }
        self._test = workload.test_images, workload.test_labels
        self._workload = workload

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        require_layout([model], layout_of(self._network))
        with one_thread():
            rows = [self._train_one(model, client, round_number, epochs) - model.vector for client in clients]
        samples = tuple(len(self._held[client][1]) for client in clients)
        vectors = torch.stack(rows) if rows else torch.zeros(0, model.layout.size)
        return Updates(tuple(clients), samples, vectors, "sequential")

    def _train_one(self, model: Model, client: str, round_number: int, epochs: int | None) -> Tensor:
        """The client's model after its local epochs, as a vector."""
        images, labels = self._held[client]
        put_model(self._network, model)
        training = self._workload.training_for(epochs)
        train_network(
            self._network, images, labels, training.batches_of(client, round_number), self._workload.settings
        )
        return model_of(self._network).vector

    def evaluate(self, model: Model) -> Evaluation:
        """See `Engine`."""
        images, labels = self._test
        put_model(self._network, model)
        self._network.eval()
        with one_thread(), torch.no_grad():
            scores = torch.cat([self._network(part) for part in images.split(EVALUATION_BATCH)])
            return evaluation_of(scores, labels)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        self._workload.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`: there is nothing to let go of."""


def train_network(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    batches: Iterable[npt.NDArray[np.int64]],
    settings: TrainingSettings,
) -> None:
    """Train a network in place by SGD. Whoever calls it settles the threads.

    Args:
        network: What is trained.
        images: All samples of the client.
        labels: Their labels.
        batches: Positions of samples, batch by batch.
        settings: Learning rate, momentum and weight decay.
    """
    network.train()
    parameters = [p for p in network.parameters() if p.requires_grad]
    velocity: list[Tensor] | None = None
    for batch in batches:
        chosen = torch.from_numpy(batch)
        loss = loss_of(network(images[chosen]), labels[chosen])
        gradients = torch.autograd.grad(loss, parameters)
        velocity = _step(parameters, gradients, velocity, settings)


@torch.no_grad()
def _step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    velocity: list[Tensor] | None,
    settings: TrainingSettings,
) -> list[Tensor]:
    """One step of SGD with momentum and weight decay, as torch.optim.SGD defines it; the new velocity.

    Written out because that class costs more than the step it takes, on networks as small as these.
    """
    moved = []
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if settings.weight_decay:
            gradient = gradient + settings.weight_decay * parameter  # noqa: PLW2901
        pushed = gradient if velocity is None else settings.momentum * velocity[i] + gradient
        parameter.sub_(pushed, alpha=settings.learning_rate)
        moved.append(pushed)
    return moved


def layout_for(network: nn.Module) -> torch.memory_format:
    """Choose channels last: PyTorch's convolutions are a quarter faster on a CPU that way.

    But not for strided 1x1 convolutions of several channels: there, in PyTorch 2.13, the gradient of the weights
    writes past its memory (seen on one processor from a side of 46 on, on another at a side of 6).

    Args:
        network: What will be trained.

    Returns:
        The memory format of its weights and samples.
    """
    strided = (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and max(module.stride) > 1
        and module.in_channels > 1
        for module in network.modules()
    )
    return torch.contiguous_format if any(strided) else torch.channels_last
