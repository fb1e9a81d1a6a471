"""A stack: the rows of some clients on the GPU, with all the memory that a step needs, and the step itself.

Nothing is allocated and nothing is waited for while a stack trains. A step for a number of rows is captured once as
a CUDA graph and replayed from then on.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from disavow.engines.cuda_graphs import capturing
from disavow.engines.fused import nvrtc
from disavow.engines.fused.layers import layer_of
from disavow.engines.fused.memory import THREADS, Action, Arguments, Delta, Memory, blocks
from disavow.engines.fused.nodes import IMAGES, Row, Sum
from disavow.engines.fused.tiling import prefixes
from disavow.engines.objectives import task_of


class Stack:
    """Rows of `batch` positions each, for networks that are laid out in `row`."""

    def __init__(self, row: Row, *, rows: int, batch: int, images: Tensor, labels: Tensor, graphs: bool) -> None:
        self.memory = Memory.of(row, rows=rows, batch=batch, images=images, labels=labels)
        self._layers = [layer_of(self.memory, number) for number in range(len(row.nodes))]
        self._steps: list[Action] = []
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._capturing = graphs and images.device.type == "cuda"

    @property
    def scores(self) -> Tensor:
        """What the last layer gave, one row an image."""
        return self.memory.out[-1]

    def score(self, rows: int) -> None:
        """Score the images in the positions of the first rows.

        Args:
            rows: How many.
        """
        for layer in self._layers:
            for action in layer.known:
                action(rows)

    def step(self, active: int) -> None:
        """Take one step of SGD, each row with what it finds in its positions.

        Args:
            active: How many rows, from the first, have a batch.
        """
        rows = min(n for n in prefixes(self.memory.rows) if n >= active)
        if not self._capturing:
            self._step(rows)
            return
        if rows not in self._graphs:
            self._graphs[rows] = self._captured(rows)
        self._graphs[rows].replay()

    def _step(self, rows: int) -> None:
        for action in self._steps:
            action(rows)

    def _captured(self, rows: int) -> torch.cuda.CUDAGraph:
        # a graph is captured after a first pass, in which libraries set themselves up; nobody has a batch in it
        count = self.memory.count
        kept = count.clone()
        count.zero_()
        self._step(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            self._step(rows)
        count.copy_(kept)
        return graph

    def prepare(self) -> None:
        """Make ready for steps: the way back, and SGD, which scoring does without."""
        if self._steps:
            return
        self._prepare_deltas()
        backward = list(reversed(self._layers))
        self._steps = [
            *(action for layer in self._layers for action in layer.forward),
            self._loss(),
            *(action for layer in backward for action in layer.backward),
            *(action for layer in backward for action in layer.update),
        ]

    def _prepare_deltas(self) -> None:
        """Give every layer its delta, and memory for the deltas of its sources."""
        nodes = self.memory.row.nodes
        readers = Counter(source for node in nodes for source in node.sources)
        # the scores turn into their own delta in place
        deltas = {len(nodes) - 1: self.scores}
        for number, layer in reversed(list(enumerate(self._layers))):
            delta, before = deltas[number], list[Delta | None]()
            for source in nodes[number].sources:
                if source == IMAGES:
                    before.append(None)
                    continue
                add = source in deltas
                if not add:
                    # a sum passes its own delta on to a source that nobody else reads and no ReLU closes
                    own = isinstance(nodes[number], Sum) and readers[source] == 1 and not nodes[source].relu
                    deltas[source] = delta if own else torch.zeros_like(self.memory.out[source])
                before.append(Delta(deltas[source], add))
            layer.prepare(delta, tuple(before))

    def _loss(self) -> Action:
        memory = self.memory
        name = "loss" if task_of(memory.labels) == "classes" else "loss_of_attributes"
        kernel = nvrtc.compile_kernel("steps.cu", name)
        outputs = memory.row.nodes[-1].shape[0]

        def loss(rows: int) -> None:
            positions = rows * memory.batch
            arguments: Arguments = [
                memory.labels, memory.index, memory.count, outputs, memory.batch, positions, self.scores,
            ]  # fmt: skip
            kernel(blocks(positions), THREADS, arguments)

        return loss
