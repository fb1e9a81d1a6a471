"""Train the clients of any task in one stack: the task's own loss and optimizer, over stacked parameters.

    clients -> stacks that fit into memory -> one step of all of them after the other -> updates

The loss is the user's own code, mapped over clients by `torch.func.vmap`. The optimizer is PyTorch's own: SGD, Adam
and AdamW treat every number by itself, so that over stacked parameters each client has its own state. Whatever
cannot be stacked is found out by trying: one step of two clients, compared with the same steps taken alone.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from disavow.domain import EngineChoice
from disavow.engines.stacked.check import CannotStack, error_line
from disavow.engines.stacked.dropout import keys_of, own_dropout
from disavow.engines.stacked.network import unfold_convolutions
from disavow.engines.stacked.precision import Precision, multiplication_precision
from disavow.engines.stacked.trainer import even_chunks, in_chunks
from disavow.engines.state import layout_of, model_of, put_model
from disavow.engines.task_workload import TaskWorkload
from disavow.errors import DisavowError
from disavow.rounds.randomness import training_stream
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Model, Updates, require_layout
from disavow.tasks.loading import seeded
from disavow.tasks.samples import Positions, TensorSamples, join, moved
from disavow.tasks.task import Task
from disavow.tasks.training import not_finite, optimizer_of

_OPTIMIZERS = (SGD, Adam, AdamW)
_HOW = {"params", "foreach", "fused", "capturable", "differentiable"}
"""Options of an optimizer that say how it computes, not what."""

_ROUNDING = 1e-3
"""Two ways of computing the same differ by far less than this, of its size; the smallest changes, of all."""

_ON_CPU = 64
"""Clients that are stacked at once on a CPU."""

_SHARE = 0.5
"""Of the free memory of a GPU, what a stack may take."""

_STATES = 4
"""Copies of the parameters beyond what a step was seen to take: gradients and what the optimizer keeps."""

_STACKED = EngineChoice("stacked")

Tensors = dict[str, Tensor]


@contextmanager
def reproducible(device: torch.device, precision: Precision = "float32") -> Iterator[None]:
    """Compute with a precision, and by kernels that repeat themselves where there are some.

    Args:
        device: Where; on a CPU one thread computes, as the reference does.
        precision: How exact products are.

    """
    if device.type != "cuda":
        with one_thread():
            yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.cuda.device(device), multiplication_precision(precision), warnings.catch_warnings():
        # where a kernel has no other form, an erasure's report says that the retraining is not reproducible
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=only_warns)


class StackedTasks:
    """Trains all clients of a task at once.

    Args:
        workload: The task, with the device where it is trained.
        precision: How exact products are, on a GPU.
        choice: Why no faster engine trains.

    Raises:
        CannotStack: Its clients cannot be stacked.

    """

    def __init__(
        self,
        workload: TaskWorkload,
        *,
        precision: Precision = "float32",
        choice: EngineChoice = _STACKED,
    ) -> None:
        self.choice = choice
        self._workload, self._precision = workload, precision
        self._task, self._device = workload.loaded.task, workload.device
        if hasattr(self._task, "train_client"):
            raise CannotStack("the task has a training loop of its own")
        self._layout = layout_of(workload.network)
        with reproducible(self._device, precision), seeded(0, self._device):
            trial = _Trial.of(workload)
            read_optimizer(self._task, workload.network, 1)
            self._network = _StackableLoss(self._task, workload.network, self._device)
            self._at_most = trial.compare(workload, self._network)
        self._rows = _Rows.of(workload)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`.

        Raises:
            CannotStack: What worked on the first samples does not on these.
            RoundRefused: The loss of a client became NaN or infinite.

        """
        require_layout([model], self._layout)
        workload = self._workload.training_for(epochs)
        jobs = [_Client.of(workload, client, round_number) for client in clients]
        # those with most steps first: whoever has done its last is at the end of the stack, and is cut off
        order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i].batches))
        vectors = torch.zeros(len(jobs), self._layout.size)

        def train_some(which: Sequence[int]) -> Tensor:
            try:
                return self._train_stack(model, [jobs[i] for i in which], round_number)
            except (CannotStack, DisavowError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise CannotStack(f"in round {round_number} torch.func cannot: {error_line(error)}") from error

        def shortage(stacked: int) -> None:
            self._at_most = max(1, stacked // 2)
            torch.cuda.empty_cache()

        size = even_chunks(len(order), self._at_most)
        seed = training_stream(workload.seed, "stack", round_number=round_number).below(1 << 63)
        with reproducible(self._device, self._precision), seeded(seed, self._device):
            for which, part in in_chunks(order, size, train_some, shortage=shortage):
                vectors[list(which)] = part.to(vectors.device)
        samples = tuple(len(workload.parts[client]) for client in clients)
        name = "stacked" if self._precision == "float32" else f"stacked {self._precision}"
        return Updates(tuple(clients), samples, vectors, name)

    def close(self) -> None:
        """Let go of what is on the device."""
        self._rows = _Rows(None, {})
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _train_stack(self, model: Model, clients: Sequence[_Client], round_number: int) -> Tensor:
        """The updates of clients that are stacked at once, sorted by their steps."""
        start = model.vector.to(self._device)
        stack = _Stack(self._network, self._task, Model(model.layout, start), len(clients), round_number)
        data = [self._rows.read(self._workload, client) for client in clients]
        words = np.stack([_padded(client.words, len(clients[0].batches)) for client in clients])
        keys = keys_of(words, self._device)
        total = torch.zeros(len(clients), device=self._device)
        for step in range(len(clients[0].batches)):
            active = sum(step < len(client.batches) for client in clients)
            stack.keep(active)
            groups = self._rows.groups(clients[:active], data[:active], step, self._device)
            total[:active] += stack.step(groups, keys[:active, step])
        stack.keep(0)
        finite = torch.isfinite(total).tolist()
        if not all(finite):
            raise not_finite(clients[finite.index(False)].client, round_number)
        return stack.vectors - start


def _padded(words: np.ndarray[Any, np.dtype[np.uint64]], length: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.pad(words, (0, length - len(words)))


# -- samples ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Client:
    """A client of a round: its seed, its batches, and for each of them a word that its dropout derives from."""

    client: str
    seed: int
    batches: list[Positions]
    words: np.ndarray[Any, np.dtype[np.uint64]]

    @classmethod
    def of(cls, workload: TaskWorkload, client: str, round_number: int) -> _Client:
        batches = list(workload.batches_of(client, round_number))
        stream = training_stream(workload.seed, "task", round_number=round_number, client=client)
        return cls(client, stream.below(1 << 63), batches, stream.words(len(batches)))


@dataclass(frozen=True, eq=False)
class _Group:
    """Clients whose batches have the same shape: their places in the stack, and the batches, stacked."""

    clients: list[int]
    leaves: list[Tensor]
    structure: TreeSpec


@dataclass(frozen=True, eq=False)
class _Rows:
    """The samples of all clients, on the device where they are tensors of one shape; else they are read anew."""

    tensors: tuple[Tensor, ...] | None
    parts: dict[str, Positions]

    @classmethod
    def of(cls, workload: TaskWorkload) -> _Rows:
        held = {client: each for client, each in workload.parts.items() if isinstance(each, TensorSamples)}
        if len(held) < len(workload.parts):
            return cls(None, {})
        try:
            return cls(*join(held, workload.device))
        except (ValueError, torch.OutOfMemoryError):
            return cls(None, {})

    def read(self, workload: TaskWorkload, client: _Client) -> list[Any] | None:
        """Read all batches of a client, with the draws of its own seed; None where they lie on the device."""
        if self.tensors is not None:
            return None
        samples = workload.parts[client.client]
        with seeded(client.seed, workload.device):
            return [samples.batch(positions) for positions in client.batches]

    def groups(
        self, clients: Sequence[_Client], data: Sequence[list[Any] | None], step: int, device: torch.device
    ) -> list[_Group]:
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
            _Group(
                places,
                [torch.stack(each) for each in zip(*(flat[place][0] for place in places), strict=True)],
                flat[places[0]][1],
            )
            for places in together.values()
        ]

    def _gathered(self, clients: Sequence[_Client], step: int, device: torch.device) -> list[_Group]:
        by_size: dict[int, list[int]] = {}
        for place, client in enumerate(clients):
            by_size.setdefault(len(client.batches[step]), []).append(place)
        structure = tree_flatten(self.tensors)[1]
        groups = []
        for size, places in by_size.items():
            numbers = [self.parts[clients[place].client][clients[place].batches[step]] for place in places]
            rows = torch.from_numpy(np.concatenate(numbers)).to(device, non_blocking=True)
            leaves = [
                tensor.index_select(0, rows).unflatten(0, (len(places), size)) for tensor in self.tensors or ()
            ]
            groups.append(_Group(places, leaves, structure))
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


class _StackableLoss:
    """The loss of stacked clients as a function of their parameters, their buffers and their batches."""

    def __init__(self, task: Task, network: nn.Module, device: torch.device) -> None:
        _refuse_unsupported(network)
        copied = unfold_convolutions(copy.deepcopy(network)).to(device).train()
        self._module = _LossModule(task, copied)
        self.network, self.device = copied, device
        self.trained = [name for name, each in copied.named_parameters() if each.requires_grad]
        self.buffers = [name for name, each in copied.named_buffers() if each.is_floating_point()]

    def __call__(
        self, parameters: Tensors, buffers: Tensors, group: _Group, keys: Tensor
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


class _Stack:
    """Clients that train together: their parameters, their buffers and their optimizer.

    Args:
        network: The loss.
        task: Whose optimizer.
        model: What they start from.
        clients: How many they are.
        round_number: Which round it is.

    """

    def __init__(self, network: _StackableLoss, task: Task, model: Model, clients: int, round_number: int) -> None:
        self._network, self._limit = network, task.clip_gradients
        self._layout = model.layout
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
        read = read_optimizer(task, network.network, round_number)
        self._optimizer = read.over(self.parameters)
        self._moved = [name for names, _ in read.groups for name in names]
        self._active = clients

    def step(self, groups: Sequence[_Group], keys: Tensor) -> Tensor:
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
            self.vectors[active : self._active, start:end] = each.detach()[active:].flatten(1)
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
    norms = torch.stack([torch.linalg.vector_norm(each.flatten(1), dim=1) for each in gradients])
    factors = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for each in gradients:
        each.mul_(factors.view(-1, *(1,) * (each.dim() - 1)))


# -- the trial ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Tried:
    """What a step without an optimizer gives for some clients: losses, gradients and buffers, one row a client."""

    losses: Tensor
    gradients: dict[str, Tensor | None]
    buffers: Tensors


@dataclass(frozen=True, eq=False)
class _Trial:
    """A batch of each of two clients, and what they give alone."""

    batches: list[Any]
    alone: list[_Tried]

    @classmethod
    def of(cls, workload: TaskWorkload) -> _Trial:
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

    def compare(self, workload: TaskWorkload, network: _StackableLoss) -> int:
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


def _in_stack(workload: TaskWorkload, network: _StackableLoss, batches: Sequence[Any]) -> tuple[_Tried, int]:
    device, clients = workload.device, len(batches)
    model = _model_for(workload, 0)
    stack = _Stack(network, workload.loaded.task, model, clients, 1)
    other = _model_for(workload, 1).tensors()
    with torch.no_grad():
        for name, each in (stack.parameters | stack.buffers).items():
            if name in other:
                each[1] = other[name]
    leaves, structures = zip(*(tree_flatten(batch) for batch in batches), strict=True)
    if not all(isinstance(leaf, Tensor) for each in leaves for leaf in each):
        raise CannotStack("a batch holds something else than tensors")
    group = _Group(list(range(clients)), [torch.stack(each) for each in zip(*leaves, strict=True)], structures[0])
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
