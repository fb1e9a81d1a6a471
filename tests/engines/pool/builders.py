"""Networks that report which process trains them, or misbehave in workers only, and what tests of the pool share.

The networks are at the top of the module, so that workers can import them.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from disavow.engines.pool import PoolTrainer
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model, Updates
from tests.engines.contract import CLASSES, SHAPE, a_case

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TIMEOUT = 120.0
"""Seconds after which something that must happen counts as not happening; nothing else depends on the time."""

ROOT = Path(__file__).parents[3]


class ReportsProcess(nn.Module):
    """Its update holds the number of the process that trained it."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()
        self.layer = nn.Linear(math.prod(SHAPE), CLASSES)
        self.register_buffer("process", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.process = torch.full((1,), float(os.getpid()))
        if os.getpid() != self.home:
            self.in_worker()
        scores: Tensor = self.layer(images.flatten(1))
        return scores

    def in_worker(self) -> None:
        """What happens in workers only."""


PRECISIONS = ["highest", "high", "medium"]


class ReportsPrecision(ReportsProcess):
    """Its update holds how exact products of matrices are where it is trained."""

    def in_worker(self) -> None:
        self.process = torch.full((1,), float(PRECISIONS.index(torch.get_float32_matmul_precision())))


class KillsWorker(ReportsProcess):
    """Kills its worker as often as there are files to remove."""

    def __init__(self, lives: Path, number: int = signal.SIGKILL) -> None:
        super().__init__()
        self.lives, self.number = lives, number

    def in_worker(self) -> None:
        for life in self.lives.iterdir():
            try:
                life.unlink()
            except FileNotFoundError:
                continue  # another worker was quicker
            os.kill(os.getpid(), self.number)


class ExitsWorker(ReportsProcess):
    def in_worker(self) -> None:
        sys.exit(3)


class RaisesError(ReportsProcess):
    def in_worker(self) -> None:
        raise ArithmeticError("the network does not like these samples")


class Unpicklable(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


class RaisesUnpicklable(ReportsProcess):
    def in_worker(self) -> None:
        raise Unpicklable("this", "that")


class OverwritesInput(ReportsProcess):
    """Writes into the samples that it is shown."""

    def forward(self, images: Tensor) -> Tensor:
        scores = super().forward(images)
        images.zero_()
        return scores


class PrintsInWorker(ReportsProcess):
    def in_worker(self) -> None:
        print("said in a worker")


class NeverEnds(ReportsProcess):
    """Writes its process id into a folder and trains for ever."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def in_worker(self) -> None:
        (self.folder / str(os.getpid())).touch()
        square = torch.rand(50, 50)
        while True:
            square = torch.tanh(square @ square)


def a_workload(network: nn.Module, clients: int = 12, samples: Sequence[int] = (3,)) -> Workload:
    """So many clients, whose sizes go round in `samples`."""
    case = a_case()
    sizes = [samples[i % len(samples)] for i in range(clients)]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    generator = torch.Generator().manual_seed(8)
    return Workload(
        network=network,
        images=torch.rand(sum(sizes), *SHAPE, generator=generator),
        labels=torch.randint(CLASSES, (sum(sizes),), generator=generator),
        parts={f"client-{i:02}": part for i, part in enumerate(parts)},
        test_images=torch.rand(2500, *SHAPE, generator=generator),
        test_labels=torch.randint(CLASSES, (2500,), generator=generator),
        settings=case.settings,
        seed=5,
    )


def an_ask(workload: Workload, round_number: int = 1, scale: float = 1.0) -> Ask:
    model = model_of(workload.network)
    model = Model(model.layout, model.vector * scale)
    return Ask(workload, model, tuple(workload.parts), round_number)


def expected(ask: Ask) -> Tensor:
    return SequentialEngine(ask.workload).train(ask.model, ask.clients, ask.round_number).vectors


def processes(updates: Updates, ask: Ask) -> set[int]:
    """The processes that trained, from the updates of a `ReportsProcess` network."""
    spans = {spec.name: start for spec, start, _ in ask.model.layout.spans()}
    return {int(number) for number in updates.vectors[:, spans["process"]]}


def trained_by(trainer: PoolTrainer, network: ReportsProcess | None = None) -> set[int]:
    ask = an_ask(a_workload(network or ReportsProcess()))
    return processes(trainer.train([ask])[0], ask)


def with_workers_ready(trainer: PoolTrainer) -> PoolTrainer:
    """The trainer once its workers are ready, and this process trains no more."""
    deadline = time.monotonic() + TIMEOUT
    while os.getpid() in trained_by(trainer):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # leave the cores to the workers that start
    return trainer


def without_process(ask: Ask, vectors: Tensor) -> Tensor:
    (start,) = [start for spec, start, _ in ask.model.layout.spans() if spec.name == "process"]
    return torch.cat([vectors[:, :start], vectors[:, start + 1 :]], dim=1)


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(parent: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z" and int(fields[1]) == parent:
            found.add(int(stat.parent.name))
    return found


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descriptors(process: int | str = "self") -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def shared_memory() -> int:
    """Blocks of shared memory that this process holds."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
    return sum("memfd:disavow" in link for link in links)
