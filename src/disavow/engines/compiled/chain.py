"""Networks that are a chain of convolutions and dense layers, read from the module itself.

ReLU and pooling of two by two belong to the layer before them. What is not such a chain is `NotAChain`, with the
reason; another trainer takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn
from torch.nn import functional

from disavow.domain import Layout
from disavow.engines.state import layout_of
from disavow.engines.tracing import traced

Ints = npt.NDArray[np.int64]

_VECTOR = 16
"""Rows of a dense layer's weights are padded to whole vectors of this many numbers."""


class NotAChain(Exception):
    """The network has a part that the kernels do not know. Says which."""


@dataclass(frozen=True)
class Layer:
    """A convolution or a dense layer with what follows it. The fields are those of `Layer` in kernels.cpp."""

    convolution: int
    inputs: int
    height: int
    width: int
    outputs: int
    kernel_height: int
    kernel_width: int
    stride: int
    padding: int
    relu: int
    pooled: int
    map_height: int
    map_width: int
    out_height: int
    out_width: int
    weight: int
    bias: int

    @property
    def row(self) -> int:
        """Numbers in a row of a dense layer's weights, padding included."""
        return -(-self.inputs // _VECTOR) * _VECTOR

    @property
    def size(self) -> int:
        """Numbers that weights and biases take, padding included, as whole vectors."""
        each = self.inputs * self.kernel_height * self.kernel_width if self.convolution else self.row
        whole = self.outputs * each + self.outputs
        return -(-whole // _VECTOR) * _VECTOR


@dataclass(frozen=True, eq=False)
class Chain:
    """The layers, how many numbers they take, and where number i of the model's vector lies among these.

    `layout` is that of the network's models, `shape` that of its images; the kernels read memory by both.
    """

    layers: tuple[Layer, ...]
    size: int
    offsets: Ints
    layout: Layout
    shape: tuple[int, int, int]

    @property
    def fields(self) -> Ints:
        """The layers as the kernels read them."""
        return np.array([astuple(layer) for layer in self.layers], dtype=np.int64)


def chain_of(network: nn.Module, shape: tuple[int, int, int]) -> Chain:
    """Read a network as a chain of layers.

    Args:
        network: Any module.
        shape: Channels, height and width of its images.

    Returns:
        The chain.

    Raises:
        NotAChain: It has other parts.
    """
    reader = _Reader(network, shape)
    for node in traced(network, NotAChain).nodes:
        reader.read(node)
    return reader.chain()


class _Reader:
    """Walks the graph from the images to the scores and builds up the chain."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        self._modules = dict(network.named_modules())
        self._layout = layout_of(network)
        self._trained = {name for name, p in network.named_parameters() if p.requires_grad}
        self._images = shape
        self._shape: tuple[int, ...] = shape
        self._last: fx.Node | None = None
        self._layers: list[Layer] = []
        self._offsets: dict[str, Ints] = {}
        self._finished = False

    def read(self, node: fx.Node) -> None:
        """Take the next step of the graph in."""
        if node.op == "placeholder" and self._last is None:
            self._last = node
            return
        if not node.args or node.args[0] is not self._last or (self._last and len(self._last.users) != 1):
            raise NotAChain(f"{node.name} does not follow the step before it, and nothing else")
        self._last = node
        if node.op == "output":
            self._finished = True
        elif node.op == "call_module":
            self._module(str(node.target))
        elif node.op in ("call_function", "call_method"):
            self._call(node)
        else:
            raise NotAChain(f"{node.name} is no layer")

    def chain(self) -> Chain:
        """All that was read."""
        if not self._finished or not self._layers or self._layers[-1].convolution or self._layers[-1].relu:
            raise NotAChain("it does not end in a dense layer")
        names = [spec.name for spec in self._layout.tensors]
        if set(names) != set(self._offsets) or self._trained != set(names):
            raise NotAChain("it has parameters or buffers beside those of its layers, or frozen ones")
        offsets = np.concatenate([self._offsets[name] for name in names])
        last = self._layers[-1]
        size = last.bias + last.outputs + _VECTOR
        return Chain(tuple(self._layers), size, offsets, self._layout, self._images)

    def _module(self, name: str) -> None:
        module = self._modules[name]
        reads: dict[type, Callable[[str, Any], None]] = {
            nn.Conv2d: self._convolution,
            nn.Linear: self._dense,
            nn.MaxPool2d: lambda _, pool: self._pool(
                pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode
            ),
            nn.ReLU: lambda *_: self._relu(),
            nn.Flatten: lambda _, m: self._flatten(m.start_dim, m.end_dim),
        }
        if type(module) not in reads:
            raise NotAChain(f"{name} is a {type(module).__name__}")
        reads[type(module)](name, module)

    def _call(self, node: fx.Node) -> None:
        target, rest = node.target, node.args[1:]
        if target in ("relu", "relu_", torch.relu, functional.relu) and not rest:
            self._relu()
        elif target in ("flatten", torch.flatten):
            arguments = dict(zip(("start_dim", "end_dim"), rest, strict=False)) | dict(node.kwargs)
            self._flatten(arguments.get("start_dim", 0), arguments.get("end_dim", -1))
        else:
            raise NotAChain(f"{node.name} is not a layer that the kernels know")

    def _convolution(self, name: str, conv: nn.Conv2d) -> None:
        plain = conv.groups == 1 and set(conv.dilation) == {1} and conv.padding_mode == "zeros"
        square = [len({*side}) == 1 and isinstance(side[0], int) for side in (conv.kernel_size, conv.stride)]
        if not plain or not all(square) or conv.bias is None or isinstance(conv.padding, str):
            raise NotAChain(f"{name} is a convolution of a kind that the kernels do not know")
        (padding, other), side, stride = conv.padding, conv.kernel_size[0], conv.stride[0]
        if len(self._shape) != 3 or padding != other or padding >= side:  # noqa: PLR2004
            raise NotAChain(f"{name} does not follow maps, or is padded unusually")
        channels, height, width = self._shape
        high, wide = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
        layer = Layer(
            1, channels, height, width, conv.out_channels, side, side, stride, padding,
            0, 0, high, wide, high, wide, self._end, self._end + conv.weight.numel(),
        )  # fmt: skip
        weight = np.arange(conv.weight.numel()).reshape(conv.out_channels, side, side, channels)
        self._add(name, layer, weight.transpose(0, 3, 1, 2))
        self._shape = (conv.out_channels, high, wide)

    def _dense(self, name: str, dense: nn.Linear) -> None:
        if len(self._shape) != 1 or dense.bias is None:
            raise NotAChain(f"{name} does not follow a flat row, or has no bias")
        inputs, outputs = dense.in_features, dense.out_features
        layer = Layer(0, inputs, 1, 1, outputs, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, self._end, 0)
        layer = replace(layer, bias=self._end + outputs * layer.row)
        columns = np.arange(inputs)
        if self._layers and self._layers[-1].convolution:
            before = self._layers[-1]  # its maps lie pixel by pixel; PyTorch flattens them channel by channel
            maps = columns.reshape(before.out_height, before.out_width, before.outputs)
            columns = maps.transpose(2, 0, 1).reshape(-1)
        self._add(name, layer, np.arange(outputs)[:, None] * layer.row + columns)
        self._shape = (outputs,)

    def _add(self, name: str, layer: Layer, weight: Ints) -> None:
        if f"{name}.weight" in self._offsets:
            raise NotAChain(f"{name} is used twice")
        self._layers.append(layer)
        self._offsets[f"{name}.weight"] = layer.weight + weight.reshape(-1)
        self._offsets[f"{name}.bias"] = layer.bias + np.arange(layer.outputs)

    @property
    def _end(self) -> int:
        """Where the next layer's numbers begin."""
        return self._layers[-1].weight + self._layers[-1].size if self._layers else 0

    def _relu(self) -> None:
        if not self._layers:
            raise NotAChain("ReLU comes before any layer")
        self._layers[-1] = replace(self._layers[-1], relu=1)

    def _flatten(self, start: object, end: object) -> None:
        if start != 1 or end not in (-1, len(self._shape)):
            raise NotAChain("flatten does not keep samples apart")
        self._shape = (int(np.prod(self._shape)),)

    def _pool(self, kernel: object, stride: object, padding: object, dilation: object, ceil_mode: bool) -> None:
        before = self._layers[-1] if self._layers else None
        windows = all(side in (2, (2, 2)) for side in (kernel, stride))
        plain = padding in (0, (0, 0)) and dilation in (1, (1, 1))
        if before is None or not before.convolution or before.pooled or len(self._shape) == 1:
            raise NotAChain("pooling does not follow a convolution")
        if not windows or not plain:
            raise NotAChain("pooling is not two by two")
        high, wide = ((size + 1 if ceil_mode else size) // 2 for size in (before.map_height, before.map_width))
        self._layers[-1] = replace(before, pooled=1, out_height=high, out_width=wide)
        self._shape = (before.outputs, high, wide)
