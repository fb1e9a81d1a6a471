"""A network as a function of stacked tensors: one row of numbers a client, no state of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from disavow.engines.state import layout_of
from disavow.errors import ConfigError

Tensors = dict[str, Tensor]


class StackedNetwork:
    """The network in training and in evaluation mode; which tensors are trained, frozen, or statistics.

    A row is a model's vector. Names that share one tensor (tied weights) are known by the first of them; a row
    starts from the last, as `put_model` would leave it.

    Args:
        network: The architecture; its weights play no part.
        device: Where it is trained.

    Raises:
        ConfigError: It has parameters of another type than float32, none to train, or statistics that depend on a
            counter.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        _refuse_unsupported(network)
        self.original = network
        self.device = device
        self.layout = layout_of(network)
        self.training = _stackable_copy(network).to(device).train()
        self.evaluation = copy.deepcopy(network).to(device).eval()
        self._spans = {spec.name: (spec.shape, start, end) for spec, start, end in self.layout.spans()}
        state, first = network.state_dict(keep_vars=True), dict[int, str]()
        self._name = {name: first.setdefault(id(state[name]), name) for name in self._spans}
        names, parameters = list(dict.fromkeys(self._name.values())), dict(network.named_parameters())
        self.trained = tuple(name for name in names if name in parameters and parameters[name].requires_grad)
        self.frozen = tuple(name for name in names if name in parameters and name not in self.trained)
        self.statistics = tuple(name for name in names if name not in parameters)
        last = {first_name: name for name, first_name in self._name.items()}
        columns = [torch.arange(*self._spans[last[first_name]][1:]) for first_name in self._name.values()]
        self._columns = torch.cat(columns).to(device)
        self.trained_size = sum(end - start for _, start, end in (self._spans[name] for name in self.trained))

    def rows(self, vectors: Tensor) -> Tensor:
        """Make rows from model vectors.

        Args:
            vectors: One model a row.

        Returns:
            The same, with tied weights equal.
        """
        return vectors.index_select(1, self._columns)

    def tensors(self, rows: Tensor, names: Iterable[str]) -> Tensors:
        """View named tensors of all rows, stacked.

        Args:
            rows: One model a row.
            names: Which tensors.

        Returns:
            Each as (rows, *shape).
        """
        spans = ((name, *self._spans[name]) for name in names)
        return {name: rows[:, start:end].view(-1, *shape) for name, shape, start, end in spans}

    def join(self, tensors: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
        """Put stacked tensors side by side.

        Args:
            tensors: Each as (rows, *shape).
            names: Which of them, in order.

        Returns:
            One row of numbers a client.
        """
        return torch.cat([tensors[name].reshape(len(tensors[name]), -1) for name in names], dim=1)

    def split(self, trained: Tensor) -> Tensors:
        """Undo `join` of the trained tensors.

        Args:
            trained: One row of trained numbers a client.

        Returns:
            Each tensor, flat for each client.
        """
        sizes = [self._spans[name][2] - self._spans[name][1] for name in self.trained]
        return dict(zip(self.trained, trained.split(sizes, dim=1), strict=True))

    def join_all(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Make rows from all stacked tensors.

        Args:
            tensors: By their first names.

        Returns:
            One model a row.
        """
        return self.join({name: tensors[first] for name, first in self._name.items()}, self._name)

    def scores(self, tensors: Tensors, images: Tensor) -> Tensor:
        """Score the images of one client in training mode.

        Args:
            tensors: Those of one row; statistics among them are replaced by the new ones.
            images: Its batch.

        Returns:
            One row a sample.
        """
        # functional_call writes buffers that a module assigned anew back into the dict; those changed in place are
        # changed there as well
        scores: Tensor = functional_call(self.training, tensors, (images,))
        return scores

    @property
    def normalises_batches(self) -> bool:
        """Whether the samples of a batch see each other for certain; `check` finds out about other modules."""
        return any(
            isinstance(module, _BatchNorm) or (isinstance(module, _NormBase) and module.track_running_stats)
            for module in self.original.modules()
        )


class UnfoldConv2d(nn.Conv2d):
    """The same convolution as a product of matrices: patches side by side, times the filters, image by image.

    `vmap` makes one grouped convolution of those of all clients, which cuDNN does slowly.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Convolve, as `nn.Conv2d` would.

        Args:
            images: (samples, channels, height, width).

        Returns:
            The maps.
        """
        (high, wide), (down, across), (rows, columns) = self.kernel_size, self.stride, map(int, self.padding)
        images = functional.pad(images, (columns, columns, rows, rows))
        # views and one copy; `functional.unfold` would launch a kernel for each image
        windows = images.unfold(2, high, down).unfold(3, wide, across)
        sides = windows.shape[2:4]
        patches = windows.permute(0, 1, 4, 5, 2, 3).reshape(len(images), -1, sides[0] * sides[1])
        # one small product for each image: the gradient of the filters is then a sum of many products,
        # where one product for each client would leave most of the device idle
        maps = torch.bmm(self.weight.flatten(1).expand(len(images), -1, -1), patches)
        if self.bias is not None:
            maps = maps + self.bias[:, None]
        return maps.view(len(images), self.out_channels, *sides)


def unfold_convolutions(network: nn.Module) -> nn.Module:
    """Make the plain convolutions of a network products of matrices, in place.

    Args:
        network: Any network; groups, dilation, other paddings and subclasses stay as they are.

    Returns:
        The same network.
    """
    for module in network.modules():
        plain = type(module) is nn.Conv2d and module.groups == 1 and module.dilation == (1, 1)
        if plain and module.padding_mode == "zeros" and isinstance(module.padding, tuple):
            module.__class__ = UnfoldConv2d
    return network


def unstackable(network: nn.Module, name: str, reason: str) -> ConfigError:
    """Make the error that names the module in the way and says what can be done.

    Args:
        network: The whole network.
        name: The module, or a tensor of it.
        reason: Why it cannot be stacked.

    Returns:
        The error, to be raised.
    """
    modules = dict(network.named_modules(remove_duplicate=False))
    if name not in modules:
        name = name.rpartition(".")[0]
    whole, module = type(network).__name__, modules.get(name)
    where = f"module {name!r} ({type(module).__name__}) of {whole}" if name and module else f"the network {whole}"
    return ConfigError(
        f"{where} cannot be trained with other clients in one stack: {reason}; "
        'engine.name = "sequential" can train it'
    )


def _refuse_unsupported(network: nn.Module) -> None:
    """Raise for what need not be run to be known as unsupported."""
    for name, module in network.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.dtype != torch.float32:
                raise unstackable(network, name, f"its {key} is {parameter.dtype}, not torch.float32")
        if isinstance(module, _NormBase) and module.track_running_stats and module.momentum is None:
            raise unstackable(network, name, "with momentum = None its statistics depend on a counter")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ConfigError(f"{type(network).__name__} has no parameter to train")


def _stackable_copy(network: nn.Module) -> nn.Module:
    copied = copy.deepcopy(network).requires_grad_(False)
    for module in copied.modules():
        if isinstance(module, _NormBase):
            # whole numbers cannot be stacked with the rest, and only a momentum of None would read them
            module.num_batches_tracked = None
    return unfold_convolutions(copied)
