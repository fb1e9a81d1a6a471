"""A whole `disavow erase` of a deniable client, on ledgers of 10^4, 10^5 and 10^6 clients.

    python -m benchmarks scale                                      10^4 to 10^6 clients: 10^5 to 10^7 memberships
    python -m benchmarks scale --clients 10000 --rounds 100         one small ledger
    python -m benchmarks scale --json docs/results/scale.json       keeps every time
    python -m benchmarks scale --database postgresql+psycopg://...  the same, kept there

Ledgers are filled by recording rounds, as training does: only the updates are made up. Participation is sampled,
so that every client takes part in ten rounds. Each is then asked, in processes of their own:

    erase     open, place, judge, prove, forget, close, of one client after the other: the calls of the command
    command   the same as `disavow erase`, from the shell: imports and all
    status, dry run, open

Seconds are wall-clock; CPU seconds of the process are beside them, because machines do other work meanwhile. Peak
memory is that of the process that erased all of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from disavow import config
from disavow.domain import Cluster, Layout, Member, Slot, TensorSpec, VerdictKind
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.ledger.rounds import NewRound
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import child_environment, generate, load_signer, nobody_to_ask
from disavow.rounds.options import now

CLIENTS = (10_000, 100_000, 1_000_000)
ROUNDS, EACH, K, X = 1_000, 10, 10, 3
LEAVERS, COMMANDS, READS = 100, 20, 5
LARGE_ROUND = 10_000


def main(arguments: Sequence[str]) -> None:
    """Build each ledger, measure on it, throw it away."""
    options = _parser().parse_args(arguments)
    if options.measure is not None:
        print(json.dumps(_MEASURES[options.measure](options.folder, options.clients[0], options.leavers)))
        return
    lines = []
    for clients in options.clients:
        with _folder(options.folder, clients) as folder:
            line = measure(
                folder, clients, options.rounds, options.each, options.leavers, database=options.database
            )
            lines.append(line)
            print(_shown(line), flush=True)
    if options.json is not None:
        machine = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        document = {"command": f"python -m benchmarks scale {' '.join(arguments)}".strip(), "machine": machine}
        options.json.write_text(json.dumps({**document, "results": lines}, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS), help="one ledger for each number")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each ledger")
    parser.add_argument("--each", type=int, default=EACH, help="in how many rounds a client takes part")
    parser.add_argument("--leavers", type=int, default=LEAVERS, help="how many are erased, one after the other")
    parser.add_argument("--database", help="URL of a database server; SQLite in the run unless given")
    parser.add_argument("--folder", type=Path, help="build ledgers here and keep them")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    parser.add_argument("--measure", choices=list(_MEASURES), help=argparse.SUPPRESS)
    return parser


@contextmanager
def _folder(kept: Path | None, clients: int) -> Iterator[Path]:
    if kept is not None:
        yield kept / str(clients)
        return
    made = Path(tempfile.mkdtemp())
    try:
        yield made
    finally:
        shutil.rmtree(made)


def measure(
    folder: Path, clients: int, rounds: int, each: int, leavers: int, *, database: str | None = None
) -> dict[str, Any]:
    """Build a ledger, unless it is there, and measure on it.

    Args:
        folder: Where run and keys go.
        clients: How many it has.
        rounds: How many it has.
        each: In how many of them a client takes part.
        leavers: How many are erased by calls; some more by commands.
        database: The URL of a database server.

    Returns:
        What was measured.

    """
    built = {} if (folder / "run").exists() else build(folder, clients, rounds, each, database=database)
    line: dict[str, Any] = {
        "clients": clients,
        "rounds": rounds,
        "memberships": clients * each,
        "database": "sqlite" if database is None else database.split(":")[0],
        **built,
        "bytes": sum(path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file()),
    }
    for name in _MEASURES:
        line[name] = _in_process(name, folder, clients, leavers)
    line["command"] = _commands(folder, clients, leavers)
    return line


def build(
    folder: Path, clients: int, rounds: int, each: int = EACH, *, database: str | None = None
) -> dict[str, Any]:
    """Make a run of so many clients and record its rounds, and one round of 10,000 participants where it has them.

    Args:
        folder: Where run and keys go.
        clients: How many clients.
        rounds: How many rounds.
        each: In how many of them a client takes part.
        database: The URL of a database server.

    Returns:
        How long that took, and what a round took at the beginning and at the end.

    """
    keys = folder / "keys"
    generate(keys, name="benchmarks", passphrase=None, at=time_to_text(now()))
    taking = max(clients * each // rounds, K)
    values: dict[str, Any] = {
        "rounds": rounds,
        "data": {"clients": clients},
        "clustering": {"k": K},
        "deniability": {"x": X},
        "training": {"fraction": taking / clients},
    }
    settings = config.from_values(values, source="benchmark")
    begun = time.perf_counter()
    where: dict[str, Any] = {} if database is None else {"database": database}
    ledger = Ledger.create(
        folder / "run",
        policy=settings.policy,
        layout=Layout((TensorSpec("weight", (1,)),)),
        initial=np.zeros(1, dtype=np.float32),
        clients=[client_id(number) for number in range(clients)],
        config=config.to_toml(settings),
        settings_digest=config.settings_digest(settings),
        created_by="benchmark",
        at=now(),
        signer=load_signer(keys, nobody_to_ask),
        keys=keys,
        **where,
    )
    created = time.perf_counter() - begun
    generator, queue, seconds = np.random.default_rng(1), np.empty(0, dtype=np.int64), []
    with ledger:
        ledger.clients()  # as whoever trains does, to choose who takes part
        gc.freeze()
        for _ in range(rounds):
            if len(queue) < taking:  # nobody twice in a round
                queue = generator.permutation(clients)
            some, queue = queue[:taking], queue[taking:]
            seconds.append(record(ledger, some.tolist(), generator))
        large = min(clients, LARGE_ROUND)
        largest = [record(ledger, generator.choice(clients, large, replace=False).tolist(), generator)]
    few = max(1, rounds // 10)
    return {
        "participants": taking,
        "created_seconds": round(created, 1),
        "built_seconds": round(time.perf_counter() - begun, 1),
        "first_rounds_seconds": round(float(np.median(seconds[:few])), 4),
        "last_rounds_seconds": round(float(np.median(seconds[-few:])), 4),
        "large_round_participants": large,
        "large_round_seconds": round(min(largest), 3),
    }


def client_id(number: int) -> str:
    """Name a client.

    Args:
        number: Which one.

    """
    return f"client-{number:07d}"


def record(ledger: Ledger, taking: Sequence[int], generator: np.random.Generator) -> float:
    """Record a round in which these clients take part; the seconds of recording it.

    Args:
        ledger: The run.
        taking: The clients.
        generator: Where updates are made up from.

    """
    number, attempt = ledger.next_round()
    noise = generator.bytes(32 * len(taking))
    slots = [Slot(Member(client_id(client), 60, noise[32 * at : 32 * at + 32])) for at, client in enumerate(taking)]
    count = len(slots) // K
    starts = [K * each for each in range(count)]
    groups = [slots[start : start + K if start != starts[-1] else None] for start in starts]
    new = NewRound(
        number=number,
        attempt=attempt,
        before=ledger.digest_before(number),
        after=generator.standard_normal(1).astype(np.float32),
        delta=1.0,
        update_norm=1.0,
        pairs_within=1.0,
        clusters=tuple(Cluster(len(group) / len(slots), 1.0, tuple(group)) for group in groups),
        at=now(),
        seconds=1.0,
    )
    begun = time.perf_counter()
    ledger.record(new)
    return time.perf_counter() - begun


# -- measuring, each in a process of its own -----------------------------------------------------------------------


def _leaving(clients: int, leavers: int, after: int = 0) -> list[int]:
    """So many clients in an order of chance, behind those who left before."""
    return [int(client) for client in np.random.default_rng(2).permutation(clients)[after : after + leavers]]


def _erase(folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    chosen = _leaving(clients, leavers + 1)

    def erase(client: int) -> None:
        with Federation.open(folder / "run", keys=folder / "keys", openings=folder / "openings") as federation:
            answer = federation.erase([client_id(client)])
        [request] = answer.requests.values()
        if request.verdict is None or request.verdict.kind is not VerdictKind.DENIABLE:
            raise RuntimeError(f"{client_id(client)} was not deniable: {request}")

    erase(chosen[0])  # the first one loads the modules
    return {"clients": leavers, **_timed([partial(erase, client) for client in chosen[1:]])}


def _status(folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    del clients, leavers

    def status() -> None:
        with Federation.open(folder / "run", keys=folder / "keys") as federation:
            federation.status().to_json()

    return _timed([status] * READS)


def _dry_run(folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    del leavers
    stays = np.random.default_rng(3).choice(clients, READS, replace=False).tolist()

    def dry_run(client: int) -> None:
        with Federation.open(folder / "run", keys=folder / "keys") as federation:
            federation.forecast([client_id(client)])

    return _timed([partial(dry_run, client) for client in stays])


def _open(folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    del clients, leavers
    signer = load_signer(folder / "keys", nobody_to_ask)

    def opened() -> None:
        Ledger.open(folder / "run", write=True, keys=folder / "keys", signer=signer).close()

    return _timed([opened] * READS)


_MEASURES: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "open": _open,
    "dry_run": _dry_run,
    "status": _status,
    "erase": _erase,
}


def _timed(calls: Sequence[Callable[[], None]]) -> dict[str, Any]:
    seconds, used = [], []
    for call in calls:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        seconds.append(time.perf_counter() - wall)
        used.append(time.process_time() - cpu)
    return {**_quantiles(seconds, used), "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """The most memory that this process has held. What `getrusage` says on Linux is also of whoever started it."""
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _quantiles(seconds: Sequence[float], used: Sequence[float]) -> dict[str, Any]:
    return {
        "p50_seconds": round(float(np.quantile(seconds, 0.5)), 4),
        "p99_seconds": round(float(np.quantile(seconds, 0.99)), 4),
        "p50_cpu_seconds": round(float(np.quantile(used, 0.5)), 4),
        "p99_cpu_seconds": round(float(np.quantile(used, 0.99)), 4),
    }


def _in_process(name: str, folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", "--measure", name, "--folder", str(folder)]
    command += ["--clients", str(clients), "--leavers", str(leavers)]
    done = subprocess.run(command, env=child_environment(), check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _commands(folder: Path, clients: int, leavers: int) -> dict[str, Any]:
    """Run `disavow erase` from the shell."""
    environment = {name: value for name, value in child_environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["DISAVOW_KEYS"] = str(folder / "keys")
    chosen = _leaving(clients, COMMANDS, after=leavers + 1)
    seconds, used = [], []
    for client in chosen:
        words = [sys.executable, "-m", "disavow", "erase", str(folder / "run"), client_id(client), "--yes"]
        begun = time.perf_counter()
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, spent = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - begun)
        if code := os.waitstatus_to_exitcode(status):
            raise RuntimeError(f"{' '.join(words)} ended with {code}")
        used.append(spent.ru_utime + spent.ru_stime)
    return {"clients": COMMANDS, **_quantiles(seconds, used)}


def _shown(line: dict[str, Any]) -> str:
    lines = [f"{line['clients']:,} clients, {line['memberships']:,} memberships, {line['rounds']:,} rounds"]
    if "built_seconds" in line:
        lines.append(
            f"  built in {line['built_seconds']:.0f} s; a round of {line['participants']:,}"
            f" {line['first_rounds_seconds']:.3f} s at first, {line['last_rounds_seconds']:.3f} s at last;"
            f" one of {line['large_round_participants']:,} {line['large_round_seconds']:.2f} s"
        )
    for name in (*_MEASURES, "command"):
        found = line[name]
        lines.append(
            f"  {name.replace('_', ' '):8} p50 {found['p50_seconds']:.3f} s, p99 {found['p99_seconds']:.3f} s"
            f" (CPU {found['p50_cpu_seconds']:.3f}, {found['p99_cpu_seconds']:.3f} s)"
            + (f", {found['peak_bytes'] / 1e6:.0f} MB" if "peak_bytes" in found else "")
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
