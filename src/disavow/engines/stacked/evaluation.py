"""How well models do on held-out samples: several at once, in large batches, the loss summed in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import vmap

from disavow.domain import Evaluation
from disavow.engines.scores import answers_of, losses_of, right_of
from disavow.engines.stacked.columns import views
from disavow.engines.stacked.data import Placed
from disavow.engines.stacked.memory import in_chunks
from disavow.engines.stacked.network import StackedNetwork

_MODELS = 16
"""Models at once."""

_SAMPLES = 8192
"""Samples at once, of all models together; the reference takes 1,024 of one."""


@torch.no_grad()
def evaluate(
    network: StackedNetwork, vectors: Tensor, data: Placed, *, after_shortage: Callable[[], None]
) -> list[Evaluation]:
    """The accuracy and the mean loss of each model (row of `vectors`) on all samples."""
    measures = [
        _measures(network, network.columns.pack(part), data, after_shortage) for part in vectors.split(_MODELS)
    ]
    # the only wait for the device
    return [
        Evaluation(accuracy=accuracy, loss=loss)
        for accuracy, loss in torch.cat([torch.stack(each, dim=1) for each in measures]).tolist()
    ]


def _measures(
    network: StackedNetwork, rows: Tensor, data: Placed, after_shortage: Callable[[], None]
) -> tuple[Tensor, Tensor]:
    """Accuracy and loss of each row."""
    columns = network.columns
    tensors = views(rows, (*columns.trained, *columns.frozen, *columns.statistics))

    def scores(samples: Sequence[int]) -> Tensor:
        images = data.images[samples[0] : samples[-1] + 1]
        if len(rows) == 1:
            alone = {name: tensor[0] for name, tensor in tensors.items()}
            return network.scores(alone, images, alone=True)[None]
        stacked: Tensor = vmap(lambda each: network.scores(each, images, alone=False))(tensors)
        return stacked

    every, at_once = range(len(data.labels)), max(1, _SAMPLES // len(rows))
    parts = in_chunks(every, at_once, scores, after_shortage=after_shortage)
    said = torch.cat([part for _, part in parts], dim=1)
    labels = data.labels
    repeated = labels.repeat(len(rows), *[1] * (labels.dim() - 1))
    losses = losses_of(said.double().flatten(0, 1), repeated)
    right = right_of(said, labels).flatten(1).sum(dim=1)
    answers = labels.new_tensor(len(labels) * answers_of(labels), dtype=torch.float64)
    return right / answers, losses.view(len(rows), -1).mean(dim=1)
