"""One stack: the clients of all federations whose networks are built alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from disavow.engines.stacked.convolution import Convolution
from disavow.engines.stacked.data import Placed, sent
from disavow.engines.stacked.launcher import Launcher
from disavow.engines.stacked.memory import Memory, RowCost
from disavow.engines.stacked.network import StackedNetwork
from disavow.engines.stacked.plan import Form, Plan, Row
from disavow.engines.stacked.schedule import schedule
from disavow.engines.stacked.step import RATES, Step
from disavow.engines.stacked.trial import trial
from disavow.engines.stacked.ways import Ways
from disavow.engines.workload import Workload

_COSTS = 16
"""Batch sizes whose cost is remembered."""


class Stack:
    """An architecture, and what has been prepared to train rows of it."""

    def __init__(
        self, workload: Workload, device: torch.device, convolution: Convolution, ways: Ways, *, bf16: bool
    ) -> None:
        self.network = StackedNetwork(workload.network, device, convolution)
        self.coupled = trial(self.network, workload.images, workload.labels)
        self._ways = ways
        self._step = Step(self.network, bf16=bf16)
        self.launcher = Launcher(self._step, ways)
        # samples of the kind, and none of the clients': what is kept must not keep theirs
        images, labels = workload.images, workload.labels
        self._like = images.new_empty(0, *images.shape[1:]), labels.new_empty(0, *labels.shape[1:])
        self._costs: dict[int, RowCost] = {}

    def cost(self, rows: Sequence[Row], memory: Memory) -> RowCost:
        """What a row costs, at the largest batch among these."""
        size = max((int(row.sizes.max(initial=1)) for row in rows), default=1)
        if size not in self._costs:
            if len(self._costs) >= _COSTS:
                self._costs.clear()
            self._costs[size] = RowCost(size, lambda count: memory.peak(lambda: self._sample_step(count, size)))
        return self._costs[size]

    def updates(
        self, rows: Sequence[Row], models: Tensor, rates: Tensor, data: Placed, *, momentum: bool
    ) -> Tensor:
        """Each row's update, as a model vector; `models` and `rates` are those of the asks, by their number."""
        launches = schedule([row.sizes for row in rows], coupled=self.coupled, fixed_widths=self._ways.fixed_widths)
        asks = sent(np.array([row.ask for row in rows], dtype=np.int64), models.device)
        forms = Counter(Form(launch.width, launch.size) for launch in launches)
        samples = max((form.width * form.size for form in forms), default=1)
        arena = self.launcher.reserve(len(rows), samples, self._like, momentum=momentum)
        programs = self.launcher.prepare(forms)
        plan = Plan(launches, rows, spare=arena.spare)
        columns = self.network.columns
        arena.load(columns.pack(models).index_select(0, asks), rates.index_select(0, asks))
        self.launcher.run(programs, plan.upload(models.device), data)
        return columns.unpack(arena.rows[: len(rows)]) - models.index_select(0, asks)

    def _sample_step(self, count: int, size: int) -> None:
        """A step of so many rows of no importance, with all that it allocates."""
        device, columns = self.network.device, self.network.columns
        rows = torch.zeros(count, columns.size, device=device)
        velocity = torch.zeros(count, columns.trained_size, device=device)
        images, labels = (each.new_zeros(count, size, *each.shape[1:], device=device) for each in self._like)
        sizes = torch.full((count,), size, device=device)
        self._step(rows, velocity, images, labels, sizes, torch.zeros(count, RATES, device=device))
