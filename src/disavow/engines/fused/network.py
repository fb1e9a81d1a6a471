"""What the kernels train: convolutions, batch norms, sums and dense layers, read from the network itself.

ReLU belongs to the node before it, and pooling of two by two to the convolution before it. What has other parts is
`NotFusable`, with the reason; another trainer takes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from disavow.engines.fused.nodes import IMAGES, Convolution, Dense, Node, Norm, Row, Sum
from disavow.engines.state import layout_of
from disavow.engines.tracing import traced

_ALIGNED = 32
"""Tensors begin at multiples of this many numbers: the matrix products load several at once."""

_MAPS = 3
"""Dimensions of maps: channels, height, width."""


class NotFusable(Exception):
    """The network has a part that the kernels do not know. Says which."""


def row_of(network: nn.Module, shape: tuple[int, int, int]) -> Row:
    """Read a network as nodes that the kernels know.

    Args:
        network: Any module.
        shape: Channels, height and width of its images.

    Returns:
        The row of a client that trains it.

    Raises:
        NotFusable: It has other parts.
    """
    reader = _Reader(network, shape)
    for node in traced(network, NotFusable).nodes:
        reader.read(node)
    return reader.row()


@dataclass(frozen=True)
class _Value:
    """What a step of the graph gives: the output of a node, perhaps flat."""

    node: int
    shape: tuple[int, ...]


class _Reader:
    """Walks the graph from the images to the scores and notes its nodes."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        self._modules = dict(network.named_modules())
        self._trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
        self._parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
        self._shape = shape
        self._spans: dict[str, tuple[int, int, int]] = {}
        self._size = 0
        for spec, first, last in layout_of(network).spans():
            self._spans[spec.name] = first, self._size, last - first
            self._size += -(-(last - first) // _ALIGNED) * _ALIGNED
        self._nodes: list[Node] = []
        self._values: dict[fx.Node, _Value] = {}
        self._taken: set[str] = set()
        self._scores: int | None = None

    def read(self, step: fx.Node) -> None:
        """Take the next step of the graph in."""
        if step.op == "placeholder":
            if self._values:
                raise NotFusable("it reads more than images")
            self._values[step] = _Value(IMAGES, self._shape)
        elif step.op == "output":
            self._scores = self._source(step, 0).node
        elif step.op == "call_module":
            self._values[step] = self._module(step)
        elif step.op in ("call_function", "call_method"):
            self._values[step] = self._call(step)
        else:
            raise NotFusable(f"{step.name} is no layer")

    def row(self) -> Row:
        """All that was read."""
        last = self._nodes[-1] if self._nodes else None
        if not isinstance(last, Dense) or last.relu or self._scores != len(self._nodes) - 1:
            raise NotFusable("it does not end in a dense layer")
        used = {source for node in self._nodes for source in node.sources}
        if not used >= set(range(len(self._nodes) - 1)):
            raise NotFusable("not all of it leads to the scores")
        if self._taken != set(self._spans) or self._trained != self._parameters:
            raise NotFusable("it has parameters or buffers beside those of its layers, or frozen or tied ones")
        return Row(tuple(self._nodes), self._size, tuple(self._spans.values()))

    def _source(self, step: fx.Node, number: int) -> _Value:
        """What an argument of a step is."""
        given = step.args[number] if number < len(step.args) else None
        if not isinstance(given, fx.Node) or given not in self._values:
            raise NotFusable(f"{step.name} reads something that no layer gives")
        return self._values[given]

    def _module(self, step: fx.Node) -> _Value:
        name = str(step.target)
        module = self._modules[name]
        reads: dict[type, Callable[[fx.Node, str, Any], _Value]] = {
            nn.Conv2d: self._convolution,
            nn.BatchNorm2d: self._norm,
            nn.Linear: self._dense,
            nn.MaxPool2d: self._pool,
            nn.ReLU: lambda step, *_: self._relu(step),
            nn.Flatten: lambda step, _, m: self._flatten(step, m.start_dim, m.end_dim),
        }
        if type(module) not in reads or len(step.args) != 1 or step.kwargs:
            raise NotFusable(f"{name} is a {type(module).__name__}")
        return reads[type(module)](step, name, module)

    def _call(self, step: fx.Node) -> _Value:
        target, rest = step.target, step.args[1:]
        if target in ("relu", "relu_", torch.relu, functional.relu) and not rest:
            return self._relu(step)
        if target in (operator.add, operator.iadd, torch.add, "add", "add_") and len(rest) == 1 and not step.kwargs:
            if target in (operator.iadd, "add_"):
                self._before(step)
            return self._sum(step)
        if target in ("flatten", torch.flatten):
            arguments = dict(zip(("start_dim", "end_dim"), rest, strict=False)) | dict(step.kwargs)
            return self._flatten(step, arguments.get("start_dim", 0), arguments.get("end_dim", -1))
        raise NotFusable(f"{step.name} is not a layer that the kernels know")

    def _offset(self, name: str) -> int:
        """Where a tensor begins in the row; each belongs to one node."""
        if name in self._taken or name not in self._spans:
            raise NotFusable(f"{name} is used twice, or is no tensor of the model")
        self._taken.add(name)
        return self._spans[name][1]

    def _add(self, node: Node) -> _Value:
        self._nodes.append(node)
        return _Value(len(self._nodes) - 1, node.shape)

    def _convolution(self, step: fx.Node, name: str, conv: nn.Conv2d) -> _Value:
        source = self._source(step, 0)
        plain = conv.groups == 1 and set(conv.dilation) == {1} and conv.padding_mode == "zeros"
        square = [len({*side}) == 1 and isinstance(side[0], int) for side in (conv.kernel_size, conv.stride)]
        if not plain or not all(square) or isinstance(conv.padding, str):
            raise NotFusable(f"{name} is a convolution of a kind that the kernels do not know")
        (padding, other), side, stride = conv.padding, conv.kernel_size[0], conv.stride[0]
        if len(source.shape) != _MAPS or padding != other or padding >= side:
            raise NotFusable(f"{name} does not follow maps, or is padded unusually")
        channels, height, width = source.shape
        high, wide = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
        weight = self._offset(f"{name}.weight")
        bias = None if conv.bias is None else self._offset(f"{name}.bias")
        layer = Convolution(
            source.node, channels, height, width, conv.out_channels, side, stride, padding,
            high, wide, high, wide, weight, bias,
        )  # fmt: skip
        return self._add(layer)

    def _norm(self, step: fx.Node, name: str, norm: nn.BatchNorm2d) -> _Value:
        source = self._source(step, 0)
        if not norm.affine or not norm.track_running_stats or norm.momentum is None:
            raise NotFusable(f"{name} is a batch norm of a kind that the kernels do not know")
        if len(source.shape) != _MAPS or source.shape[1:] == (1, 1) or source.node == IMAGES:
            raise NotFusable(f"{name} does not follow maps of a layer")
        weight, bias, mean, variance = (
            self._offset(f"{name}.{of}") for of in ("weight", "bias", "running_mean", "running_var")
        )
        return self._add(Norm(source.node, source.shape, weight, bias, mean, variance, norm.eps, norm.momentum))

    def _dense(self, step: fx.Node, name: str, dense: nn.Linear) -> _Value:
        source = self._source(step, 0)
        if len(source.shape) != 1 or dense.bias is None:
            raise NotFusable(f"{name} does not follow a flat row, or has no bias")
        weight, bias = self._offset(f"{name}.weight"), self._offset(f"{name}.bias")
        return self._add(Dense(source.node, dense.in_features, dense.out_features, weight, bias))

    def _sum(self, step: fx.Node) -> _Value:
        one, other = self._source(step, 0), self._source(step, 1)
        if one.shape != other.shape or one.node == other.node or IMAGES in (one.node, other.node):
            raise NotFusable(f"{step.name} does not add two maps of one shape")
        return self._add(Sum((one.node, other.node), one.shape))

    def _before(self, step: fx.Node) -> tuple[_Value, Node]:
        """The node that this step changes, which nobody else may have read as it was."""
        value = self._source(step, 0)
        readers = sum(len(each.users) for each, other in self._values.items() if other.node == value.node)
        steps = sum(other.node == value.node for other in self._values.values())
        if value.node == IMAGES or readers != steps:
            raise NotFusable(f"{step.name} does not follow a layer, and nothing else")
        return value, self._nodes[value.node]

    def _relu(self, step: fx.Node) -> _Value:
        value, node = self._before(step)
        self._nodes[value.node] = replace(node, relu=True)
        return value

    def _flatten(self, step: fx.Node, start: object, end: object) -> _Value:
        value = self._source(step, 0)
        if start != 1 or end not in (-1, len(value.shape)):
            raise NotFusable("flatten does not keep samples apart")
        return _Value(value.node, (int(np.prod(value.shape)),))

    def _pool(self, step: fx.Node, name: str, pool: nn.MaxPool2d) -> _Value:
        value, node = self._before(step)
        windows = all(side in (2, (2, 2)) for side in (pool.kernel_size, pool.stride))
        plain = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1)) and not pool.return_indices
        if not isinstance(node, Convolution) or node.pooled or len(value.shape) != _MAPS:
            raise NotFusable("pooling does not follow a convolution")
        if not windows or not plain:
            raise NotFusable(f"{name} does not pool two by two")
        high, wide = ((side + pool.ceil_mode) // 2 for side in (node.map_height, node.map_width))
        pooled = replace(node, pooled=True, out_height=high, out_width=wide)
        self._nodes[value.node] = pooled
        return _Value(value.node, pooled.shape)
