"""Small tasks of each kind of data whose examples have record keys; each can be made as if it never held some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset, TensorDataset

import disavow
from disavow.domain import Exclusions
from disavow.tasks.factory import Factory
from disavow.tasks.loading import LoadedTask, load
from disavow.tasks.task import Task
from tests.tasks.zoo import CLIENTS

ERASED = {"ada": ("ada-2", "ada-7"), "dan": ("dan-shared",)}
"""What is erased: two examples of one client, and the three examples of another that are one record."""

EXCLUSIONS = {
    client: Exclusions(bytes([i]) * 32).adding(records) for i, (client, records) in enumerate(ERASED.items())
}

_SHARED = (0, 4, 9)
"""Examples of dan that are one record."""


def keys_of(client: str, without: Iterable[str] = ()) -> list[str]:
    """The keys of a client's examples, without some."""
    named = [f"{client}-{i}" for i in range(CLIENTS[client])]
    if client == "dan":
        named = [f"{client}-shared" if i in _SHARED else key for i, key in enumerate(named)]
    return [key for key in named if key not in set(without)]


class _ByKeyword(nn.Module):
    """Takes the inputs of a batch that is a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, measured: Tensor) -> Tensor:
        scores: Tensor = self.layer(measured)
        return scores


class Recorded(Task):
    """An MLP on measurements, trained by Adam; a subclass says in which form clients hold them."""

    epochs, batch_size = 2, 4

    def __init__(self, without: Sequence[str] = ()) -> None:
        self._without = tuple(without)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def clients(self) -> dict[str, Any]:
        return {client: self.held(*self._columns(client)) for client in CLIENTS}

    def record_keys(self, client: str) -> Sequence[str] | None:
        return keys_of(client, self._without)

    def held(self, inputs: Any, labels: Any) -> Any:
        """Put a client's columns into a form of data."""
        raise NotImplementedError

    def _columns(self, client: str) -> tuple[Any, Any]:
        rng = np.random.Generator(np.random.PCG64(len(client) + CLIENTS[client]))
        inputs = rng.normal(size=(CLIENTS[client], 6)).astype(np.float32)
        kept = [i for i, key in enumerate(keys_of(client)) if key not in self._without]
        return inputs[kept], (inputs.sum(axis=1) > 0).astype(np.int64)[kept]


class Arrays(Recorded):
    def held(self, inputs: Any, labels: Any) -> Any:
        return inputs, labels


class Plain(Recorded):
    """Images, SGD and cross entropy: what kernels know."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return Task.optimizer(self, model)

    def held(self, inputs: Any, labels: Any) -> Any:
        return [torch.as_tensor(inputs).view(-1, 1, 2, 3), torch.as_tensor(labels)]


class Tensors(Recorded):
    def held(self, inputs: Any, labels: Any) -> Any:
        return TensorDataset(torch.as_tensor(inputs), torch.as_tensor(labels))


class Subsets(Recorded):
    def held(self, inputs: Any, labels: Any) -> Any:
        order = list(range(len(inputs)))[::-1]
        whole = TensorDataset(torch.as_tensor(inputs[order].copy()), torch.as_tensor(labels[order].copy()))
        return Subset(whole, order)


class _Rows(Dataset[Any]):
    def __init__(self, inputs: Any, labels: Any) -> None:
        self._inputs, self._labels = inputs, labels

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, position: int) -> Any:
        noise = 0.01 * torch.randn(6)  # drawn in the order of reading, as augmentations are
        return torch.as_tensor(self._inputs[position]) + noise, int(self._labels[position])


class Datasets(Recorded):
    def held(self, inputs: Any, labels: Any) -> Any:
        return _Rows(inputs, labels)


class Mappings(Recorded):
    def model(self) -> nn.Module:
        return _ByKeyword()

    def held(self, inputs: Any, labels: Any) -> Any:
        return [{"measured": row, "label": label} for row, label in zip(inputs, labels, strict=True)]


class Tables(Recorded):
    def model(self) -> nn.Module:
        return _ByKeyword()

    def held(self, inputs: Any, labels: Any) -> Any:
        return datasets.Dataset.from_dict({"measured": inputs.tolist(), "label": labels.tolist()})


class Loop(Recorded):
    """A training loop of its own, which gets the client's data as the task gave it."""

    def held(self, inputs: Any, labels: Any) -> Any:
        return inputs, labels

    def train_client(self, model: nn.Module, data: tuple[Any, Any], seed: int) -> None:
        inputs, labels = (torch.as_tensor(each) for each in data)
        generator = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            chosen = torch.randint(0, len(inputs), (4,), generator=generator)
            optimizer.zero_grad()
            loss: Tensor = functional.cross_entropy(model(inputs[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()


def parts(without: Sequence[str] = ()) -> Task:
    """The same by `disavow.task`."""
    made = Arrays(without)
    return disavow.task(
        model=made.model,
        clients=made.clients(),
        optimizer=_adam,
        epochs=2,
        batch_size=4,
        record_keys={client: keys_of(client, without) for client in CLIENTS},
    )


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


KINDS = {
    each.__name__.lower(): f"{__name__}:{each.__name__}"
    for each in (Arrays, Plain, Tensors, Subsets, Datasets, Mappings, Tables, Loop, parts)
}
"""Tasks by kind of data, as settings name them."""


def loaded(kind: str, without: Sequence[str] = (), *, seed: int = 5) -> LoadedTask:
    """Load a task of this kind, as if it had never held some records."""
    factory = Factory(KINDS[kind], {"without": list(without)})
    made = factory.build()
    return load(made, training=made.training, seed=seed, factory=factory)


def never_held(kind: str) -> LoadedTask:
    """Load a task that never held what `EXCLUSIONS` excludes."""
    return loaded(kind, [record for records in ERASED.values() for record in records])
