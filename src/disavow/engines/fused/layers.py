"""What each kind of node does in a step: forward, backward, and SGD on what it has."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from disavow.engines.fused import nvrtc
from disavow.engines.fused.memory import THREADS, Action, Arguments, Delta, Memory, blocks
from disavow.engines.fused.nodes import IMAGES, Convolution, Dense, Node, Norm, Sum, cells
from disavow.engines.fused.tiling import CHUNK, LaunchConfig, tiling_of

_NORMALISED = 4
"""BatchIndex that a block normalises."""


class Layer(Protocol):
    """A node at work. `forward` and `known` score; `backward` and `update` are there once it is prepared."""

    forward: list[Action]
    """With statistics of the batch, which the running ones follow."""
    known: list[Action]
    """With the running statistics."""
    backward: list[Action]
    update: list[Action]

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        """Prepare the backward pass.

        Args:
            delta: Gradient of the loss by its output.
            before: Where those of its sources go; None for images.
        """


def layer_of(memory: Memory, number: int) -> Layer:
    """Make the layer for a node.

    Args:
        memory: That of the stack.
        number: The number of the node.

    Returns:
        What it does in a step.
    """
    node: Node = memory.row.nodes[number]
    if isinstance(node, Convolution):
        return _Convolution(memory, number, node)
    if isinstance(node, Dense):
        return _Dense(memory, number, node)
    if isinstance(node, Norm):
        return _Norm(memory, number, node)
    return _Sum(memory, number, node)


class _Convolution:
    def __init__(self, memory: Memory, number: int, node: Convolution) -> None:
        self._memory, self._node, self._tiling = memory, node, tiling_of(node)
        self._chosen = memory.zeros(memory.batch, cells(node), dtype=torch.uint8)
        arguments: Arguments = [
            memory.source(node.source), memory.index, memory.count, memory.parameters, memory.row.size, node.weight,
            node.bias or 0, memory.batch, memory.out[number], self._chosen,
        ]  # fmt: skip
        self.forward = self.known = [self._launcher(self._tiling.forward, {}, arguments)]
        self.backward: list[Action] = []
        self.update: list[Action] = []

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        memory, node, tiling, [towards] = self._memory, self._node, self._tiling, before
        biases = 0 if node.bias is None else node.outputs
        gradient = memory.zeros(-(-memory.batch // CHUNK), node.weights + biases)
        arguments: Arguments = [
            memory.source(node.source), memory.index, memory.count, delta, self._chosen, memory.batch, gradient,
        ]  # fmt: skip
        self.backward = [self._launcher(tiling.weight, {}, arguments)]
        if towards is not None and tiling.input is not None:
            arguments = [
                memory.count, delta, self._chosen, memory.parameters, memory.row.size, node.weight, memory.batch,
                towards.tensor,
            ]  # fmt: skip
            self.backward.append(self._launcher(tiling.input, {"ADD": int(towards.add)}, arguments))
        self.update = [memory.sgd(gradient, node.weights, node.weight, biases, node.bias or 0)]

    def _launcher(self, config: LaunchConfig, defines: dict[str, int], arguments: Arguments) -> Action:
        """A launch of one of its kernels."""
        kernel = nvrtc.compile_kernel(config.source, config.kernel, {**config.defines, **defines})
        blocks_each = config.blocks(self._memory.batch)
        return lambda rows: kernel(rows * blocks_each, config.threads, arguments)


class _Dense:
    """Batched products of matrices, from the BLAS library."""

    def __init__(self, memory: Memory, number: int, node: Dense) -> None:
        self._memory, self._number, self._node = memory, number, node
        self._weight = memory.matrix(node.weight, node.outputs, node.inputs)
        self._first = node.source == IMAGES
        self._held = memory.zeros(memory.batch, node.inputs) if self._first else memory.source(node.source)
        self.forward = self.known = [*([self._gathered()] if self._first else []), self._products]
        self.backward: list[Action] = []
        self.update: list[Action] = []

    def _gathered(self) -> Action:
        """Images, one a position."""
        memory, inputs = self._memory, self._node.inputs
        kernel = nvrtc.compile_kernel("steps.cu", "gather")

        def gathered(rows: int) -> None:
            positions = rows * memory.batch
            arguments: Arguments = [
                memory.images, memory.index, memory.count, inputs, memory.batch, positions, self._held,
            ]  # fmt: skip
            kernel(blocks(positions * inputs), THREADS, arguments)

        return gathered

    def _products(self, rows: int) -> None:
        bias = self._memory.matrix(self._node.bias, 1, self._node.outputs)
        out = self._memory.out[self._number][:rows]
        torch.baddbmm(bias[:rows], self._held[:rows], self._weight[:rows].mT, out=out)
        if self._node.relu:
            out.relu_()

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        memory, node, weight, held = self._memory, self._node, self._weight, self._held
        of_weight, of_bias = memory.zeros(1, node.weights), memory.zeros(1, node.outputs)

        def products(rows: int) -> None:
            there = of_weight.view(-1, node.outputs, node.inputs)[:rows]
            torch.bmm(delta[:rows].mT, held[:rows], out=there)
            torch.sum(delta[:rows], dim=1, out=of_bias[:rows, 0])
            if before[0] is not None:
                to = before[0].tensor[:rows]
                if before[0].add:
                    torch.baddbmm(to, delta[:rows], weight[:rows], out=to)
                else:
                    torch.bmm(delta[:rows], weight[:rows], out=to)

        self.backward = [*([memory.closed_relu(self._number, delta)] if node.relu else []), products]
        self.update = [
            memory.sgd(of_weight, node.weights, node.weight),
            memory.sgd(of_bias, node.outputs, node.bias),
        ]


class _Norm:
    def __init__(self, memory: Memory, number: int, node: Norm) -> None:
        self._memory, self._number, self._node = memory, number, node
        self._channels = node.shape[0]
        self._defines = {"CHANNELS": node.shape[0], "AREA": node.shape[1] * node.shape[2], "IMAGES": _NORMALISED}
        self._tiles = -(-memory.batch // _NORMALISED)
        device = memory.images.device
        self._habits = torch.tensor([node.epsilon, node.momentum], dtype=torch.float32, device=device)
        self._statistics = memory.zeros(self._channels, 2)
        self.known = [self._normalised(known=True)]
        self.forward = [self._measured(), self._normalised(known=False)]
        self.backward: list[Action] = []
        self.update: list[Action] = []

    def _measured(self) -> Action:
        memory, node = self._memory, self._node
        kernel = nvrtc.compile_kernel("norm.cu", "norm_statistics", {**self._defines, "KNOWN": 0})
        arguments: Arguments = [
            memory.count, memory.source(node.source), self._habits, memory.batch, memory.row.size, node.mean,
            node.variance, memory.parameters, self._statistics,
        ]  # fmt: skip
        return lambda rows: kernel(rows * self._channels, 2 * THREADS, arguments)

    def _normalised(self, *, known: bool) -> Action:
        memory, node = self._memory, self._node
        kernel = nvrtc.compile_kernel("norm.cu", "norm_forward", {**self._defines, "KNOWN": int(known)})

        arguments: Arguments = [
            memory.count, memory.source(node.source), self._habits, memory.batch, int(node.relu), memory.parameters,
            memory.row.size, node.weight, node.bias, node.mean, node.variance, self._statistics,
            memory.out[self._number],
        ]  # fmt: skip
        return lambda rows: kernel(rows * self._tiles, THREADS, arguments)

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        memory, node = self._memory, self._node
        gradient = memory.zeros(1, 2 * self._channels)
        kernel = nvrtc.compile_kernel("norm.cu", "norm_weight", {**self._defines, "KNOWN": 0})
        arguments: Arguments = [
            memory.count, memory.source(node.source), delta, memory.batch, self._statistics, gradient,
        ]  # fmt: skip
        self.backward = [memory.closed_relu(self._number, delta)] if node.relu else []
        self.backward.append(lambda rows: kernel(rows * self._channels, 2 * THREADS, arguments))
        if before[0] is not None:
            self.backward.append(self._input(delta, gradient, before[0]))
        self.update = [memory.sgd(gradient, self._channels, node.weight, self._channels, node.bias)]

    def _input(self, delta: Tensor, gradient: Tensor, before: Delta) -> Action:
        memory, node = self._memory, self._node
        kernel = nvrtc.compile_kernel("norm.cu", "norm_input", {**self._defines, "KNOWN": 0})

        arguments: Arguments = [
            memory.count, memory.source(node.source), delta, memory.batch, memory.parameters, memory.row.size,
            node.weight, self._statistics, gradient, int(before.add), before.tensor,
        ]  # fmt: skip
        return lambda rows: kernel(rows * self._tiles, THREADS, arguments)


class _Sum:
    def __init__(self, memory: Memory, number: int, node: Sum) -> None:
        self._memory, self._number, self._node = memory, number, node
        self.forward: list[Action] = [self._added]
        self.known = self.forward
        self.backward: list[Action] = []
        self.update: list[Action] = []

    def _added(self, rows: int) -> None:
        one, other = (self._memory.source(source)[:rows] for source in self._node.sources)
        out = self._memory.out[self._number][:rows]
        torch.add(one, other, out=out)
        if self._node.relu:
            out.relu_()

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        def passed_on(rows: int) -> None:
            for each in before:
                if each is None or each.tensor is delta:
                    continue
                to = each.tensor[:rows]
                to.add_(delta[:rows]) if each.add else to.copy_(delta[:rows])

        self.backward = [self._memory.closed_relu(self._number, delta)] if self._node.relu else []
        self.backward.append(passed_on)
