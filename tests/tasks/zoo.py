"""Small tasks of many kinds, which every generic engine must train."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import disavow
from disavow.tasks.task import Task

CLIENTS = {"ada": 9, "bob": 12, "cyd": 5, "dan": 16}
"""Ids, with the number of samples of each."""


def _rows(make: Any) -> dict[str, Any]:
    return {
        client: make(np.random.Generator(np.random.PCG64(number)), samples)
        for number, (client, samples) in enumerate(CLIENTS.items())
    }


def tabular() -> Task:
    """An MLP on measurements, trained by Adam."""

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        inputs = rng.normal(size=(samples, 6)).astype(np.float32)
        return inputs, (inputs.sum(axis=1) > 0).astype(np.int64)

    return disavow.task(
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)),
        clients=_rows(make),
        test=make(np.random.Generator(np.random.PCG64(99)), 20),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    )


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words))
        scores: Tensor = self.head(states[:, -1])
        return scores


class _Attention(nn.Module):
    """A transformer whose output layer is tied to its embedding, with a frozen table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.position = nn.Parameter(torch.randn(7, 8), requires_grad=False)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.order: Tensor
        self.register_buffer("order", torch.arange(7))

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layer(self.embedding(words) + self.position[self.order])).mean(dim=1)
        return scores


def _words(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
    return rng.integers(0, 20, size=(samples, 7)), rng.integers(0, 3, size=samples)


def recurrent_text() -> Task:
    """An embedding and an LSTM, trained by RMSprop with clipped gradients."""
    return disavow.task(
        model=_Recurrent,
        clients=_rows(_words),
        optimizer=lambda parameters: torch.optim.RMSprop(parameters, lr=0.005),
        clip_gradients=0.5,
    )


def transformer_text() -> Task:
    """A transformer with dropout, tied weights and a frozen parameter, trained by SGD with momentum."""
    return disavow.task(
        model=_Attention,
        clients=_rows(_words),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    )


def images_with_batch_norm() -> Task:
    """A CNN with batch norm, trained by AdamW with clipped gradients."""

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        return rng.normal(size=(samples, 1, 8, 8)).astype(np.float32), rng.integers(0, 4, size=samples)

    return disavow.task(
        model=lambda: nn.Sequential(
            # without a bias: its gradient would be rounding alone, of which Adam makes whole steps
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 4),
        ),
        clients=_rows(make),
        test=make(np.random.Generator(np.random.PCG64(99)), 10),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        clip_gradients=0.5,
    )


def with_dropout() -> Task:
    """An MLP with dropout, trained by Adam in two groups of parameters."""

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        return rng.normal(size=(samples, 6)).astype(np.float32), rng.integers(0, 2, size=samples)

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        weights, biases = parameters[::2], parameters[1::2]
        return torch.optim.Adam([{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.02}], lr=0.01)

    return disavow.task(
        model=lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2)),
        clients=_rows(make),
        optimizer=optimizer,
    )


class _TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        value: Tensor = self.layer(torch.cat([first, second], dim=1))
        return value


def squared_error() -> Task:
    """Mean squared error of two inputs, trained by SGD with momentum and weight decay."""
    return disavow.task(
        model=_TwoInputs,
        clients=_rows(
            lambda rng, samples: tuple(rng.normal(size=(samples, width)).astype(np.float32) for width in (2, 1, 1))
        ),
        loss=functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    )


class Regression(Task):
    """Mean squared error with dropout, noise of the user's own, several inputs, and a schedule."""

    epochs = 2
    batch_size = 4

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))

    def clients(self) -> dict[str, Any]:
        return _rows(
            lambda rng, samples: tuple(rng.normal(size=(samples, width)).astype(np.float32) for width in (2, 1, 1))
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        first, second, target = batch
        noisy = torch.cat([first, second], dim=1) + 0.1 * torch.randn(len(first), 3) + 0.1 * float(np.random.rand())  # noqa: NPY002
        return functional.mse_loss(model(noisy), target)

    def learning_rate_factor(self, round_number: int) -> float:
        return 0.5 ** (round_number - 1)

    def test_data(self) -> Any:
        return self.clients()["dan"]

    def evaluate(self, model: nn.Module, data: Any) -> dict[str, float]:
        first, second, target = (torch.as_tensor(each) for each in data)
        error = model(torch.cat([first, second], dim=1)) - target
        return {"rmse": float(error.square().mean().sqrt()), "bias": float(error.mean())}


def multi_label() -> Task:
    """Several labels a sample, binary cross entropy, SGD of the settings."""

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        inputs = rng.normal(size=(samples, 5)).astype(np.float32)
        return inputs, (inputs[:, :3] > 0).astype(np.float32)

    return disavow.task(
        model=lambda: nn.Linear(5, 3),
        clients=_rows(make),
        test=make(np.random.Generator(np.random.PCG64(99)), 10),
        loss=functional.binary_cross_entropy_with_logits,
        metrics={"exact": lambda scores, labels: ((scores > 0) == (labels > 0)).all(dim=1).float().mean()},
    )


def own_loop() -> Task:
    """A training loop of the user's own."""

    def train_client(model: nn.Module, data: Any, seed: int) -> None:
        inputs, labels = (torch.as_tensor(each) for each in data)
        generator = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            chosen = torch.randint(0, len(inputs), (4,), generator=generator)
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        return rng.normal(size=(samples, 6)).astype(np.float32), rng.integers(0, 2, size=samples)

    return disavow.task(model=lambda: nn.Linear(6, 2), clients=_rows(make), train_client=train_client)


def plain() -> Task:
    """Images, cross entropy and SGD of the settings: what kernels know."""

    def make(rng: np.random.Generator, samples: int) -> tuple[Any, ...]:
        return rng.random(size=(samples, 1, 8, 8)).astype(np.float32), rng.integers(0, 4, size=samples)

    return disavow.task(
        model=lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)),
        clients=_rows(make),
        test=make(np.random.Generator(np.random.PCG64(99)), 10),
    )


class ReportsProcess(Task):
    """Its updates hold the number of the process that trained them."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 1, bias=False)

    def clients(self) -> dict[str, Any]:
        return _rows(lambda rng, samples: (np.zeros((samples, 1), np.float32),))

    def train_client(self, model: nn.Module, data: Any, seed: int) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(os.getpid())


class OtherData(Task):
    """Its clients hold other numbers in every process."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 2)

    def clients(self) -> dict[str, Any]:
        value = float(os.getpid())
        return _rows(lambda rng, samples: (np.full((samples, 1), value, np.float32), np.zeros(samples, int)))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters())


TASKS = {
    "tabular": tabular,
    "recurrent text": recurrent_text,
    "transformer text": transformer_text,
    "images with batch norm": images_with_batch_norm,
    "dropout": with_dropout,
    "squared error": squared_error,
    "regression": Regression,
    "multi-label": multi_label,
    "own loop": own_loop,
}

FACTORIES = {name: f"{__name__}:{make.__name__}" for name, make in {**TASKS, "plain": plain}.items()}
"""The same tasks, as settings name them."""
