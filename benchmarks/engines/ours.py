"""Times our own engines in whole rounds: broadcast, training, clustering, noise, aggregation, ledger record, test.

`python -m benchmarks.engines.ours` is a contestant like the peers: a process that prints one line of JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.contestants import task
from benchmarks.engines.workload import CLASSES, SEED, SIDE
from disavow import __version__, config
from disavow.config import EngineSettings, TrainingSettings
from disavow.data import client_ids
from disavow.engines import build as build_engine
from disavow.engines import trainer_for
from disavow.engines.batched_rounds import BatchedRun, evaluate_rounds, run_rounds
from disavow.engines.state import model_of
from disavow.engines.trainer import VectorisedEngine
from disavow.engines.workload import Workload
from disavow.ledger import Ledger
from disavow.models import NETWORKS, build
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.round import run_round
from disavow.rounds.training import evaluate_missing

K = 10
"""Least members of a cluster; fewer where there are not so many clients."""

ENGINES: dict[str, dict[str, Any]] = {
    "auto": {"name": "auto"},
    "eager": {"name": "vectorised", "compile": "never"},
    "sequential": {"name": "sequential"},
}
"""Our own contestants: the fastest here; the same with nothing but what pip installs; the reference."""


@dataclass(frozen=True, eq=False)
class Federation:
    """One federation in a directory of its own."""

    workload: Workload
    ledger: Ledger
    options: RoundOptions


def main() -> None:
    """Time the rounds that were asked for."""
    parser = task.parser()
    parser.add_argument("--network", choices=sorted(NETWORKS), required=True)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--federations", type=int, required=True)
    arguments = parser.parse_args()
    rounds = arguments.warmup + arguments.rounds
    workload = make_workload(arguments)
    settings = engine_settings(arguments.engine, arguments.device)
    with federations_of(workload, arguments.federations) as federations:
        if arguments.federations == 1:
            seconds = one_at_a_time(federations[0], settings, rounds)
        else:
            seconds = all_at_once(federations, settings, rounds)
        accuracies = [_accuracy(federation.ledger) for federation in federations]
    versions = {"disavow": __version__, "torch": torch.__version__}
    task.answer(arguments, seconds, sum(accuracies) / len(accuracies), versions)


def engine_settings(engine: str, device: str) -> EngineSettings:
    """The settings that one of `ENGINES` stands for."""
    return EngineSettings.model_validate({**ENGINES[engine], "device": device})


def make_workload(arguments: argparse.Namespace) -> Workload:
    """The benchmark's workload as our engines take it."""
    data = task.load(arguments.data, "cpu")
    rows = (
        torch.arange(arguments.clients * arguments.samples).remainder(len(data.labels)).view(arguments.clients, -1)
    )
    return Workload(
        network=build(arguments.network, (1, SIDE, SIDE), CLASSES, seed=SEED),
        images=data.images,
        labels=data.labels,
        parts=dict(zip(client_ids(arguments.clients), rows.numpy(), strict=True)),
        test_images=data.test_images,
        test_labels=data.test_labels,
        settings=TrainingSettings(epochs=task.EPOCHS, batch_size=task.BATCH, learning_rate=task.LEARNING_RATE),
        seed=SEED,
    )


@contextmanager
def federations_of(workload: Workload, count: int) -> Iterator[list[Federation]]:
    """As many federations as asked for, each with a seed and a ledger of its own, gone when this ends."""
    with tempfile.TemporaryDirectory(prefix="disavow-bench-") as folder, ExitStack() as stack:
        yield [
            Federation(
                workload=dataclasses.replace(workload, seed=seed),
                ledger=stack.enter_context(_ledger(workload, Path(folder) / str(seed))),
                options=RoundOptions(seed=seed, epochs=workload.settings.epochs),
            )
            for seed in range(SEED, SEED + count)
        ]


def _ledger(workload: Workload, directory: Path) -> Ledger:
    initial, clients = model_of(workload.network), len(workload.parts)
    values = {"data": {"clients": clients}, "clustering": {"k": min(K, clients)}}
    return Ledger.create(
        directory,
        policy=config.from_values(values, source="bench").policy,
        layout=initial.layout,
        initial=initial.vector.numpy(),
        clients=workload.parts,
        config="",
        created_by=f"disavow {__version__}",
        at=now(),
        keys=directory.with_name("keys"),
    )


def one_at_a_time(federation: Federation, settings: EngineSettings, rounds: int) -> list[float]:
    """Seconds of each round of one federation, on the engine that its settings choose."""
    engine = build_engine(federation.workload, settings)

    def one_round() -> None:
        run_round(federation.ledger, engine, federation.options)
        evaluate_missing(federation.ledger, engine)

    try:
        return [_timed(one_round) for _ in range(rounds)]
    finally:
        engine.close()


def all_at_once(federations: list[Federation], settings: EngineSettings, rounds: int) -> list[float]:
    """Seconds of each round of all federations, whose clients are trained in one call."""
    trainer = trainer_for(federations[0].workload, settings)
    together = [
        BatchedRun(federation.ledger, VectorisedEngine(federation.workload, trainer), federation.options)
        for federation in federations
    ]

    def one_round() -> None:
        run_rounds(together)
        evaluate_rounds(together)

    try:
        return [_timed(one_round) for _ in range(rounds)]
    finally:
        trainer.close()


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _accuracy(ledger: Ledger) -> float:
    evaluation = ledger.summary(ledger.last_round).evaluation
    return evaluation.accuracy if evaluation else 0.0


if __name__ == "__main__":
    main()
