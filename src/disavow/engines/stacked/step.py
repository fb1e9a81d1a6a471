"""One step of SGD for all rows of a launch: rows in, rows out, nothing else touched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.func import grad, vmap

from disavow.engines.scores import losses_of
from disavow.engines.stacked.columns import views
from disavow.engines.stacked.network import StackedNetwork

Advance = Callable[[Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""Rows, velocity, images, labels, sizes and rates in; rows and velocity out."""

RATES = 3
"""Learning rate, momentum and weight decay: what each row brings along."""


class Step:
    """SGD with momentum and weight decay, as the reference engine defines it, with the rates of each row."""

    def __init__(self, network: StackedNetwork, *, bf16: bool = False) -> None:
        self.network = network
        self._bf16 = bf16

    def __call__(
        self, rows: Tensor, velocity: Tensor | None, images: Tensor, labels: Tensor, sizes: Tensor, rates: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The rows and their velocity after one batch each.

        `images` and `labels` are (rows, samples, ...), of which row i has `sizes[i]`; the others weigh nothing.
        A velocity of zero before the first step makes it the gradient after it. None: no row has momentum.
        """
        columns = self.network.columns
        gradient, statistics = self._gradient(rows, images, labels, sizes)
        rate, momentum, decay = rates.split(1, dim=1)
        trained = rows[:, : columns.trained_size]
        pushed = gradient + decay * trained
        if velocity is not None:
            pushed = momentum * velocity + pushed
        moved = trained - rate * pushed
        frozen = rows[:, columns.trained_size : columns.parameters_size]
        return torch.cat([moved, frozen, *statistics], dim=1), None if velocity is None else pushed

    def _gradient(self, rows: Tensor, images: Tensor, labels: Tensor, sizes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of each row's mean loss over its batch, and the statistics after it, as blocks of columns."""
        columns = self.network.columns
        real = torch.arange(labels.shape[1], device=labels.device) < sizes[:, None]
        shares = real / sizes[:, None]
        # batch norm writes into its statistics, and rows are not ours to change
        statistics = {name: tensor.clone() for name, tensor in views(rows, columns.statistics).items()}
        gradients, after = grad(self._total_loss, has_aux=True)(
            views(rows, columns.trained), views(rows, columns.frozen), statistics, images, labels, shares
        )
        gradient = torch.cat([gradients[span.name].flatten(1) for span in columns.trained], dim=1)
        return gradient, [after[span.name].flatten(1) for span in columns.statistics]

    def _total_loss(
        self,
        trained: dict[str, Tensor],
        frozen: dict[str, Tensor],
        statistics: dict[str, Tensor],
        images: Tensor,
        labels: Tensor,
        shares: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum over rows, whose gradient is each row's own: no row's loss depends on another row.

        The gradient is taken outside `vmap`, so that what goes backward are plain operations on stacked tensors,
        whether or not `vmap` has a rule for the derivative.
        """
        losses, after = vmap(self._loss)(trained, frozen, statistics, images, labels, shares)
        return losses.sum(), after

    def _loss(
        self,
        trained: dict[str, Tensor],
        frozen: dict[str, Tensor],
        statistics: dict[str, Tensor],
        images: Tensor,
        labels: Tensor,
        shares: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        tensors = {**trained, **frozen, **statistics}
        with self._arithmetic(images):
            scores = self.network.train_scores(tensors, images)
        losses = losses_of(scores.float(), labels)
        return (losses * shares).sum(), {name: tensors[name] for name in statistics}

    def _arithmetic(self, images: Tensor) -> AbstractContextManager[object]:
        return (
            torch.autocast(images.device.type, torch.bfloat16, cache_enabled=False) if self._bf16 else nullcontext()
        )
