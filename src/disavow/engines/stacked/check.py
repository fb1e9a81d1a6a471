"""Try a network before it is stacked: one step of two clients, compared with the same two steps taken alone.

`torch.func` refuses what it cannot do (randomness, control flow that depends on data), and the comparison finds
what it would silently do in another way (state that a module keeps to itself).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from disavow.engines.objectives import loss_of
from disavow.engines.stacked.network import StackedNetwork, unstackable
from disavow.engines.stacked.step import TrainingStep
from disavow.engines.state import model_of, put_model
from disavow.errors import ConfigError
from disavow.rounds.vectors import Model

_SAMPLES = 4
_ROUNDING = 1e-3
"""Two ways of computing the same differ by far less than this, of its size; the smallest changes, of all."""

Batch = tuple[Tensor, Tensor]


class CannotStack(Exception):
    """A task whose clients cannot be trained in one stack; the message says why.

    Args:
        reason: Why.
        runs_here: Whether its code runs on this device at all, for one client after the other.

    """

    def __init__(self, reason: str, *, runs_here: bool = True) -> None:
        super().__init__(reason)
        self.runs_here = runs_here


def error_line(error: Exception) -> str:
    """Give an exception as part of a sentence: its type, and its first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def check_stacking(step: TrainingStep, images: Tensor, labels: Tensor) -> bool:
    """Find out whether a network can be stacked, and whether the samples of a batch see each other in it.

    Args:
        step: The step that would be taken.
        images: Samples of the kind that it will be trained on.
        labels: Their labels.

    Returns:
        Whether samples see each other, so that none may be added to a batch.

    Raises:
        ConfigError: It cannot be stacked; the module at fault is named.
    """
    network = step.network
    images, labels = _samples(images, labels, network.device)
    generators = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=generators):
        changes, difference = _compared(step, images, labels)
        if difference is not None:
            # rounding may have carried a ReLU over its kink; not twice
            changes, difference = _compared(step, images.flip(-1), labels)
        if difference is not None:
            raise difference
        statistics = network.tensors(changes, network.statistics).values()
        if network.normalises_batches or any(bool(each.any()) for each in statistics):
            return True
        return _sees_others(network, images)


def _compared(step: TrainingStep, images: Tensor, labels: Tensor) -> tuple[Tensor, ConfigError | None]:
    """How two models change, each alone; and why to refuse the network, if they change otherwise in a stack."""
    network = step.network
    vector = model_of(network.original).vector.to(network.device)
    models = [Model(network.layout, share * vector) for share in (1.0, 0.9)]
    batches = [(images, labels), (images.flip(0), labels.flip(0))]
    # what fails here would fail in any engine, and says so itself
    alone = torch.stack([_change_alone(network, *each) for each in zip(models, batches, strict=True)])
    stacked = _changes_in_stack(step, models, batches)
    differences = (_difference(network, *each) for each in zip(alone, stacked, strict=True))
    return alone, next((each for each in differences if each is not None), None)


def _samples(images: Tensor, labels: Tensor, device: torch.device) -> Batch:
    """A few samples that can be trusted: clients may hold anything."""
    images, labels = images[:_SAMPLES].to(device), labels[:_SAMPLES].to(device)
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(images.shape, generator=generator).to(device, images.dtype)
    if len(images) == 1:
        images, labels = torch.cat([images, images.flip(-1)]), torch.cat([labels, labels])
    return images, labels


def _plain_copy(network: StackedNetwork) -> nn.Module:
    return copy.deepcopy(network.original).to(network.device).train()


def _change_alone(network: StackedNetwork, model: Model, batch: Batch) -> Tensor:
    """How a step of SGD with learning rate 1 changes the model, by plain autograd."""
    plain, (images, labels) = _plain_copy(network), batch
    put_model(plain, model)
    parameters = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss_of(plain(images), labels), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient)
    return model_of(plain).vector - model.vector


def _changes_in_stack(step: TrainingStep, models: list[Model], batches: list[Batch]) -> Tensor:
    """The same steps in a stack; or an error that names the module in which it broke off."""
    network, optimizer = step.network, step.optimizer
    vectors = torch.stack([model.vector for model in models])
    images, labels = (torch.stack(each) for each in zip(*batches, strict=True))
    sizes = torch.full((len(models),), images.shape[1], device=network.device)
    zeros = torch.zeros(len(models), network.trained_size, device=network.device)
    state = dict.fromkeys(optimizer.state, zeros)
    rates = torch.zeros(len(models), len(optimizer.hyperparameters), device=network.device)
    rates[:, optimizer.hyperparameters.index("learning_rate")] = 1
    before = {name: buffer.clone() for name, buffer in network.training.named_buffers()}
    with _naming_what_fails(network):
        rows, _ = step(network.rows(vectors), state, rates, images, labels, sizes)
    for name, buffer in network.training.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise unstackable(network.original, name, f"it keeps {name} to itself")
    return rows - vectors


@contextmanager
def _naming_what_fails(network: StackedNetwork) -> Iterator[None]:
    """Follow which module runs, so that an error can say in which of them it was raised."""
    running: list[str] = []
    hooks = []

    def leave(*_: object) -> None:
        running.pop()

    for name, module in network.training.named_modules():
        hooks += [
            module.register_forward_pre_hook(lambda *_, name=name: running.append(name)),
            module.register_forward_hook(leave),
        ]
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0].rstrip(".") if lines else type(error).__name__
        raise unstackable(network.original, running[-1] if running else "", reason) from error
    finally:
        for hook in hooks:
            hook.remove()


def _difference(network: StackedNetwork, alone: Tensor, stacked: Tensor) -> ConfigError | None:
    """The reason to refuse the network, if a tensor changed in another way than it should."""
    largest = float(torch.nan_to_num(alone).norm())
    for spec, start, end in network.layout.spans():
        one, other = alone[start:end], stacked[start:end]
        allowed = _ROUNDING * (float(torch.nan_to_num(one).norm()) + _ROUNDING * largest)
        if float(torch.nan_to_num(one - other).norm()) > allowed:
            return unstackable(network.original, spec.name, f"{spec.name} moves in another way than it does alone")
    return None


def _sees_others(network: StackedNetwork, images: Tensor) -> bool:
    """Whether what is said of the first sample changes with those beside it."""
    with torch.no_grad():
        among_others = _plain_copy(network)(images)[0]
        among_equals = _plain_copy(network)(images[:1].expand_as(images).contiguous())[0]
    return not torch.allclose(among_others, among_equals, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
