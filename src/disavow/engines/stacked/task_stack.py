"""Clients of a task in one stack: their batches side by side, the task's loss over them, and its optimizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from disavow.engines.stacked.check import CannotStack
from disavow.engines.stacked.dropout import own_dropout
from disavow.engines.stacked.network import unfold_convolutions
from disavow.engines.task_workload import TaskWorkload
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model
from disavow.tasks.loading import seeded
from disavow.tasks.samples import Positions, TensorSamples, join, moved
from disavow.tasks.task import Task
from disavow.tasks.training import optimizer_of

_OPTIMIZERS = (SGD, Adam, AdamW)
_HOW = {"params", "foreach", "fused", "capturable", "differentiable"}
"""Options of an optimizer that say how it computes, not what."""

Tensors = dict[str, Tensor]

StackedOptimizer = Callable[[Tensors], Optimizer]
"""Makes an optimizer over the parameters of stacked clients, by name; the first dimension of each is the client.

It must not mix clients. Clients leave a stack from its end: the parameters get shorter, and with them those tensors
of the optimizer's state that have the shape of their parameter.
"""

# -- samples ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StackedClient:
    """A client of a round: its seed, its batches, and for each of them a word that its dropout derives from."""

    client: str
    seed: int
    batches: list[Positions]
    words: np.ndarray[Any, np.dtype[np.uint64]]

    @classmethod
    def of(cls, workload: TaskWorkload, client: str, round_number: int) -> StackedClient:
        """Order a client's samples in batches, and draw its words."""
        batches = list(workload.batches_of(client, round_number))
        stream = training_stream(workload.seed, "task", round_number=round_number, client=client)
        return cls(client, stream.below(1 << 63), batches, stream.words(len(batches)))


@dataclass(frozen=True, eq=False)
class BatchGroup:
    """Clients whose batches have the same shape: their places in the stack, and the batches, stacked."""

    clients: list[int]
    leaves: list[Tensor]
    structure: TreeSpec


@dataclass(frozen=True, eq=False)
class ClientRows:
    """The samples of all clients, on the device where they are tensors of one shape; else they are read anew."""

    tensors: tuple[Tensor, ...] | None
    parts: dict[str, Positions]

    @classmethod
    def of(cls, workload: TaskWorkload) -> ClientRows:
        """Put the samples of all clients on the device, where that can be."""
        held = {client: each for client, each in workload.parts.items() if isinstance(each, TensorSamples)}
        if len(held) < len(workload.parts):
            return cls(None, {})
        try:
            return cls(*join(held, workload.device))
        except (ValueError, torch.OutOfMemoryError):
            return cls(None, {})

    def read(self, workload: TaskWorkload, client: StackedClient) -> list[Any] | None:
        """Read all batches of a client, with the draws of its own seed; None where they lie on the device."""
        if self.tensors is not None:
            return None
        samples = workload.parts[client.client]
        with seeded(client.seed, workload.device):
            return [samples.batch(positions) for positions in client.batches]

    def groups(
        self, clients: Sequence[StackedClient], data: Sequence[list[Any] | None], step: int, device: torch.device
    ) -> list[BatchGroup]:
        """Put the clients' batches of a step side by side, those of one shape together."""
        if self.tensors is not None:
            return self._gathered(clients, step, device)
        flat = [tree_flatten(moved(read[step], device)) for read in data if read is not None]
        together: dict[Any, list[int]] = {}
        for place, (leaves, structure) in enumerate(flat):
            if not all(isinstance(leaf, Tensor) for leaf in leaves):
                strange = next(type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor))
                raise CannotStack(f"a batch holds a {strange}, which is no tensor")
            shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
            together.setdefault((str(structure), shapes), []).append(place)
        return [
            BatchGroup(
                indices,
                [torch.stack(each) for each in zip(*(flat[place][0] for place in indices), strict=True)],
                flat[indices[0]][1],
            )
            for indices in together.values()
        ]

    def _gathered(self, clients: Sequence[StackedClient], step: int, device: torch.device) -> list[BatchGroup]:
        by_size: dict[int, list[int]] = {}
        for place, client in enumerate(clients):
            by_size.setdefault(len(client.batches[step]), []).append(place)
        structure = tree_flatten(self.tensors)[1]
        groups = []
        for size, indices in by_size.items():
            numbers = [self.parts[clients[place].client][clients[place].batches[step]] for place in indices]
            rows = torch.from_numpy(np.concatenate(numbers)).to(device, non_blocking=True)
            leaves = [
                tensor.index_select(0, rows).unflatten(0, (len(indices), size)) for tensor in self.tensors or ()
            ]
            groups.append(BatchGroup(indices, leaves, structure))
        return groups


# -- the loss -----------------------------------------------------------------------------------------------------


class _LossModule(nn.Module):
    """A task's loss as a module, so that what it computes with can be replaced by name."""

    def __init__(self, task: Task, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._loss = task.loss

    def forward(self, batch: Any) -> Tensor:
        return self._loss(self.network, batch)


class StackedLoss:
    """The loss of stacked clients as a function of their parameters, their buffers and their batches."""

    def __init__(self, task: Task, network: nn.Module, device: torch.device) -> None:
        _refuse_unsupported(network)
        copied = unfold_convolutions(copy.deepcopy(network)).to(device).train()
        self._module = _LossModule(task, copied)
        self.network, self.device = copied, device
        self.trained = [name for name, each in copied.named_parameters() if each.requires_grad]
        self.buffers = [name for name, each in copied.named_buffers() if each.is_floating_point()]

    def __call__(
        self, parameters: Tensors, buffers: Tensors, group: BatchGroup, keys: Tensor
    ) -> tuple[Tensor, Tensors]:
        """Compute the loss of each client, and its buffers after it."""

        def of_one(own: Tensors, kept: Tensors, key: Tensor, *leaves: Tensor) -> tuple[Tensor, Tensors]:
            # buffers that a module assigns anew are written back into the dict, and may be changed in place there
            tensors = {f"network.{name}": each for name, each in (own | kept).items()}
            with own_dropout(key):
                loss = functional_call(self._module, tensors, (tree_unflatten(list(leaves), group.structure),))
            return loss, {name: tensors[f"network.{name}"] for name in kept}

        return vmap(of_one, randomness="error")(parameters, buffers, keys, *group.leaves)


def _refuse_unsupported(network: nn.Module) -> None:
    """Refuse what need not be run to be known as unsupported."""
    for name, module in network.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise CannotStack(f"{name}.{key} is {parameter.dtype}, not torch.float32")
        for key, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point() and buffer.dtype != torch.float32:
                raise CannotStack(f"{name}.{key} is {buffer.dtype}, not torch.float32")
        if isinstance(module, _NormBase) and module.track_running_stats and module.momentum is None:
            raise CannotStack(f"with momentum = None the statistics of {name} depend on a counter")
        if module._forward_hooks or module._forward_pre_hooks:
            raise CannotStack(f"{name or type(module).__name__} has hooks")


# -- the step -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadOptimizer:
    """What an optimizer does: its class, and for each group the parameters, by name, and the options."""

    kind: type[Optimizer]
    groups: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]

    def over(self, parameters: Tensors) -> Optimizer:
        """Make the same optimizer over other tensors of these names."""
        groups = [{**options, "params": [parameters[name] for name in names]} for names, options in self.groups]
        return self.kind(groups)  # type: ignore[call-arg]


def read_optimizer(task: Task, network: nn.Module, round_number: int) -> ReadOptimizer:
    """Read a task's optimizer.

    Args:
        task: Whose optimizer.
        network: The model.
        round_number: The round whose learning rates it has.

    Raises:
        CannotStack: It is none that treats every number by itself, or there is more to it.

    """
    optimizer = optimizer_of(task, network, round_number)
    if type(optimizer) not in _OPTIMIZERS:
        allowed = ", ".join(kind.__name__ for kind in _OPTIMIZERS)
        raise CannotStack(f"the optimizer is {type(optimizer).__name__}; stacked are {allowed}")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise CannotStack("the optimizer has hooks")
    names = {id(each): name for name, each in network.named_parameters() if each.requires_grad}
    groups = []
    for group in optimizer.param_groups:
        if "initial_lr" in group:
            raise CannotStack("a learning-rate schedule is attached to the optimizer")
        own = [each for each in group["params"] if each.requires_grad]
        if any(id(each) not in names for each in own):
            raise CannotStack("the optimizer trains parameters that are not the model's")
        options = {name: value for name, value in group.items() if name not in _HOW}
        options["lr"] = float(options["lr"])
        if any(isinstance(value, Tensor) for value in options.values()):
            raise CannotStack("the optimizer has an option that is a tensor")
        groups.append((tuple(names[id(each)] for each in own), options))
    return ReadOptimizer(type(optimizer), tuple(groups))


class TaskStack:
    """Clients that train together: their parameters, their buffers and their optimizer.

    Args:
        network: The loss.
        model: What they start from.
        clients: How many they are.
        optimizer: Makes what steps their parameters.
        clip_gradients: Bounds the norm of each client's gradient; None: it is not bounded.

    """

    def __init__(
        self,
        network: StackedLoss,
        model: Model,
        clients: int,
        optimizer: StackedOptimizer,
        *,
        clip_gradients: float | None = None,
    ) -> None:
        self._network, self._limit = network, clip_gradients
        self.vectors = model.vector.repeat(clients, 1)
        spans = {spec.name: (start, end, spec.shape) for spec, start, end in model.layout.spans()}
        self._spans = {name: spans[name] for name in (*network.trained, *network.buffers) if name in spans}
        each = {
            name: self.vectors[:, start:end].reshape(clients, *shape).clone()
            for name, (start, end, shape) in self._spans.items()
        }
        # a buffer that is not part of the state, and so not of the vector, starts as the model has it
        hidden = {name: buffer for name, buffer in network.network.named_buffers() if name in network.buffers}
        self.parameters = {name: each[name].requires_grad_() for name in network.trained}
        self.buffers = {
            name: each[name] if name in each else hidden[name].expand(clients, *hidden[name].shape).clone()
            for name in network.buffers
        }
        self._optimizer = optimizer(self.parameters)
        names = {id(each): name for name, each in self.parameters.items()}
        self._moved = [names[id(each)] for group in self._optimizer.param_groups for each in group["params"]]
        self._active = clients

    def step(self, groups: Sequence[BatchGroup], keys: Tensor) -> Tensor:
        """Take one step of every client that is active; the loss of each."""
        losses = torch.zeros(self._active, device=keys.device)
        summed: Tensor | None = None
        for group in groups:
            everybody = len(group.clients) == self._active
            which = torch.tensor(group.clients, device=keys.device)
            parameters, buffers = (
                tensors if everybody else {name: each.index_select(0, which) for name, each in tensors.items()}
                for tensors in (self.parameters, self.buffers)
            )
            own = {name: each.clone() for name, each in buffers.items()} if everybody else buffers
            found, after = self._network(parameters, own, group, keys if everybody else keys[which])
            losses = losses.index_copy(0, which, found.detach())
            for name, each in after.items():
                self.buffers[name] = (
                    each.detach() if everybody else self.buffers[name].index_copy(0, which, each.detach())
                )
            # the sum over clients has each client's own gradient
            summed = found.sum() if summed is None else summed + found.sum()
        if summed is not None:
            self._move(summed)
        return losses

    def _move(self, summed: Tensor) -> None:
        trained = [self.parameters[name] for name in self._moved]
        gradients = torch.autograd.grad(summed, trained, allow_unused=True)
        if self._limit is not None:
            _clip([each for each in gradients if each is not None], self._limit)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()

    def keep(self, active: int) -> None:
        """Let go of all clients but the first; what they have become is in `vectors`."""
        if active == self._active:
            return
        for name, (start, end, _) in self._spans.items():
            each = self.parameters[name] if name in self.parameters else self.buffers[name]
            self.vectors[active : self._active, start:end] = each.detach()[active:].reshape(-1, end - start)
        names = {id(each): name for name, each in self.parameters.items()}
        for group in self._optimizer.param_groups:
            group["params"] = [self._shorten(names[id(each)], active) for each in group["params"]]
        for name in self.parameters.keys() - set(self._moved):
            self.parameters[name] = self.parameters[name].detach()[:active].clone().requires_grad_()
        self.buffers = {name: each[:active].clone() for name, each in self.buffers.items()}
        self._active = active

    def _shorten(self, name: str, active: int) -> Tensor:
        before = self.parameters[name]
        after = before.detach()[:active].clone().requires_grad_()
        state = self._optimizer.state.pop(before, {})
        self._optimizer.state[after] = {
            key: value[:active].clone() if isinstance(value, Tensor) and value.shape == before.shape else value
            for key, value in state.items()
        }
        self.parameters[name] = after
        return after


@torch.no_grad()
def _clip(gradients: Sequence[Tensor], limit: float) -> None:
    """Bound the norm of each client's gradient, as `torch.nn.utils.clip_grad_norm_` does for one."""
    if not gradients:
        return
    norms = torch.stack([torch.linalg.vector_norm(each.reshape(len(each), -1), dim=1) for each in gradients])
    factors = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for each in gradients:
        each.mul_(factors.view(-1, *(1,) * (each.dim() - 1)))
