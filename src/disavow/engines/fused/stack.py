"""A stack: the rows of some clients on the GPU, with all the memory that a step needs, and the step itself.

Nothing is allocated and nothing is waited for while a stack trains. A step for a number of rows is captured once as
a CUDA graph and replayed from then on.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from disavow.engines.fused import launch
from disavow.engines.fused.division import prefixes
from disavow.engines.fused.memory import THREADS, Action, Arguments, Memory, Slope, blocks
from disavow.engines.fused.nodes import IMAGES, Row, Sum
from disavow.engines.fused.parts import part_of
from disavow.engines.graphs import capturing
from disavow.engines.scores import task_of


class Stack:
    """Rows of `batch` places each, for networks that are laid out in `row`."""

    def __init__(self, row: Row, *, rows: int, batch: int, images: Tensor, labels: Tensor, graphs: bool) -> None:
        self.memory = Memory.of(row, rows=rows, batch=batch, images=images, labels=labels)
        self._parts = [part_of(self.memory, number) for number in range(len(row.nodes))]
        self._steps: list[Action] = []
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._capturing = graphs and images.device.type == "cuda"

    @property
    def scores(self) -> Tensor:
        """What the last layer gave, one row an image."""
        return self.memory.out[-1]

    def score(self, rows: int) -> None:
        """Score the images in the places of the first rows."""
        for part in self._parts:
            for action in part.known:
                action(rows)

    def step(self, active: int) -> None:
        """One step of SGD for the first `active` rows, each with what it finds in its places."""
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
        self._prepare_slopes()
        backward = list(reversed(self._parts))
        self._steps = [
            *(action for part in self._parts for action in part.forward),
            self._loss(),
            *(action for part in backward for action in part.backward),
            *(action for part in backward for action in part.update),
        ]

    def _prepare_slopes(self) -> None:
        """Give every part the slope of its output, and a place for what it says of its sources' slopes."""
        nodes = self.memory.row.nodes
        readers = Counter(source for node in nodes for source in node.sources)
        # the scores turn into their own slope in place
        slopes = {len(nodes) - 1: self.scores}
        for number, part in reversed(list(enumerate(self._parts))):
            slope, before = slopes[number], list[Slope | None]()
            for source in nodes[number].sources:
                if source == IMAGES:
                    before.append(None)
                    continue
                add = source in slopes
                if not add:
                    # what a sum says of a slope that nobody else speaks of or closes is its own slope
                    own = isinstance(nodes[number], Sum) and readers[source] == 1 and not nodes[source].relu
                    slopes[source] = slope if own else torch.zeros_like(self.memory.out[source])
                before.append(Slope(slopes[source], add))
            part.prepare(slope, tuple(before))

    def _loss(self) -> Action:
        memory = self.memory
        name = "loss" if task_of(memory.labels) == "classes" else "loss_of_attributes"
        kernel = launch.compile_kernel("steps.cu", name)
        outputs = memory.row.nodes[-1].shape[0]

        def loss(rows: int) -> None:
            places = rows * memory.batch
            arguments: Arguments = [
                memory.labels, memory.index, memory.count, outputs, memory.batch, places, self.scores,
            ]  # fmt: skip
            kernel(blocks(places), THREADS, arguments)

        return loss
