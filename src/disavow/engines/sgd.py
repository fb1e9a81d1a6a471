"""Local training by SGD on images with labels, written out for networks as small as these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.engines.objectives import loss_of


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
