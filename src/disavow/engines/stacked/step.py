"""One step of an optimizer over stacked clients, and the memory in which it is captured as a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from disavow.engines.cuda_graphs import captured
from disavow.engines.stacked.network import StackedNetwork, Tensors

Loss = Callable[[Tensor, Tensor], Tensor]
"""From the scores and labels of some samples to the loss of each."""

Update = Callable[[Tensor, Tensor, Tensors, Tensors], tuple[Tensor, Tensors]]
"""From parameters, gradients, state and hyperparameters to new parameters and state; one row a client in each."""

_CAPTURED = 32
"""Shapes that stay captured: the commonest of a call."""

_CAPTURE_FROM = 2
"""A shape that a call launches less often is not captured: capturing takes as long as a few launches."""


@dataclass(frozen=True)
class Optimizer:
    """An optimizer as a function of matrices that have one row a client.

    Args:
        hyperparameters: The training settings that it reads; each comes as a column.
        state: What it keeps from step to step, zero before the first.
        update: The step itself.
    """

    hyperparameters: tuple[str, ...]
    state: tuple[str, ...]
    update: Update


def _sgd(parameters: Tensor, gradients: Tensor, state: Tensors, rates: Tensors) -> tuple[Tensor, Tensors]:
    gradients = gradients + rates["weight_decay"] * parameters
    velocity = rates["momentum"] * state["velocity"] + gradients
    return parameters - rates["learning_rate"] * velocity, {"velocity": velocity}


SGD = Optimizer(("learning_rate", "momentum", "weight_decay"), ("velocity",), _sgd)
"""SGD with momentum and weight decay, as `torch.optim.SGD` defines it."""


class TrainingStep:
    """A step of every client at once: rows in, rows out, nothing else touched.

    Args:
        network: The network as a function.
        loss: The loss of each sample.
        optimizer: What is done with the gradients.
        bf16: Whether the network is computed in bfloat16.
    """

    def __init__(self, network: StackedNetwork, loss: Loss, optimizer: Optimizer, *, bf16: bool = False) -> None:
        self.network, self.optimizer = network, optimizer
        self._loss, self._bf16 = loss, bf16

    def __call__(
        self, rows: Tensor, state: Tensors, rates: Tensor, images: Tensor, labels: Tensor, sizes: Tensor
    ) -> tuple[Tensor, Tensors]:
        """Take one batch of each client.

        Args:
            rows: One model a client.
            state: What the optimizer keeps, one row a client.
            rates: Its hyperparameters, one row a client.
            images: (clients, samples, ...).
            labels: (clients, samples, ...).
            sizes: How many samples of each client count; those after them weigh nothing.

        Returns:
            The rows and the state after the step.
        """
        network, optimizer = self.network, self.optimizer
        real = torch.arange(labels.shape[1], device=labels.device) < sizes[:, None]
        trained = network.tensors(rows, network.trained)
        frozen = network.tensors(rows, network.frozen)
        # batch norm writes into its statistics, and rows are not ours to change
        statistics = {name: each.clone() for name, each in network.tensors(rows, network.statistics).items()}
        # The sum over clients has each client's own gradient. It is taken outside of vmap, so that what goes
        # backward are plain operations on stacked tensors, whether or not vmap has a rule for the derivative.
        gradients, statistics = grad(self._total_loss, has_aux=True)(
            trained, frozen, statistics, images, labels, real / sizes[:, None]
        )
        parameters, state = optimizer.update(
            network.join(trained, network.trained),
            network.join(gradients, network.trained),
            state,
            dict(zip(optimizer.hyperparameters, rates.split(1, dim=1), strict=True)),
        )
        return network.join_all({**network.split(parameters), **frozen, **statistics}), state

    def _total_loss(
        self, trained: Tensors, frozen: Tensors, statistics: Tensors, images: Tensor, labels: Tensor, shares: Tensor
    ) -> tuple[Tensor, Tensors]:
        losses, after = vmap(self._client_loss)(trained, frozen, statistics, images, labels, shares)
        return losses.sum(), after

    def _client_loss(
        self, trained: Tensors, frozen: Tensors, statistics: Tensors, images: Tensor, labels: Tensor, shares: Tensor
    ) -> tuple[Tensor, Tensors]:
        tensors = {**trained, **frozen, **statistics}
        with self._autocast(images.device):
            scores = self.network.scores(tensors, images)
        losses = self._loss(scores.float(), labels)
        return (losses * shares).sum(), {name: tensors[name] for name in statistics}

    def _autocast(self, device: torch.device) -> AbstractContextManager[object]:
        if not self._bf16:
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


class Shape(NamedTuple):
    """So many clients with so many samples each."""

    clients: int
    samples: int


class ClientStack:
    """The static memory of stacked clients; a step over some of them reads and writes it, captured or not.

    The last row belongs to no client: those that pad a launch write there.

    Args:
        step: What is done with the rows.
        clients: How many fit.
        samples: How many samples fit into one launch, of all its clients together.
        images: Samples of the kind that will come.
        labels: Their labels.
    """

    def __init__(self, step: TrainingStep, clients: int, samples: int, images: Tensor, labels: Tensor) -> None:
        self._step, device = step, step.network.device
        self.clients, self.samples, self.spare = clients, samples, clients
        self._rows = torch.zeros(clients + 1, step.network.layout.size, device=device)
        trained = step.network.trained_size
        self._state = {name: torch.zeros(clients + 1, trained, device=device) for name in step.optimizer.state}
        self._rates = torch.zeros(clients + 1, len(step.optimizer.hyperparameters), device=device)
        self._images = images.new_zeros(samples, *images.shape[1:], device=device)
        self._labels = labels.new_zeros(samples, *labels.shape[1:], device=device)
        self._which = torch.zeros(samples, dtype=torch.int64, device=device)
        self._sizes = torch.ones(samples, dtype=torch.int64, device=device)
        self._graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def capture(self, shapes: Counter[Shape]) -> None:
        """Capture the commonest shapes as CUDA graphs, before any client is loaded.

        Args:
            shapes: How often each will be launched.
        """
        wanted = [shape for shape, launches in shapes.most_common(_CAPTURED) if launches >= _CAPTURE_FROM]
        missing = [shape for shape in wanted if shape not in self._graphs]
        if len(self._graphs) + len(missing) > _CAPTURED:
            self._graphs = {shape: graph for shape, graph in self._graphs.items() if shape in wanted}
        for shape in missing:
            # no client takes part
            self._which.fill_(self.spare)
            self._sizes.fill_(shape.samples)
            self._graphs[shape] = captured(lambda shape=shape: self.advance(shape), self._pool)  # type: ignore[misc]

    def load(self, rows: Tensor, rates: Tensor) -> None:
        """Begin with these clients.

        Args:
            rows: One model a client.
            rates: The optimizer's hyperparameters, one row a client.
        """
        self._rows[: len(rows)] = rows
        self._rows[self.spare] = rows[0]
        self._rates[: len(rates)] = rates
        # the spare row stands still, so that it stays finite
        self._rates[self.spare] = 0
        for each in self._state.values():
            each.zero_()

    def launch(self, shape: Shape, images: Tensor, labels: Tensor, block: Tensor) -> None:
        """Take one step of some clients, without waiting for the device.

        Args:
            shape: How many clients and samples, padding included.
            images: All samples.
            labels: Their labels.
            block: Numbers of the samples, client by client; then the clients; then their batch sizes.
        """
        samples = shape.clients * shape.samples
        torch.index_select(images, 0, block[:samples], out=self._images[:samples])
        torch.index_select(labels, 0, block[:samples], out=self._labels[:samples])
        which, sizes = block[samples:].split(shape.clients)
        self._which[: shape.clients] = which
        self._sizes[: shape.clients] = sizes
        if shape in self._graphs:
            self._graphs[shape].replay()
        else:
            self.advance(shape)

    def trained(self, clients: int) -> Tensor:
        """Read the rows of the first clients.

        Args:
            clients: How many.

        Returns:
            One model a row.
        """
        return self._rows[:clients]

    def advance(self, shape: Shape) -> None:
        """Take a step of the clients, and with the samples, that are in place.

        Args:
            shape: How many of each.
        """
        samples, which = shape.clients * shape.samples, self._which[: shape.clients]
        rows, state = self._step(
            self._rows.index_select(0, which),
            {name: each.index_select(0, which) for name, each in self._state.items()},
            self._rates.index_select(0, which),
            self._images[:samples].unflatten(0, shape),
            self._labels[:samples].unflatten(0, shape),
            self._sizes[: shape.clients],
        )
        self._rows.index_copy_(0, which, rows)
        for name, each in state.items():
            self._state[name].index_copy_(0, which, each)
