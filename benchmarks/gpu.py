"""Seconds of a training call of the stacked trainer, captured or not, in every precision, and how exact it is.

    python -m benchmarks.gpu                       everything, on the first GPU
    python -m benchmarks.gpu --device cpu --tiny   a check that it runs
    python -m benchmarks.gpu lenet5 clients-1000   only these workloads

`first` is the first call, capturing included; `steady` the median of the next five; `host` the part
of it after which the call has returned, before the device is done. `of float64` and `of sequential` are the largest
distances of an update from the one in float64, and from the reference engine's, of its own length. After
`--seconds` no further measurement begins.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import statistics
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import disavow

if importlib.util.find_spec("sqlalchemy") is None:
    # a GPU machine may lack what the ledger needs; training does not need it, but its package imports it
    bare = types.ModuleType("disavow.rounds")
    bare.__path__ = [str(Path(disavow.__file__).parent / "rounds")]
    sys.modules[bare.__name__] = bare

from disavow.config import TrainingSettings
from disavow.engines.batches import batches
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.state import model_of, put_model
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.models import build

CALLS = 5
CHECKED = 2
"""Clients that are compared with float64 and with the reference engine."""

GRAPHS: dict[str, Literal["auto", "never"]] = {"eager": "never", "graph": "auto"}


@dataclass(frozen=True)
class Size:
    """How large a workload is."""

    clients: int
    samples: int
    federations: int = 1
    network: str = "lenet5"
    skew: float = 0.0


WORKLOADS = {
    "lenet5": Size(50, 1200),
    "resnet-mini": Size(50, 1200, network="resnet-mini"),
    "clients-1000": Size(1000, 60),
    "federations-12": Size(50, 1200, federations=12),
    "skew": Size(50, 1200, skew=1.0),
}
WORKLOADS_IN_FULL = ("lenet5", "resnet-mini")
SETTINGS = TrainingSettings(epochs=3, batch_size=128, learning_rate=0.02)


@dataclass(frozen=True)
class Measured:
    """One row of the table."""

    workload: str
    mode: str
    precision: str
    first: float
    steady: float
    host: float
    peak_gib: float
    of_float64: float
    of_sequential: float


def asks_of(size: Size, settings: TrainingSettings) -> list[Ask]:
    """Federations with the same random images, and models and batches of their own."""
    generator, shape = torch.Generator().manual_seed(1), (1, 28, 28)
    total = size.clients * size.samples
    images = torch.rand(total, *shape, generator=generator)
    labels = torch.randint(10, (total,), generator=generator)
    bounds = np.cumsum(sizes_of(size))[:-1]
    parts = {f"client-{i:04d}": part for i, part in enumerate(np.split(np.arange(total), bounds))}
    test = torch.rand(10_000 if total > 10_000 else 50, *shape, generator=generator)
    asks = []
    network, tests = build(size.network, shape, 10, seed=1), (test, torch.zeros(len(test), dtype=torch.int64))
    for seed in range(1, size.federations + 1):
        workload = Workload(network, images, labels, parts, *tests, settings, seed)
        model = model_of(build(size.network, shape, 10, seed=seed))
        asks.append(Ask(workload, model, tuple(parts), 1))
    return asks


def sizes_of(size: Size) -> list[int]:
    """How many samples each client holds: the same number, or unequal ones of the same sum."""
    if not size.skew:
        return [size.samples] * size.clients
    total = size.clients * size.samples
    shares = np.random.default_rng(1).dirichlet(np.full(size.clients, size.skew))
    sizes = [max(2, int(share * total)) for share in shares]
    sizes[int(np.argmax(sizes))] += total - sum(sizes)
    return sizes


def by_float64(ask: Ask, client: str, device: torch.device) -> Tensor:
    """The client's update by plain SGD in float64."""
    workload, settings = ask.workload, ask.workload.settings
    network = copy.deepcopy(workload.network).to(device).double().train()
    put_model(network, ask.model)
    parameters = list(network.parameters())
    held = torch.from_numpy(workload.parts[client])
    images, labels = workload.images[held].to(device).double(), workload.labels[held].to(device)
    drawn = batches(
        len(held),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=workload.seed,
        round_number=ask.round_number,
        client=client,
    )
    for batch in drawn:
        chosen = torch.from_numpy(batch).to(device)
        gradients = torch.autograd.grad(
            functional.cross_entropy(network(images[chosen]), labels[chosen]), parameters
        )
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=settings.learning_rate)
    after = [t.reshape(-1) for t in network.state_dict().values() if t.is_floating_point()]
    return torch.cat(after).cpu() - ask.model.vector.double()


@dataclass(frozen=True, eq=False)
class Truth:
    """What some clients' updates should be."""

    clients: tuple[str, ...]
    float64: Tensor
    sequential: Tensor

    @classmethod
    def of(cls, ask: Ask, device: torch.device) -> Truth:
        """The first clients, which need not be the longest."""
        clients = ask.clients[:CHECKED]
        exact = torch.stack([by_float64(ask, client, device) for client in clients])
        reference = SequentialEngine(ask.workload).train(ask.model, clients, ask.round_number)
        return cls(clients, exact, reference.vectors.double())

    def deviations(self, vectors: Tensor) -> tuple[float, float]:
        """From float64, and from the reference engine."""
        rows = vectors[: len(self.clients)].cpu().double()
        return _distance(rows, self.float64), _distance(rows, self.sequential)


def _distance(rows: Tensor, expected: Tensor) -> float:
    return float(((rows - expected).norm(dim=1) / expected.norm(dim=1)).max())


def wait(device: torch.device) -> None:
    """Until the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Seconds until the device is done, and until the call returned."""
    wait(device)
    start = time.perf_counter()
    work()
    returned = time.perf_counter()
    wait(device)
    return time.perf_counter() - start, returned - start


def measure(
    name: str, asks: Sequence[Ask], truth: Truth, device: torch.device, mode: str, precision: Any
) -> Measured:
    """One combination, in a trainer of its own."""
    trainer = StackedTrainer(device, graphs=GRAPHS[mode], precision=precision)
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        first, _ = timed(lambda: trainer.train(asks), device)
        calls = [timed(lambda: trainer.train(asks), device) for _ in range(CALLS)]
        of_float64, of_sequential = truth.deviations(trainer.train(asks)[0].vectors)
        peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
    finally:
        trainer.close()
    steady, host = (statistics.median(each) for each in zip(*calls, strict=True))
    return Measured(name, mode, precision, first, steady, host, peak, of_float64, of_sequential)


class Budget:
    """How long further measurements may begin."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    @property
    def spent(self) -> bool:
        """Whether it is over."""
        return time.perf_counter() > self._end


def survived(what: str, work: Callable[[], Any]) -> Any:
    """The work's result, or None after printing why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return work()
    except Exception as error:
        print(f"  FAILED {what}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        traceback.print_exc(limit=-3)
        return None


def combinations(name: str, *, every: bool) -> Iterator[tuple[str, str]]:
    """Mode and precision: all of them for the first two workloads, the likely best for the others."""
    yield from ((mode, "float32") for mode in GRAPHS if every or mode == "graph" or name in WORKLOADS_IN_FULL)
    if every or name == "lenet5":
        yield from (("graph", precision) for precision in ("tf32", "bf16"))


HEADER = (
    f"{'workload':15} {'mode':6} {'precision':9} {'first':>8} {'steady':>9} {'host':>8} "
    f"{'GiB':>6} {'of float64':>11} {'of sequential':>14}"
)


def shown(row: Measured) -> str:
    """A row of the table."""
    return (
        f"{row.workload:15} {row.mode:6} {row.precision:9} {row.first:8.2f} "
        f"{row.steady:9.4f} {row.host:8.4f} {row.peak_gib:6.2f} {row.of_float64:11.1e} {row.of_sequential:14.1e}"
    )


def shrinking(asks: Sequence[Ask], device: torch.device) -> None:
    """Seconds of the first call with each number of clients, and of the second."""
    [ask] = asks[:1]
    trainer, seconds = StackedTrainer(device), []
    for leavers in range(5):
        left = replace(ask, clients=ask.clients[leavers:])
        work = partial(trainer.train, [left])
        (call, _), (again, _) = timed(work, device), timed(work, device)
        seconds.append(f"{len(left.clients)} clients {call:.3f} then {again:.3f}")
    trainer.close()
    print("  ", ", ".join(seconds), flush=True)


def parts_of_a_call(asks: Sequence[Ask], device: torch.device) -> None:
    """Seconds of what surrounds the launches: drawing batches, evaluating one model and twelve."""
    trainer, [ask] = StackedTrainer(device), asks[:1]

    def draw() -> None:
        for client in ask.clients:
            held, settings = ask.workload.parts[client], ask.workload.settings
            for _ in batches(
                len(held),
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                seed=1,
                round_number=1,
                client=client,
            ):
                pass

    for what, work in (
        ("drawing batches", draw),
        ("evaluating one model", lambda: trainer.evaluate(ask.workload, [ask.model])),
        ("evaluating twelve", lambda: trainer.evaluate(ask.workload, [ask.model] * 12)),
    ):
        work()
        seconds = statistics.median(timed(work, device)[0] for _ in range(CALLS))
        print(f"  {what}: {seconds:.4f}", flush=True)
    trainer.close()


def profile(asks: Sequence[Ask], device: torch.device) -> None:
    """Where the time of one steady call goes, kernel by kernel."""
    trainer = StackedTrainer(device)
    for _ in range(2):
        trainer.train(asks)
    wait(device)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiler:
        trainer.train(asks)
        wait(device)
    key = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=key, row_limit=15, max_name_column_width=70), flush=True)
    trainer.close()


def table(
    names: Sequence[str], sizes: dict[str, Size], settings: TrainingSettings, options: argparse.Namespace
) -> list[Measured]:
    """Measure and print every combination of these workloads."""
    device, budget = torch.device(options.device), Budget(options.seconds)
    rows: list[Measured] = []
    print(HEADER, flush=True)
    for name in names:
        asks = asks_of(sizes[name], settings)
        truth = survived(f"{name} in float64", partial(Truth.of, asks[0], device))
        for mode, precision in combinations(name, every=options.every):
            if truth is None or budget.spent:
                continue
            what = name, asks, truth, device, mode, precision
            row = survived(f"{name} {mode} {precision}", partial(measure, *what))
            if row is not None:
                rows.append(row)
                print(shown(row), flush=True)
    return rows


def main() -> None:
    """Print the table, and what surrounds it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"of {', '.join(WORKLOADS)}; or all")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="small enough for a CPU: a check, not a measurement")
    parser.add_argument("--every", action="store_true", help="every combination for every workload")
    parser.add_argument("--seconds", type=float, default=420, help="after so many, begin no measurement")
    parser.add_argument("--json", type=Path, help="keep the rows in this file")
    options = parser.parse_args()
    unknown = sorted(set(options.workloads) - set(WORKLOADS))
    if unknown:
        parser.error(f"no workload is called {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    sizes, settings = WORKLOADS, SETTINGS
    if options.tiny:
        sizes = {
            name: replace(size, clients=4, samples=10, federations=min(2, size.federations))
            for name, size in sizes.items()
        }
        settings = settings.model_copy(update={"batch_size": 4, "epochs": 2})
    device = torch.device(options.device)
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    print(f"torch {torch.__version__} on {machine}; {settings.epochs} epochs of batches of {settings.batch_size}")
    rows = table(options.workloads or list(sizes), sizes, settings, options)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    asks = asks_of(sizes["lenet5"], settings)
    print("lenet5:", flush=True)
    for work in (parts_of_a_call, shrinking, profile):
        survived(work.__name__, partial(work, asks, device))


if __name__ == "__main__":
    main()
