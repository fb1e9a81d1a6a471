"""What each kind of node does in a step: forward, backward, and SGD on what it has."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from disavow.engines.fused import nvrtc
from disavow.engines.fused.memory import THREADS, Action, Arguments, Delta, Memory, blocks
from disavow.engines.fused.nodes import IMAGES, Convolution, Dense, Node, Norm, Sum, cells
from disavow.engines.fused.tiling import CHUNK, LaunchConfig, tiling_of

_NUMBERS = 8192
"""Numbers that a block of a sum goes over, or about as many."""


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


class _Sum:
    """One or two maps added up, normalised where a batch norm says so, then ReLU. A batch norm is a sum of one."""

    def __init__(self, memory: Memory, number: int, node: Norm | Sum) -> None:
        self._memory, self._number, self._node = memory, number, node
        self._norms, self._sources = memory.row.norms(number), memory.row.reads(number)
        self._channels = node.shape[0] if self._norms else 1
        area = cells(node) // self._channels
        images, span = max(1, _NUMBERS // cells(node)), max(1, _NUMBERS // area)
        self._tiles, self._parts = -(-memory.batch // images), -(-memory.batch // span)
        self._defines = {
            "CHANNELS": self._channels, "AREA": area, "TERMS": len(self._sources), "NORMED": len(self._norms),
            "RELU": int(node.relu), "IMAGES": images, "SPAN": span,
        }  # fmt: skip
        device = memory.images.device
        places = [[norm.weight, norm.bias, norm.mean, norm.variance] for norm in self._norms]
        self._places = torch.tensor(places, dtype=torch.int32, device=device)
        habits = [[norm.epsilon, norm.momentum] for norm in self._norms]
        self._habits = torch.tensor(habits, dtype=torch.float32, device=device)
        self._moments = memory.zeros(self._parts, len(self._norms), self._channels, 3)
        self._statistics = memory.zeros(len(self._norms), self._channels, 2)
        maps = [memory.source(source) for source in self._sources]
        self._terms: Arguments = [memory.count, maps[0], maps[-1], memory.batch]
        self._own: Arguments = [memory.parameters, memory.row.size, self._places]
        self.known = [self._summed(known=True)]
        self.forward = [self._measured(), self._summed(known=False)] if self._norms else self.known
        self.backward: list[Action] = []
        self.update: list[Action] = []

    def _measured(self) -> Action:
        arguments = [*self._terms, self._moments]
        return self._launcher("norm_statistics", self._parts * len(self._norms) * self._channels, arguments)

    def _summed(self, *, known: bool) -> Action:
        out = self._memory.out[self._number]
        arguments = [*self._terms, *self._own, self._habits, self._moments, self._statistics, out]
        return self._launcher("norm_forward", self._tiles, arguments, known=known)

    def prepare(self, delta: Tensor, before: tuple[Delta | None, ...]) -> None:
        memory, channels = self._memory, self._channels
        gradients = [memory.zeros(self._parts, 2 * channels) for _ in self._norms]
        seen: Arguments = [*self._terms, *self._own, self._statistics, memory.out[self._number], delta]
        # first and last, as for the maps; without a norm nobody reads them
        seen += [gradients[0], gradients[-1]] if gradients else [delta, delta]
        if gradients:
            self.backward.append(self._launcher("norm_weight", self._parts * channels, seen))
        ways = [self._way(term, delta, to) for term, to in enumerate(before)]
        if any(ways):
            towards = [delta if to is None else to.tensor for to in before]
            seen = [*seen, towards[0], ways[0], towards[-1], ways[-1]]
            self.backward.append(self._launcher("norm_input", self._tiles, seen))
        self.update = [
            memory.sgd(gradient, channels, norm.weight, channels, norm.bias)
            for norm, gradient in zip(self._norms, gradients, strict=True)
        ]

    def _way(self, term: int, delta: Tensor, to: Delta | None) -> int:
        """What the kernel does with the gradient of a term: nothing, write it, or add it."""
        unchanged = term >= len(self._norms) and not self._node.relu
        if to is None or (unchanged and to.tensor is delta):
            return 0
        return 2 if to.add else 1

    def _launcher(self, kernel: str, blocks_each: int, arguments: Arguments, *, known: bool = False) -> Action:
        """A launch of one of its kernels."""
        compiled = nvrtc.compile_kernel("norm.cu", kernel, {**self._defines, "KNOWN": int(known)})
        return lambda rows: compiled(rows * blocks_each, THREADS, arguments)
