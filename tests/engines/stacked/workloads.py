"""Workloads to stack: clients of any sizes, networks that are easy and networks that are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.models import build
from disavow.rounds.vectors import Updates

CPU = torch.device("cpu")
CLASSES = 4
SETTINGS = TrainingSettings(epochs=2, batch_size=8, learning_rate=0.05)
AGREEMENT = 1e-5
"""How far from the reference an update may be after a round, of its own length."""


def a_workload(
    sizes: Sequence[int],
    network: str | nn.Module = "lenet5",
    *,
    side: int = 10,
    settings: TrainingSettings = SETTINGS,
    seed: int = 11,
) -> Workload:
    """Random images; client i holds `sizes[i]` of them."""
    generator = torch.Generator().manual_seed(seed)
    shape, total, held_out = (1, side, side), sum(sizes), 20
    images = torch.rand(total + held_out, *shape, generator=generator)
    labels = torch.randint(CLASSES, (total + held_out,), generator=generator)
    parts = np.split(np.random.default_rng(seed).permutation(total), np.cumsum(sizes)[:-1])
    return Workload(
        network=build(network, shape, CLASSES, seed=seed) if isinstance(network, str) else network,
        images=images[:total],
        labels=labels[:total],
        parts={f"client-{i:03d}": part for i, part in enumerate(parts)},
        test_images=images[total:],
        test_labels=labels[total:],
        settings=settings,
        seed=seed,
    )


def an_ask(workload: Workload, round_number: int = 1) -> Ask:
    """All clients, from the network's own weights."""
    return Ask(workload, model_of(workload.network), tuple(workload.parts), round_number)


def reference(ask: Ask) -> Updates:
    """What the sequential engine makes of it."""
    return SequentialEngine(ask.workload).train(ask.model, ask.clients, ask.round_number)


def deviations(vectors: Tensor, expected: Tensor) -> Tensor:
    """The distance of each update from the expected one, of its own length."""
    each: Tensor = (vectors.cpu() - expected.cpu()).norm(dim=1) / expected.cpu().norm(dim=1)
    return each


def deviation(vectors: Tensor, expected: Tensor) -> float:
    """The largest of them."""
    return float(deviations(vectors, expected).max())


def agrees_but_for_kinks(vectors: Tensor, expected: Tensor) -> bool:
    """Whether most updates agree, and none is far off.

    Where rounding carries a ReLU over its kink, one sample's gradient jumps, and batch norm spreads it: on digits,
    ResNet-mini trained by the reference with one of torch's own convolutions and with another differs by up to
    1e-2 for a few clients of a round, and by 1e-6 for the others.
    """
    each = deviations(vectors, expected)
    return float(each.median()) < AGREEMENT and float(each.max()) < 0.05


class Tiny(nn.Module):
    """Two dense layers with something between them."""

    def __init__(self, between: nn.Module | None = None, side: int = 10) -> None:
        super().__init__()
        # the same weights in every run: how far rounding carries depends on them
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.first = nn.Linear(side * side, 8)
            self.between = between if between is not None else nn.Tanh()
            self.second = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.second(self.between(self.first(images.flatten(1))))
        return scores
