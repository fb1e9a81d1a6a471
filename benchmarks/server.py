"""The service on loopback: requests filed by 50 clients at once while the run trains, and answers on a large run.

python -m benchmarks server

Filing: 1,000 clients of a run are filed for by 50 connections at once; the worker trains that run all the while.
Each filing is durable before it is answered. Pages: a run with 1,000 rounds and 10,000 requests; the median and the
slowest of ten calls, over a connection that is kept, and the first call before them. Approvals: of that run, each
as it was forecast. `cpu_ms` is the processor time that the service took for a call, which other work on the machine
hardly changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import torch
from torch.utils.data import TensorDataset

import disavow
from benchmarks import scale
from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import child_environment, generate
from disavow.rounds.options import now
from disavow.server import tokens
from disavow.server.access import Role
from disavow.server.state import State

CLIENTS, CONNECTIONS = 1000, 50
ROUNDS, REQUESTS, CALLS = 1000, 10_000, 10
PAGES = (
    "/",
    "/index.json",
    "/requests?run=run",
    "/requests/run-5000",
    "/runs/run",
    "/runs/run/rounds",
    "/runs/run/departures",
    "/runs/run/log",
    "/runs/run/account",
    "/runs/run/releases",
    "/v1/requests?run=run",
    "/v1/requests?run=run&state=waiting&before=5000",
    "/v1/requests/run-5000",
    "/v1/requests/run-5000/forecast",
    "/v1/runs/run",
    "/v1/runs/run/rounds",
    "/v1/runs/run/departures",
    "/v1/runs/run/log/checkpoint",
    "/metrics",
)
_ROOT = Path(__file__).parents[1]


def build() -> disavow.Task:
    """Make a task of many small clients, so that it is the service and not the training that is measured."""
    generator = torch.Generator().manual_seed(1)
    made = {}
    for number in range(CLIENTS):
        inputs = torch.randn(8, 4, generator=generator)
        made[f"client-{number:04d}"] = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(model.weight)  # the worker must build the same
    torch.nn.init.zeros_(model.bias)
    return disavow.task(model=model, clients=made)


def main() -> None:
    """Print what was measured, one line for filing and one for each page."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(_filing(Path(folder))), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in _pages(Path(folder)):
            print(json.dumps(line), flush=True)


def _filing(folder: Path) -> dict[str, object]:
    generate(folder / "keys", name="benchmarks", passphrase=None, at=time_to_text(now()))
    settings = config.from_values(
        {
            "rounds": 100_000,
            "task": {"factory": "benchmarks.server:build", "path": str(_ROOT)},
            "training": {"fraction": 0.1, "epochs": 1},
            "requests": {"approval": "always"},
        },
        source="benchmark",
    )
    with Federation.create(folder / "runs" / "run", settings, keys=folder / "keys") as federation:
        federation.train(rounds=1)
        clients = federation.clients()
    with _served(folder, worker=True) as (url, headers, cpu_seconds):
        _wait_for_training(url, headers)
        begun = _rounds(url, headers)
        start, cpu = time.perf_counter(), cpu_seconds()
        taken = asyncio.run(_file_all(url, headers, clients))
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        trained = _rounds(url, headers) - begun
        counts = httpx.get(f"{url}/v1/runs/run", headers=headers, timeout=60).json()["requests"]
    numbers = [number for number, _ in taken]
    times = sorted(each for _, each in taken)
    return {
        "requests": len(clients),
        "connections": CONNECTIONS,
        "lost": len(clients) - sum(counts.values()),
        "doubled": len(numbers) - len(set(numbers)),
        "seconds": seconds,
        "rounds_meanwhile": trained,
        "cpu_ms": 1000 * cpu / len(clients),
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
        "slowest_ms": 1000 * times[-1],
    }


async def _file_all(url: str, headers: dict[str, str], clients: tuple[str, ...]) -> list[tuple[int, float]]:
    waiting, taken = list(clients), []

    async def file_some() -> None:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            await http.get("/healthz")  # the connection is there before it counts
            while waiting:
                client = waiting.pop()
                start = time.perf_counter()
                answer = await http.post(
                    "/v1/requests", json={"run": "run", "client": client}, headers={"Idempotency-Key": client}
                )
                seconds = time.perf_counter() - start
                taken.append((answer.raise_for_status().json()["number"], seconds))

    await asyncio.gather(*(file_some() for _ in range(CONNECTIONS)))
    return taken


def _rounds(url: str, headers: dict[str, str]) -> int:
    index = httpx.get(f"{url}/index.json", headers=headers, timeout=60).json()
    rounds: int = index["runs"][0]["rounds"]
    return rounds


def _wait_for_training(url: str, headers: dict[str, str]) -> None:
    begun = _rounds(url, headers)
    while _rounds(url, headers) < begun + 2:
        progress = httpx.get(f"{url}/index.json", headers=headers, timeout=60).json()["runs"][0]["progress"]
        if progress is not None and progress["phase"] == "refused":
            sys.exit(f"the worker does not train: {progress['detail']}")
        time.sleep(0.2)


def _pages(folder: Path) -> Iterator[dict[str, object]]:
    scale.build(folder, REQUESTS + 2000, ROUNDS, 2)
    (folder / "runs").mkdir()
    (folder / "run").rename(folder / "runs" / "run")
    with Federation.open(folder / "runs" / "run", keys=folder / "keys") as federation:
        clients = federation.clients()[:REQUESTS]
        for first in range(0, REQUESTS, 1000):
            federation.place(clients[first : first + 1000], by="benchmarks")
    with (
        _served(folder, worker=False) as (url, headers, cpu_seconds),
        httpx.Client(base_url=url, headers=headers, timeout=600) as http,
    ):
        for page in PAGES:
            times, cpu = [], 0.0
            for call in range(CALLS + 1):
                if call == 1:
                    cpu = cpu_seconds()
                start = time.perf_counter()
                http.get(page).raise_for_status()
                times.append(1000 * (time.perf_counter() - start))
            yield {
                "page": page,
                "rounds": ROUNDS + 1,
                "requests": REQUESTS,
                **_summary(times),
                "cpu_ms": 1000 * (cpu_seconds() - cpu) / CALLS,
            }
        yield {"call": "approval", "waiting": REQUESTS, **_summary(list(_approve_some(http)))}


def _summary(times: Sequence[float]) -> dict[str, float]:
    """Median and slowest of all calls but the first; and the first."""
    return {"p50_ms": statistics.median(times[1:]), "slowest_ms": max(times[1:]), "first_ms": times[0]}


def _approve_some(http: httpx.Client) -> Iterator[float]:
    """Approve some requests, each as it is forecast, which an approval does once more; milliseconds of each."""
    for number in range(1, CALLS + 2):
        path = f"/v1/requests/run-{number}"
        digest = http.get(f"{path}/forecast").raise_for_status().json()["digest"]
        start = time.perf_counter()
        http.post(f"{path}/approval", json={"forecast": digest}).raise_for_status()
        yield 1000 * (time.perf_counter() - start)


@contextmanager
def _served(folder: Path, *, worker: bool) -> Iterator[tuple[str, dict[str, str], Callable[[], float]]]:
    """Serve the runs of a folder in processes of their own; where, a token for it, and its CPU seconds so far."""
    state = State(folder / "state")
    roles = frozenset({Role.OPERATOR, Role.VIEWER, Role.APPROVER})
    token, _ = tokens.create(state, name="benchmarks", roles=roles, runs=None, now=time.time(), expires_at=None)
    state.close()
    folders = ("--runs", folder / "runs", "--keys", folder / "keys", "--state", folder / "state")
    command = [sys.executable, "-m", "disavow", "serve", "--json", "--port", "0", *map(str, folders)]
    process = subprocess.Popen(
        command + ([] if worker else ["--no-worker"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=_ROOT,
        env=child_environment(),
    )
    assert process.stdout is not None
    try:
        url = json.loads("".join(process.stdout.readline() for _ in range(4)))["url"]
        httpx.get(f"{url}/readyz", timeout=60).raise_for_status()
        yield url, {"Authorization": f"Bearer {token}"}, partial(_cpu_seconds, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _cpu_seconds(process: int) -> float:
    """Read the processor time of a process so far, without that of its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
