"""A trial of a network before it is stacked: one step of two rows, compared with the same two steps taken plainly.

`torch.func` refuses what it cannot do (randomness, control flow that depends on data), and the comparison finds
what it would silently do in another way (state that a module keeps to itself).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from disavow.engines.scores import loss_of
from disavow.engines.stacked.network import StackedNetwork, is_known_to_couple, owner, unfit
from disavow.engines.stacked.step import RATES, Step
from disavow.engines.state import model_of, put_model
from disavow.errors import ConfigError
from disavow.rounds.vectors import Model

_SAMPLES = 4
_ROUNDING = 1e-3
"""Two ways of computing the same differ by far less than this, of its size; the smallest moves, of all."""

Batch = tuple[Tensor, Tensor]


def trial(network: StackedNetwork, images: Tensor, labels: Tensor) -> bool:
    """Whether the samples of a batch see each other in this network; or `ConfigError`, if it cannot be stacked."""
    images, labels = _samples(images, labels, network.device)
    generators = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=generators):
        moves, difference = _compared(network, images, labels)
        if difference is not None:
            # rounding may have carried a ReLU over its kink; not twice
            moves, difference = _compared(network, images.flip(-1), labels)
        if difference is not None:
            raise difference
        statistics = network.columns.pack(moves)[:, network.columns.parameters_size :]
        return bool(statistics.any()) or is_known_to_couple(network.original) or _sees_others(network, images)


def _compared(network: StackedNetwork, images: Tensor, labels: Tensor) -> tuple[Tensor, ConfigError | None]:
    """How two rows move, plainly; and the reason to refuse the network, if they move otherwise in a stack."""
    vector = model_of(network.original).vector.to(network.device)
    models = [Model(network.layout, share * vector) for share in (1.0, 0.9)]
    batches = [(images, labels), (images.flip(0), labels.flip(0))]
    # what fails here would fail in any engine, and says so itself
    plain = torch.stack([_plain_move(network, *each) for each in zip(models, batches, strict=True)])
    stacked = _stacked_moves(network, models, batches)
    differences = (_difference(network, *each) for each in zip(plain, stacked, strict=True))
    return plain, next((each for each in differences if each is not None), None)


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


def _plain_move(network: StackedNetwork, model: Model, batch: Batch) -> Tensor:
    """How a step of learning rate 1 moves the model, by plain autograd."""
    plain, (images, labels) = _plain_copy(network), batch
    put_model(plain, model)
    parameters = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss_of(plain(images), labels), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient)
    return model_of(plain).vector - model.vector


def _stacked_moves(network: StackedNetwork, models: list[Model], batches: list[Batch]) -> Tensor:
    """The same steps in a stack; or an error that names the module in which it broke off."""
    vectors = torch.stack([model.vector for model in models])
    images, labels = (torch.stack(each) for each in zip(*batches, strict=True))
    sizes = torch.full((len(models),), images.shape[1], device=network.device)
    rates = torch.zeros(len(models), RATES, device=network.device)
    rates[:, 0] = 1
    before = {name: buffer.clone() for name, buffer in network.training.named_buffers()}
    with _naming_what_fails(network):
        rows, _ = Step(network)(network.columns.pack(vectors), None, images, labels, sizes, rates)
    for name, buffer in network.training.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise unfit(network.original, *owner(network.original, name), f"it keeps {name} to itself")
    return network.columns.unpack(rows) - vectors


@contextmanager
def _naming_what_fails(network: StackedNetwork) -> Iterator[None]:
    """Follow which module runs, so that an error can say in which of them it was raised."""
    running: list[tuple[str, nn.Module]] = []
    hooks = []
    for name, module in network.training.named_modules():
        hooks += [
            module.register_forward_pre_hook(lambda module, _, name=name: running.append((name, module))),
            module.register_forward_hook(lambda *_: running.pop() and None),
        ]
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        name, module = running[-1] if running else ("", network.original)
        raise unfit(network.original, name, module, _first_line(error)) from error
    finally:
        for hook in hooks:
            hook.remove()


def _difference(network: StackedNetwork, plain: Tensor, stacked: Tensor) -> ConfigError | None:
    """The reason to refuse the network, if a tensor moved in another way than it should."""
    largest = float(torch.nan_to_num(plain).norm())
    for spec, start, end in network.layout.spans():
        one, other = plain[start:end], stacked[start:end]
        allowed = _ROUNDING * (float(torch.nan_to_num(one).norm()) + _ROUNDING * largest)
        if float(torch.nan_to_num(one - other).norm()) > allowed:
            reason = f"{spec.name} moves in another way than it does alone"
            return unfit(network.original, *owner(network.original, spec.name), reason)
    return None


def _sees_others(network: StackedNetwork, images: Tensor) -> bool:
    """Whether what is said of the first sample changes with those beside it."""
    with torch.no_grad():
        among_others = _plain_copy(network)(images)[0]
        among_equals = _plain_copy(network)(images[:1].expand_as(images).contiguous())[0]
    return not torch.allclose(among_others, among_equals, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
