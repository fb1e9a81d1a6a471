"""Milliseconds to judge one request, on ledgers of 10^4, 10^5 and 10^6 clients, 10,000 participants a round.

Every client took part in ten rounds, so the ledgers have 10, 100 and 1,000 rounds (10^5 to 10^7 memberships): the
cost should stay the same. A last ledger of 10^4 clients has 100 rounds: ten times the leaver's own rounds, ten
times the cost. One client in a hundred has left before.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from disavow.config import from_values
from disavow.domain import Layout, TensorSpec
from disavow.erasure.judge import judge
from disavow.ledger import Ledger
from disavow.rounds.options import now

PARTICIPANTS = 10_000
K, X = 10, 3
ASKED = 300
LEFT_BEFORE = 100


def main() -> None:
    """Build each ledger, judge many requests on it, throw it away."""
    for clients, rounds in ((10_000, 10), (100_000, 100), (1_000_000, 1_000), (10_000, 100)):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "run"
            _build(directory, clients, rounds)
            print(json.dumps(_measure(directory, clients, rounds)), flush=True)


def _measure(directory: Path, clients: int, rounds: int) -> dict[str, object]:
    chosen = random.Random(1).sample(range(1, clients + 1), ASKED)
    milliseconds = []
    with Ledger.open(directory) as ledger, ledger.snapshot() as snapshot:
        for client in chosen:
            start = time.perf_counter()
            judge(snapshot.evidence([client]), snapshot.policy)
            milliseconds.append(1000 * (time.perf_counter() - start))
    return {
        "clients": clients,
        "rounds": rounds,
        "own_rounds": PARTICIPANTS * rounds // clients,
        "median_ms": float(np.median(milliseconds)),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "ledger_gb": (directory / "ledger.sqlite3").stat().st_size / 1e9,
    }


def _build(directory: Path, clients: int, rounds: int) -> None:
    """A ledger with real tables and indexes, filled in bulk: training a million clients would take a while."""
    told = {"data": {"clients": 20}, "clustering": {"k": K}, "deniability": {"x": X}}
    settings = from_values(told, source="benchmark")
    Ledger.create(
        directory,
        policy=settings.policy,
        layout=Layout((TensorSpec("weight", (1,)),)),
        initial=np.zeros(1, dtype=np.float32),
        clients=(),
        config="",
        created_by="benchmark",
        at=now(),
    ).close()
    generator = np.random.default_rng(1)
    with closing(sqlite3.connect(directory / "ledger.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        [(digest,)] = connection.execute("SELECT digest FROM models")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO clients (number, id) VALUES (?, ?)",
            ((i, f"client-{i:07d}") for i in range(1, clients + 1)),
        )
        connection.execute(
            "INSERT INTO erasures (state, rounds_before, mechanism, opened_at) VALUES ('answered', 0, '', '')"
        )
        connection.execute("COMMIT")
        queue = np.empty(0, dtype=np.int64)
        for number in range(1, rounds + 1):
            if len(queue) < PARTICIPANTS:
                queue = np.concatenate([queue, generator.permutation(clients) + 1])
            taking, queue = queue[:PARTICIPANTS], queue[PARTICIPANTS:]
            _fill(connection, number, taking, digest, generator)


def _fill(
    connection: sqlite3.Connection,
    number: int,
    taking: np.ndarray[tuple[int], np.dtype[np.int64]],
    digest: str,
    generator: np.random.Generator,
) -> None:
    connection.execute("BEGIN")
    connection.execute(
        "INSERT INTO rounds (id, number, attempt, before, after, delta, update_norm, pairs_within, tau,"
        " participants, clusters, digest, recorded_at, standing, seconds)"
        " VALUES (?, ?, 1, ?, ?, 1.0, 1.0, 1.0, 1.0, ?, ?, x'00', '', 1, 1.0)",
        (number, number, digest, digest, PARTICIPANTS, PARTICIPANTS // K),
    )
    starts, commitments = range(0, PARTICIPANTS, K), generator.bytes(32 * PARTICIPANTS)
    connection.executemany(
        "INSERT INTO clusters (round_id, position, first_slot, size, places, weight, spread)"
        " VALUES (?, ?, ?, ?, ?, ?, 1.0)",
        ((number, i, start, K, K, K / PARTICIPANTS) for i, start in enumerate(starts)),
    )
    connection.executemany(
        "INSERT INTO slots (round_id, slot, commitment) VALUES (?, ?, ?)",
        ((number, slot, commitments[32 * slot : 32 * slot + 32]) for slot in range(PARTICIPANTS)),
    )
    noise = generator.bytes(64 * PARTICIPANTS)
    connection.executemany(
        "INSERT INTO memberships (round_id, slot, client, samples, salt, update_digest, checksum)"
        " VALUES (?, ?, ?, 60, ?, ?, x'00')",
        (
            (number, slot, client, noise[64 * slot : 64 * slot + 32], noise[64 * slot + 32 : 64 * slot + 64])
            for slot, client in enumerate(taking.tolist())
        ),
    )
    gone = generator.choice(PARTICIPANTS, LEFT_BEFORE, replace=False).tolist()
    connection.executemany(
        "INSERT INTO withdrawals (round_id, slot, erasure) VALUES (?, ?, 1)",
        ((number, slot) for slot in sorted(gone)),
    )
    connection.execute("COMMIT")


if __name__ == "__main__":
    main()
