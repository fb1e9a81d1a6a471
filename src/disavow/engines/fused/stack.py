"""A stack: the rows of some clients on the GPU, with all the memory that a step needs, and the step itself.

Nothing is allocated and nothing is waited for while a stack trains. A step for a number of rows is captured once as
a CUDA graph and replayed from then on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from disavow.engines.fused.launch import compile_kernel
from disavow.engines.fused.layers import CHUNK, Division, Placed, Row, division_of, prefixes
from disavow.engines.graphs import capturing

_THREADS = 256
_SPREAD = 4096
"""Blocks of the kernels that walk over all numbers, at most."""

Arguments = list[Tensor | int]

Action = Callable[[int], None]
"""Part of a step, for the first so many rows."""


class Stack:
    """Rows of `batch` places each, for networks that are the chain laid out in `row`."""

    def __init__(self, row: Row, *, rows: int, batch: int, images: Tensor, labels: Tensor, graphs: bool) -> None:
        device = images.device
        self.row, self.rows, self.batch = row, rows, batch
        self._images, self._labels = images, labels
        self.index = torch.zeros(rows, batch, dtype=torch.int32, device=device)
        self.count = torch.zeros(rows, dtype=torch.int32, device=device)
        self.told = torch.zeros(rows, 3, device=device)
        self.parameters = torch.zeros(rows, row.size, device=device)
        self.velocity = torch.zeros(rows, row.size, device=device)
        self._out = [torch.zeros(rows, batch, placed.cells, device=device) for placed in row.layers]
        self._chosen: dict[int, Tensor] = {}
        self._flat: Tensor | None = None
        self._forward = [self._forward_of(i) for i in range(len(row.layers))]
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._capturing = graphs and device.type == "cuda"
        self._backward: list[Action] = []
        self._update: list[Action] = []

    @property
    def scores(self) -> Tensor:
        """What the last layer gave, one row an image."""
        return self._out[-1]

    def forward(self, rows: int) -> None:
        """Score the images in the places of the first rows."""
        for action in self._forward:
            action(rows)

    def step(self, active: int) -> None:
        """One step of SGD for the first `active` rows, each with what it finds in its places."""
        rows = min(n for n in prefixes(self.rows) if n >= active)
        if not self._capturing:
            self._step(rows)
            return
        if rows not in self._graphs:
            self._graphs[rows] = self._captured(rows)
        self._graphs[rows].replay()

    def _step(self, rows: int) -> None:
        self.forward(rows)
        for action in [*self._backward, *self._update]:
            action(rows)

    def _captured(self, rows: int) -> torch.cuda.CUDAGraph:
        # a graph is captured after a first pass, in which libraries set themselves up; nobody has a batch in it
        kept = self.count.clone()
        self.count.zero_()
        self._step(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            self._step(rows)
        self.count.copy_(kept)
        return graph

    # -- what a step is made of --------------------------------------------------------------------------------

    def _input(self, i: int) -> Tensor:
        """What goes into a layer: images of the data set for a first convolution, else what was made of them."""
        return self._out[i - 1] if i else self._images

    def _forward_of(self, i: int) -> Action:
        placed = self.row.layers[i]
        return self._conv_forward(i, placed) if placed.layer.convolution else self._dense_forward(i, placed)

    def _conv_forward(self, i: int, placed: Placed) -> Action:
        division = division_of(placed.layer, first=i == 0)
        kernel = compile_kernel("kernels.cu", "conv_forward", division.forward)
        chosen = torch.zeros(self.rows, self.batch, placed.cells, dtype=torch.uint8, device=self.count.device)
        self._chosen[i] = chosen
        tiles = -(-self.batch // division.forward["IMAGES"])
        arguments: Arguments = [
            self._input(i), self.index, self.count, self.parameters, self.row.size, placed.weight, placed.bias,
            self.batch, self._out[i], chosen,
        ]  # fmt: skip
        return lambda rows: kernel(rows * tiles, _THREADS, arguments)

    def _dense_forward(self, i: int, placed: Placed) -> Action:
        layer, out = placed.layer, self._out[i]
        weight, bias = self._weight(placed), self._bias(placed)
        gather = compile_kernel("steps.cu", "gather")
        held = self._held_by(i, placed)

        def forward(rows: int) -> None:
            if i == 0:
                places = rows * self.batch
                arguments: Arguments = [
                    self._images,
                    self.index,
                    self.count,
                    layer.inputs,
                    self.batch,
                    places,
                    held,
                ]
                gather(_blocks(places * layer.inputs), _THREADS, arguments)
            torch.baddbmm(bias[:rows], held[:rows], weight[:rows].mT, out=out[:rows])
            if layer.relu:
                out[:rows].relu_()

        return forward

    def _held_by(self, i: int, placed: Placed) -> Tensor:
        """What a dense layer multiplies with its weights."""
        if i:
            return self._out[i - 1]
        if self._flat is None:
            self._flat = torch.zeros(self.rows, self.batch, placed.layer.inputs, device=self.count.device)
        return self._flat

    def prepare(self) -> None:
        """Make ready for steps: the way back, and SGD, which scoring does without."""
        if self._backward:
            return
        device, last = self.count.device, len(self.row.layers) - 1
        # the scores turn into their own slope in place
        slopes = [torch.zeros_like(out) for out in self._out[:-1]] + [self._out[-1]]
        self._backward.append(self._loss())
        for i in range(last, -1, -1):
            placed = self.row.layers[i]
            before = slopes[i - 1] if i else None
            if placed.layer.convolution:
                self._conv_backward(i, placed, slopes[i], before, device)
            else:
                self._dense_backward(i, placed, slopes[i], before, device)

    def _loss(self) -> Action:
        kernel = compile_kernel("steps.cu", "loss")
        classes = self.row.layers[-1].layer.outputs

        def loss(rows: int) -> None:
            places = rows * self.batch
            arguments: Arguments = [self._labels, self.index, self.count, classes, self.batch, places, self.scores]
            kernel(_blocks(places), _THREADS, arguments)

        return loss

    def _dense_backward(
        self, i: int, placed: Placed, slope: Tensor, before: Tensor | None, device: torch.device
    ) -> None:
        layer, out, weight = placed.layer, self._out[i], self._weight(placed)
        held = self._held_by(i, placed)
        of_weight = torch.zeros(self.rows, layer.outputs, layer.inputs, device=device)
        of_bias = torch.zeros(self.rows, layer.outputs, device=device)
        mask = compile_kernel("steps.cu", "relu_slope")

        def backward(rows: int) -> None:
            if layer.relu:
                total = rows * self.batch * layer.outputs
                mask(_blocks(total), _THREADS, [out, total, slope])
            torch.bmm(slope[:rows].mT, held[:rows], out=of_weight[:rows])
            torch.sum(slope[:rows], dim=1, out=of_bias[:rows])
            if before is not None:
                torch.bmm(slope[:rows], weight[:rows], out=before[:rows])

        self._backward.append(backward)
        self._update.append(self._sgd(of_weight, placed.weights, 1, 0, placed.weights, placed.weight))
        self._update.append(self._sgd(of_bias, layer.outputs, 1, 0, layer.outputs, placed.bias))

    def _conv_backward(
        self, i: int, placed: Placed, slope: Tensor, before: Tensor | None, device: torch.device
    ) -> None:
        division, chosen = division_of(placed.layer, first=i == 0), self._chosen[i]
        chunks = -(-self.batch // CHUNK)
        slots, slot = chunks * division.weight["COPIES"], placed.weights + placed.layer.outputs
        of_weight = torch.zeros(self.rows, slots, slot, device=device)
        kernel = compile_kernel("kernels.cu", "conv_weight", division.weight)
        arguments: Arguments = [self._input(i), self.index, self.count, slope, chosen, self.batch, of_weight]
        self._backward.append(lambda rows: kernel(rows * chunks, division.weight_threads, arguments))
        if before is not None:
            self._backward.append(self._conv_input(placed, division, slope, chosen, before))
        self._update.append(self._sgd(of_weight, slot, slots, 0, placed.weights, placed.weight))
        self._update.append(self._sgd(of_weight, slot, slots, placed.weights, placed.layer.outputs, placed.bias))

    def _conv_input(
        self, placed: Placed, division: Division, slope: Tensor, chosen: Tensor, before: Tensor
    ) -> Action:
        kernel = compile_kernel("kernels.cu", "conv_input", division.input)
        tiles = -(-self.batch // division.input["IMAGES"])
        arguments: Arguments = [
            self.count, slope, chosen, self.parameters, self.row.size, placed.weight, self.batch, before,
        ]  # fmt: skip
        return lambda rows: kernel(rows * tiles * division.input_groups, division.input_threads, arguments)

    def _sgd(self, gradient: Tensor, slot: int, slots: int, first: int, size: int, offset: int) -> Action:
        kernel = compile_kernel("steps.cu", "sgd")

        def sgd(rows: int) -> None:
            arguments: Arguments = [
                gradient, slot, slots, first, size, self.count, self.told, rows, self.row.size, offset,
                self.parameters, self.velocity,
            ]  # fmt: skip
            kernel(_blocks(rows * size), _THREADS, arguments)

        return sgd

    def _weight(self, placed: Placed) -> Tensor:
        shape = (self.rows, placed.layer.outputs, placed.layer.inputs)
        return self.parameters.as_strided(shape, (self.row.size, placed.layer.inputs, 1), placed.weight)

    def _bias(self, placed: Placed) -> Tensor:
        return self.parameters.as_strided(
            (self.rows, 1, placed.layer.outputs), (self.row.size, placed.layer.outputs, 1), placed.bias
        )


def _blocks(items: int) -> int:
    return min(_SPREAD, -(-items // _THREADS))
