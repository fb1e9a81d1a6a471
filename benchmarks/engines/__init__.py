"""The benchmark: our engines and their peers side by side, on the same workload, in one run.

LeNet5 on MNIST, 50 clients of 1,200 images, 3 epochs of batches of 128, SGD 0.02; then aggregate, and test on
10,000. Seconds a round in steady state, in interleaved passes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.engines.passes import Contestant, OnPass, OnStart, interleaved
from benchmarks.engines.peers import CACHE, CONTESTANTS, PEERS, Peer, PeerUnavailable, command, interpreter
from benchmarks.engines.report import Report
from benchmarks.engines.workload import prepare
from disavow.proof.keys import child_environment
from disavow.rounds.threads import cores

WARMUP = {"cpu": 1, "cuda": 3}
"""Rounds that are not timed: processes start, kernels are compiled, memory is laid out."""
ROOT = Path(__file__).parents[2]
"""The root of the repository."""
GPU_SHARERS = 4
"""Processes that share a GPU; pfl's guide says that 1 to 5 pay."""


@dataclass(frozen=True)
class BenchmarkSettings:
    """What to run. The defaults are the workload of the documentation."""

    device: str = "cpu"
    passes: int = 3
    rounds: int = 3
    peers: tuple[str, ...] = tuple(PEERS)
    engines: tuple[str, ...] = ("auto", "eager")
    network: str = "lenet5"
    clients: int = 50
    samples: int = 1200
    federations: int = 1

    @property
    def warmup(self) -> int:
        """Rounds before those that are timed."""
        return WARMUP[self.device]


OnNote = Callable[[str], None]


def compare(
    settings: BenchmarkSettings,
    *,
    cache: Path = CACHE,
    on_note: OnNote = lambda note: None,
    on_start: OnStart = lambda contestant, number: None,
    on_pass: OnPass = lambda done: None,
) -> Report:
    """Build what is missing, run all passes of all contestants, and say what they came to.

    `on_note` hears what is being prepared, `on_start` which pass begins, `on_pass` what it came to.
    """
    at = datetime.now(UTC)
    cache = cache.expanduser()
    data = prepare(cache)
    options = _options(settings, data.path)
    contestants, absent = [], {}
    for peer in (PEERS[name] for name in settings.peers):
        try:
            contestants.append(_peer(peer, settings, options, cache, on_note))
        except PeerUnavailable as why:
            absent[peer.name] = str(why)
            on_note(f"{peer.name} cannot take part: {why}")
    contestants += [_ours(engine, settings, options) for engine in settings.engines]
    passes = interleaved(contestants, settings.passes, on_start=on_start, on_pass=on_pass)
    return Report(
        {**asdict(settings), "warmup": settings.warmup}, data.source, at, tuple(contestants), tuple(passes), absent
    )


def _options(settings: BenchmarkSettings, data: Path) -> tuple[str, ...]:
    values = {
        "data": data,
        "clients": settings.clients,
        "samples": settings.samples,
        "rounds": settings.rounds,
        "warmup": settings.warmup,
        "device": settings.device,
    }
    return tuple(f"--{name}={value}" for name, value in values.items())


def _peer(
    peer: Peer, settings: BenchmarkSettings, options: tuple[str, ...], cache: Path, on_note: OnNote
) -> Contestant:
    if settings.network != "lenet5":
        raise PeerUnavailable(f"it knows lenet5 only, not {settings.network}")
    python = interpreter(
        peer, cache, on_build=lambda folder: on_note(f"installing {peer.requirement} into {folder}")
    )
    workers = _workers(peer, settings)
    return Contestant(
        name=" ".join(peer.label.split("-")),
        command=(*command(peer, python, workers), *options, f"--workers={workers}"),
        environment=_environment(
            settings.device,
            {
                "PYTHONPATH": str(CONTESTANTS),
                "PYTHONSAFEPATH": "1",  # or the folder that this is started from could stand in for a package
                "OMP_NUM_THREADS": "1",
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_HOME": str(cache / "flwr"),
                "RAY_USAGE_STATS_ENABLED": "0",
            },
        ),
        ours=False,
    )


def _workers(peer: Peer, settings: BenchmarkSettings) -> int:
    """How many processes a peer uses: one a core, or as many as may share a GPU."""
    if settings.device == "cpu":
        return min(cores(), settings.clients)
    if peer.name == "pfl":
        return 1  # its processes speak through NCCL, which takes one process a GPU
    return min(cores(), GPU_SHARERS, settings.clients)


def _ours(engine: str, settings: BenchmarkSettings, options: tuple[str, ...]) -> Contestant:
    more = (f"--engine={engine}", f"--network={settings.network}", f"--federations={settings.federations}")
    times = f" x{settings.federations}" if settings.federations > 1 else ""
    return Contestant(
        name=f"disavow {engine}{times}",
        command=(sys.executable, "-m", "benchmarks.engines.ours", *options, *more),
        environment=_environment(settings.device, {"PYTHONPATH": os.pathsep.join(_search_path())}),
        ours=True,
    )


def _search_path() -> list[str]:
    """Where our own contestant finds this folder, wherever the benchmark is started from."""
    return [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


def _environment(device: str, more: dict[str, str]) -> dict[str, str]:
    """The environment of a contestant; without a GPU where the CPU is meant."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return child_environment({**hidden, **more})


__all__ = ["CACHE", "PEERS", "BenchmarkSettings", "Report", "compare"]
