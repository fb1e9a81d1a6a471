"""Try a task before its clients are stacked: one step of two clients, compared with the same steps taken alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.utils._pytree import tree_flatten

from disavow.engines.stacked.check import CannotStack, error_line
from disavow.engines.stacked.dropout import keys_of, own_dropout
from disavow.engines.stacked.task_stack import BatchGroup, StackedLoss, TaskStack, Tensors
from disavow.engines.state import model_of, put_model
from disavow.engines.task_workload import TaskWorkload
from disavow.rounds.vectors import Model
from disavow.tasks.samples import moved

_ROUNDING = 1e-3
"""Two ways of computing the same differ by far less than this, of its size; the smallest changes, of all."""

_ON_CPU = 64
"""Clients that are stacked at once on a CPU."""

_SHARE = 0.5
"""Of the free memory of a GPU, what a stack may take."""

_STATES = 4
"""Copies of the parameters beyond what a step was seen to take: gradients and what the optimizer keeps."""


@dataclass(frozen=True, eq=False)
class _Tried:
    """What a step without an optimizer gives for some clients: losses, gradients and buffers, one row a client."""

    losses: Tensor
    gradients: dict[str, Tensor | None]
    buffers: Tensors


@dataclass(frozen=True, eq=False)
class StackTrial:
    """A batch of each of two clients, and what they give alone."""

    batches: list[Any]
    alone: list[_Tried]

    @classmethod
    def of(cls, workload: TaskWorkload) -> StackTrial:
        """Compute the losses of the two largest clients, each alone.

        Raises:
            CannotStack: A user's code does not run on this device.

        """
        largest = sorted(workload.parts, key=lambda client: -len(workload.parts[client]))[:2]
        clients, device = [largest[0], largest[-1]], workload.device
        size = min(workload.settings.batch_size, *(len(workload.parts[client]) for client in clients))
        try:
            batches = [moved(workload.parts[client].batch(np.arange(size)), device) for client in clients]
            return cls(batches, [_alone(workload, batch, number) for number, batch in enumerate(batches)])
        except Exception as error:
            raise CannotStack(
                f"its code does not run on {device.type}: {error_line(error)}", runs_here=False
            ) from error

    def compare(self, workload: TaskWorkload, network: StackedLoss) -> int:
        """Compare with the same two in a stack; how many clients fit into memory.

        Raises:
            CannotStack: They cannot be stacked, or come out otherwise.

        """
        before = _generators(workload.device)
        try:
            stacked, fits = _in_stack(workload, network, self.batches)
        except CannotStack:
            raise
        except Exception as error:
            raise CannotStack(f"torch.func cannot: {error_line(error)}") from error
        if _generators(workload.device) != before:
            raise CannotStack("the model or the loss draws at random by itself")
        for number, one in enumerate(self.alone):
            _refuse_difference(one, stacked, number)
        return fits


def _model_for(workload: TaskWorkload, number: int) -> Model:
    model = model_of(workload.network)
    return Model(model.layout, (1.0 - 0.1 * number) * model.vector.to(workload.device))


def _key_for(number: int, device: torch.device) -> Tensor:
    return keys_of(np.array([number + 1], dtype=np.uint64), device)[0]


def _alone(workload: TaskWorkload, batch: Any, number: int) -> _Tried:
    network = copy.deepcopy(workload.network).to(workload.device).train()
    put_model(network, _model_for(workload, number))
    trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
    with torch.enable_grad(), own_dropout(_key_for(number, workload.device)):
        loss = workload.loaded.task.loss(network, batch)
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    buffers = {name: each for name, each in network.named_buffers() if each.is_floating_point()}
    return _Tried(loss.detach(), dict(zip(trained, gradients, strict=True)), buffers)


def _in_stack(workload: TaskWorkload, network: StackedLoss, batches: Sequence[Any]) -> tuple[_Tried, int]:
    device, clients = workload.device, len(batches)
    model = _model_for(workload, 0)
    stack = TaskStack(network, model, clients, _no_step)
    other = _model_for(workload, 1).tensors()
    with torch.no_grad():
        for name, each in (stack.parameters | stack.buffers).items():
            if name in other:
                each[1] = other[name]
    leaves, structures = zip(*(tree_flatten(batch) for batch in batches), strict=True)
    if not all(isinstance(leaf, Tensor) for each in leaves for leaf in each):
        raise CannotStack("a batch holds something else than tensors")
    group = BatchGroup(
        list(range(clients)), [torch.stack(each) for each in zip(*leaves, strict=True)], structures[0]
    )
    keys = torch.stack([_key_for(number, device) for number in range(clients)])
    counters = {n: b.clone() for n, b in network.network.named_buffers() if not b.is_floating_point()}
    taken = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with torch.enable_grad():
        losses, buffers = network(stack.parameters, {n: b.clone() for n, b in stack.buffers.items()}, group, keys)
        gradients = torch.autograd.grad(losses.sum(), list(stack.parameters.values()), allow_unused=True)
    for name, buffer in network.network.named_buffers():
        if (
            name in counters
            and not name.endswith("num_batches_tracked")
            and not torch.equal(buffer, counters[name])
        ):
            raise CannotStack(f"the model counts in {name}")
    tried = _Tried(losses.detach(), dict(zip(stack.parameters, gradients, strict=True)), buffers)
    return tried, _fits(device, taken, clients, model.layout.size)


def _no_step(parameters: Tensors) -> Optimizer:
    """An optimizer for a trial, which compares gradients and takes no step."""
    return SGD(parameters.values(), lr=0.0)


def _fits(device: torch.device, taken: int, clients: int, numbers: int) -> int:
    """How many clients are stacked at once: what fits into a share of the free memory."""
    if device.type != "cuda":
        return _ON_CPU
    each = (torch.cuda.max_memory_allocated(device) - taken) / clients + _STATES * 4 * numbers
    free = torch.cuda.mem_get_info(device)[0]
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(1, int(_SHARE * free / each))


def _refuse_difference(alone: _Tried, stacked: _Tried, number: int) -> None:
    pairs = [("loss", alone.losses, stacked.losses[number])]
    for name, one in alone.gradients.items():
        other = stacked.gradients[name]
        if (one is None) != (other is None):
            raise CannotStack(f"{name} is trained alone and not in a stack, or the other way round")
        if one is not None and other is not None:
            pairs.append((name, one, other[number]))
    pairs += [(name, one, stacked.buffers[name][number]) for name, one in alone.buffers.items()]
    largest = max(float(torch.nan_to_num(one).norm()) for _, one, _ in pairs)
    for name, one, other in pairs:
        allowed = _ROUNDING * (float(torch.nan_to_num(one).norm()) + _ROUNDING * largest)
        if float(torch.nan_to_num(one - other.detach()).norm()) > allowed:
            raise CannotStack(f"{name} comes out otherwise in a stack than alone")


def _generators(device: torch.device) -> tuple[bytes, ...]:
    """The state of every generator that a user's code may draw from."""
    drawn = [torch.random.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode()]
    drawn.append(repr(np.random.get_state(legacy=False)).encode())  # noqa: NPY002 - user code may draw from it
    if device.type == "cuda":
        drawn.append(torch.cuda.get_rng_state(device).numpy().tobytes())
    return tuple(drawn)
