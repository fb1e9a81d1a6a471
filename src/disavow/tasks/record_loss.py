"""What a task's loss makes of single records, and of some of them together: what attackers of a model look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from disavow.tasks.loading import seeded
from disavow.tasks.samples import Positions, Samples, moved, shapes_of
from disavow.tasks.task import EVALUATION_BATCH, Task
from disavow.tasks.user_errors import name_of, own_code

_AT_ONCE = 256
"""Records whose single losses are computed in one call, where that can be."""

_COMPARED = 2
"""Records whose losses are computed in both ways, to see that they agree."""

_SEED = 1
"""Of a loss that draws at random: the same numbers for every model that is looked at."""


def mean_loss(
    task: Task, network: nn.Module, samples: Samples, positions: Positions, device: torch.device | None = None
) -> float:
    """Compute the task's loss of some records together, in evaluation mode; of many, the mean over large batches.

    Args:
        task: Whose loss it is.
        network: The model, on the device.
        samples: All records.
        positions: Which of them.
        device: Where the network is; None for the CPU.

    Raises:
        TaskError: The user's code raised.

    """
    parts = [positions[start : start + EVALUATION_BATCH] for start in range(0, len(positions), EVALUATION_BATCH)]
    with _evaluating(network, device):
        found = [float(_loss(task, network, moved(samples.batch(part), device))) for part in parts]
    return float(np.average(found, weights=[len(part) for part in parts]))


def record_losses(
    task: Task, network: nn.Module, samples: Samples, positions: Positions, device: torch.device | None = None
) -> Tensor:
    """Compute the task's loss of each record by itself: of a batch of one, in evaluation mode.

    Many records are computed in one call by `torch.func.vmap`, where the user's code can be vectorised and gives
    the same numbers; otherwise one after the other.

    Args:
        task: Whose loss it is.
        network: The model, on the device.
        samples: All records.
        positions: Which of them.
        device: Where the network is; None for the CPU.

    Returns:
        One number a record, in float64, on the CPU.

    Raises:
        TaskError: The user's code raised: it may not know batches of one.

    """

    def singly(some: Positions) -> Tensor:
        batches = (moved(samples.batch(some[i : i + 1]), device) for i in range(len(some)))
        return torch.stack([_loss(task, network, batch).double().cpu() for batch in batches])

    def together(some: Positions) -> Tensor:
        batch = moved(samples.batch(some), device)
        return torch.func.vmap(lambda row: _loss(task, network, _as_batch(row)))(batch).double().cpu()

    with _evaluating(network, device):
        compute = together if _agree(singly, together, positions[:_COMPARED]) else singly
        parts = [compute(positions[start : start + _AT_ONCE]) for start in range(0, len(positions), _AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def _agree(singly: Callable[[Positions], Tensor], together: Callable[[Positions], Tensor], some: Positions) -> bool:
    """Whether both ways give the same numbers; the user's code may not be one that can be vectorised."""
    try:
        found = together(some)
    except Exception:
        return False
    return found.shape == some.shape and torch.allclose(found, singly(some), rtol=1e-3, atol=1e-5, equal_nan=True)


def _loss(task: Task, network: nn.Module, batch: Any) -> Tensor:
    with own_code(f"{name_of(task, 'loss')} of a batch of {shapes_of(batch)}"):
        return torch.as_tensor(task.loss(network, batch))


@contextmanager
def _evaluating(network: nn.Module, device: torch.device | None) -> Iterator[None]:
    """Put a network in evaluation mode, without gradients and with seeded generators, and back again."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad(), seeded(_SEED, device):
            yield
    finally:
        network.train(training)


def _as_batch(row: Any) -> Any:
    """Make a batch of one of a row, all of whose leaves are tensors."""
    if isinstance(row, Mapping):
        return {key: _as_batch(value) for key, value in row.items()}
    if isinstance(row, tuple | list):
        return tuple(_as_batch(value) for value in row)
    return row[None]
