"""A network as the stack sees it: a function of one row's tensors, without state of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from disavow.engines.stacked.columns import Columns, columns_of
from disavow.engines.stacked.convolution import Convolution, unfolded
from disavow.engines.state import layout_of
from disavow.errors import ConfigError


class StackedNetwork:
    """The architecture in training and in evaluation mode, and where its tensors are in a row."""

    def __init__(self, network: nn.Module, device: torch.device, convolution: Convolution) -> None:
        refuse_at_sight(network)
        self.original = network
        self.device = device
        self.layout = layout_of(network)
        self.columns: Columns = columns_of(network, device)
        self.training = _prepared(network, device, convolution).train()
        self._stacked = _prepared(network, device, convolution).eval()
        self._alone = _prepared(network, device, "grouped").eval()

    def train_scores(self, tensors: dict[str, Tensor], images: Tensor) -> Tensor:
        """What one row says in training mode; statistics in `tensors` are replaced by the new ones.

        functional_call writes buffers that a module assigned anew back into the dict; those that it changed in
        place are changed there as well.
        """
        scores: Tensor = functional_call(self.training, tensors, (images,))
        return scores

    def scores(self, tensors: dict[str, Tensor], images: Tensor, *, alone: bool) -> Tensor:
        """What one model says in evaluation mode; `alone` if it is not one of a stack."""
        scores: Tensor = functional_call(self._alone if alone else self._stacked, tensors, (images,))
        return scores


def _prepared(network: nn.Module, device: torch.device, convolution: Convolution) -> nn.Module:
    prepared = copy.deepcopy(network).to(device).requires_grad_(False)
    for module in prepared.modules():
        if isinstance(module, _NormBase):
            # whole numbers cannot be stacked with the rest, and only a momentum of None would read them
            module.num_batches_tracked = None
    return unfolded(prepared) if convolution == "unfold" else prepared


def is_known_to_couple(network: nn.Module) -> bool:
    """Whether the samples of a batch see each other for certain; `trial` finds out about the rest."""
    return any(
        isinstance(module, _BatchNorm) or (isinstance(module, _NormBase) and module.track_running_stats)
        for module in network.modules()
    )


def refuse_at_sight(network: nn.Module) -> None:
    """Raise for what need not be run to be known as unfit; `trial` finds the rest."""
    for name, module in network.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.dtype != torch.float32:
                raise unfit(network, name, module, f"its {key} is {parameter.dtype}, not torch.float32")
        if isinstance(module, _NormBase) and module.track_running_stats and module.momentum is None:
            raise unfit(network, name, module, "with momentum = None its statistics depend on a counter")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ConfigError(f"{type(network).__name__} has no parameter to train")


def unfit(network: nn.Module, name: str, module: nn.Module, reason: str) -> ConfigError:
    """The error that names the module in the way and says what can be done."""
    whole = type(network).__name__
    where = f"module {name!r} ({type(module).__name__}) of {whole}" if name else f"the network {whole}"
    return ConfigError(
        f"{where} cannot be trained with other clients in one stack: {reason}; "
        'engine.name = "sequential" can train it'
    )


def owner(network: nn.Module, tensor: str) -> tuple[str, nn.Module]:
    """The module that a tensor of the state belongs to, with its name."""
    name = tensor.rpartition(".")[0]
    modules: Mapping[str, nn.Module] = dict(network.named_modules(remove_duplicate=False))
    return (name, modules[name]) if name in modules else ("", network)
