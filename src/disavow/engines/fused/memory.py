"""The memory of a stack: what its parts read and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from disavow.engines.fused import nvrtc
from disavow.engines.fused.nodes import IMAGES, Row, cells

THREADS = 256
"""Threads in a block, where a kernel does not ask for another number."""

_SPREAD = 4096
"""Blocks of the kernels that walk over all numbers, at most."""

Arguments = list[Tensor | int]

Action = Callable[[int], None]
"""Layer of a step, for the first so many rows."""


class Delta(NamedTuple):
    """The gradient of the loss by a node's output, and whether it is added to what others left there."""

    tensor: Tensor
    add: bool


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows of `batch` positions each; the first `count[row]` are taken, by samples with the numbers `index`.

    `out` is what each node gives for each position; `rates` are learning rate, momentum and decay of each row.
    """

    row: Row
    rows: int
    batch: int
    images: Tensor
    labels: Tensor
    index: Tensor
    count: Tensor
    rates: Tensor
    parameters: Tensor
    velocity: Tensor
    out: tuple[Tensor, ...]

    @classmethod
    def of(cls, row: Row, *, rows: int, batch: int, images: Tensor, labels: Tensor) -> Memory:
        """Empty memory on the device of the images."""
        device = images.device
        return cls(
            row,
            rows,
            batch,
            images,
            labels,
            index=torch.zeros(rows, batch, dtype=torch.int32, device=device),
            count=torch.zeros(rows, dtype=torch.int32, device=device),
            rates=torch.zeros(rows, 3, device=device),
            parameters=torch.zeros(rows, row.size, device=device),
            velocity=torch.zeros(rows, row.size, device=device),
            out=tuple(torch.zeros(rows, batch, cells(node), device=device) for node in row.nodes),
        )

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A further tensor of so many numbers a row."""
        return torch.zeros(self.rows, *shape, dtype=dtype, device=self.images.device)

    def source(self, number: int) -> Tensor:
        """What a node reads: images of the data set, by number, or what a node before it made of them."""
        return self.images if number == IMAGES else self.out[number]

    def matrix(self, start: int, height: int, width: int) -> Tensor:
        """A stretch of every row as a matrix."""
        return self.parameters.as_strided((self.rows, height, width), (self.row.size, width, 1), start)

    def sgd(self, gradient: Tensor, size: int, offset: int, rest: int = 0, rest_offset: int = 0) -> Action:
        """SGD on the `size` numbers at `offset` of every row, and on the `rest` at `rest_offset`.

        Gradients are (rows, slots, size + rest); slots are added up.
        """
        kernel = nvrtc.compile_kernel("steps.cu", "sgd")

        def sgd(rows: int) -> None:
            arguments: Arguments = [
                gradient, gradient.shape[1], size, offset, rest, rest_offset, self.count, self.rates, rows,
                self.row.size, self.parameters, self.velocity,
            ]  # fmt: skip
            kernel(blocks(rows * (size + rest)), THREADS, arguments)

        return sgd

    def closed_relu(self, number: int, delta: Tensor) -> Action:
        """Let no delta through where the ReLU of a node was closed."""
        kernel = nvrtc.compile_kernel("steps.cu", "relu_backward")
        each = cells(self.row.nodes[number])

        def mask(rows: int) -> None:
            positions = rows * self.batch
            kernel(blocks(positions * each), THREADS, [self.out[number], positions, each, delta])

        return mask


def blocks(items: int) -> int:
    """How many blocks walk over so many numbers."""
    return min(_SPREAD, -(-items // THREADS))
