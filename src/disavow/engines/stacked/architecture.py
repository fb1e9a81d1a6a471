"""When two networks are built alike, so that their clients can share a stack."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping

import torch
from torch import Tensor, nn

COUNTER = "num_batches_tracked"
"""Batch norm's count of batches: no part of the model, and without influence on it."""

_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size, type)
_STRUCTURE = ("_parameters", "_buffers", "_modules", "training")


def architecture(network: nn.Module) -> Hashable:
    """Equal for networks that differ in nothing but their weights.

    What cannot be compared by value (a function, an object) is compared by identity: whoever keeps this must keep
    the network too, so that no other object can come to have the same.
    """
    modules = tuple(
        (name, type(module), _described(_settings(module)))
        for name, module in network.named_modules(remove_duplicate=False)
    )
    return modules, _parameters(network), _buffers(network)


def _settings(module: nn.Module) -> Mapping[str, object]:
    # hooks are among them: nearly always there are none
    return {name: value for name, value in vars(module).items() if name not in _STRUCTURE}


def _parameters(network: nn.Module) -> Hashable:
    """Name, shape, kind and first name, which tells tied parameters from others."""
    first: dict[int, str] = {}
    return tuple(
        (name, parameter.shape, parameter.dtype, parameter.requires_grad, first.setdefault(id(parameter), name))
        for name, parameter in network.named_parameters(remove_duplicate=False)
    )


def _buffers(network: nn.Module) -> Hashable:
    """Name, shape and kind; and what they hold, of those that are no part of the model but may shape it."""
    in_model = {name for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
    return tuple(
        (name, buffer.shape, buffer.dtype, None if name in in_model or _counts(name) else _digest(buffer))
        for name, buffer in network.named_buffers(remove_duplicate=False)
    )


def _counts(name: str) -> bool:
    return name.rpartition(".")[2] == COUNTER


def _digest(tensor: Tensor) -> bytes:
    # bytes, because numpy knows not every kind of number that torch does
    data = tensor.detach().cpu().flatten().contiguous().view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).digest()


def _described(value: object) -> Hashable:
    """A value that can be compared with another, and an identity where it cannot."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return kind, value
    if isinstance(value, list | tuple):
        return kind, tuple(map(_described, value))
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(_described, value))
    if isinstance(value, Mapping):
        return kind, tuple((_described(key), _described(each)) for key, each in value.items())
    return kind, id(value)
