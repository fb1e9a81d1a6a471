"""A small task drawn from a seed whose examples have record keys, and settings to train it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from disavow import config
from disavow.tasks.task import Task


class RandomTask(Task):
    """A network and clients drawn from a seed; some examples of a client are one record. Or as if without some."""

    epochs, batch_size = 1, 4

    def __init__(self, seed: int, without: Sequence[tuple[str, str]] = (), clients: int = 7) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        self._without = set(without)
        self._width = int(rng.integers(2, 5))
        self._data: dict[str, tuple[Any, Any]] = {}
        self._keys: dict[str, list[str]] = {}
        for number in range(clients):
            client, held = f"site-{number}", int(rng.integers(5, 11))
            inputs = rng.normal(size=(held, 3)).astype(np.float32)
            keys = [f"patient-{int(each)}" for each in rng.integers(0, held - 1, size=held)]
            self._data[client] = inputs, (inputs.sum(axis=1) > 0).astype(np.int64)
            self._keys[client] = keys

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, self._width), nn.Tanh(), nn.Linear(self._width, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)

    def clients(self) -> dict[str, Any]:
        return {
            client: tuple(column[self._kept(client)] for column in columns)
            for client, columns in self._data.items()
        }

    def test_data(self) -> Any:
        inputs = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        return inputs, (inputs.sum(axis=1) > 0).astype(np.int64)

    def record_keys(self, client: str) -> list[str]:
        return [self._keys[client][i] for i in self._kept(client)]

    def _kept(self, client: str) -> list[int]:
        return [i for i, key in enumerate(self._keys[client]) if (client, key) not in self._without]


def settings_of(
    seed: int, *, sticky: bool = True, representatives: int = 1, delta: float | None = None, **sections: Any
) -> config.Settings:
    return config.from_values(
        {
            "seed": seed,
            "rounds": 3,
            "draws": "seeded",
            "clustering": {"k": 3, "sticky": sticky, "representatives": representatives},
            "deniability": {"x": 2 if representatives == 2 else 1, **({} if delta is None else {"delta": delta})},
            "engine": {"name": "sequential", "device": "cpu"},
            **sections,
        },
        source="test",
    )
