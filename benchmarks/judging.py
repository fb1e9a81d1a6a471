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
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from disavow.config import from_values
from disavow.domain import Layout, TensorSpec
from disavow.erasure.judge import judge
from disavow.ledger import Ledger
from disavow.ledger.copying import run_id_of
from disavow.ledger.keyring import Keyring
from disavow.ledger.pseudonyms import RoundName, seal_member, token
from disavow.rounds.options import now

PARTICIPANTS = 10_000
K, X = 10, 3
REQUESTS = 300
LEFT_BEFORE = 100


def main() -> None:
    """Build each ledger, judge many requests on it, throw it away."""
    for clients, rounds in ((10_000, 10), (100_000, 100), (1_000_000, 1_000), (10_000, 100)):
        with tempfile.TemporaryDirectory() as folder:
            directory, keys = Path(folder) / "run", Path(folder) / "keys"
            _build(directory, keys, clients, rounds)
            print(json.dumps(_measure(directory, keys, clients, rounds)), flush=True)


def _measure(directory: Path, keys: Path, clients: int, rounds: int) -> dict[str, object]:
    chosen = [_id(client) for client in random.Random(1).sample(range(clients), REQUESTS)]
    milliseconds = []
    with Ledger.open(directory, keys=keys) as ledger, ledger.snapshot() as snapshot:
        for client in chosen:
            start = time.perf_counter()
            judge(snapshot.evidence(snapshot.numbers_to_judge([client])), snapshot.policy)
            milliseconds.append(1000 * (time.perf_counter() - start))
    return {
        "clients": clients,
        "rounds": rounds,
        "own_rounds": PARTICIPANTS * rounds // clients,
        "median_ms": float(np.median(milliseconds)),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "ledger_gb": (directory / "ledger.sqlite3").stat().st_size / 1e9,
    }


def _id(client: int) -> str:
    return f"client-{client:07d}"


def _build(directory: Path, keys: Path, clients: int, rounds: int) -> None:
    """A ledger and its keyring, filled in bulk: training a million clients would take a while."""
    values = {"data": {"clients": 20}, "clustering": {"k": K}, "deniability": {"x": X}}
    settings = from_values(values, source="benchmark")
    Ledger.create(
        directory,
        policy=settings.policy,
        layout=Layout((TensorSpec("weight", (1,)),)),
        initial=np.zeros(1, dtype=np.float32),
        clients=map(_id, range(clients)),
        config="",
        created_by="benchmark",
        at=now(),
        keys=keys,
    ).close()
    keyring = Keyring(keys, run_id_of(directory))
    known = [client.at(1) for client in keyring.present().values()]
    keyring.close()
    generator = np.random.default_rng(1)
    with closing(sqlite3.connect(directory / "ledger.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        [(digest,)] = connection.execute("SELECT digest FROM models")
        connection.execute(
            "INSERT INTO erasures (state, rounds_before, mechanism, opened_at) VALUES ('answered', 0, '', '')"
        )
        queue = np.empty(0, dtype=np.int64)
        for number in range(1, rounds + 1):
            if len(queue) < PARTICIPANTS:
                queue = np.concatenate([queue, generator.permutation(clients)])
            taking, queue = queue[:PARTICIPANTS], queue[PARTICIPANTS:]
            where = RoundName(keyring.run_id, number, 1, generator.bytes(16))
            _fill(connection, where, [known[client] for client in taking.tolist()], digest, generator)


def _fill(
    connection: sqlite3.Connection,
    where: RoundName,
    taking: Sequence[bytes],
    digest: str,
    generator: np.random.Generator,
) -> None:
    """Insert a round in which the clients with these keys take part."""
    number = where.number
    connection.execute("BEGIN")
    connection.execute(
        "INSERT INTO rounds (id, number, attempt, before, after, delta, update_norm, pairs_within, tau,"
        " participants, clusters, digest, recorded_at, epoch, nonce, standing, seconds)"
        " VALUES (?, ?, 1, ?, ?, 1.0, 1.0, 1.0, 1.0, ?, ?, x'00', '', 1, ?, 1, 1.0)",
        (number, number, digest, digest, PARTICIPANTS, PARTICIPANTS // K, where.nonce),
    )
    starts, commitments = range(0, PARTICIPANTS, K), generator.bytes(32 * PARTICIPANTS)
    connection.executemany(
        "INSERT INTO clusters (round_id, position, first_slot, size, capacity, weight, spread)"
        " VALUES (?, ?, ?, ?, ?, ?, 1.0)",
        ((number, i, start, K, K, K / PARTICIPANTS) for i, start in enumerate(starts)),
    )
    connection.executemany(
        "INSERT INTO slots (round_id, slot, commitment) VALUES (?, ?, ?)",
        ((number, slot, commitments[32 * slot : 32 * slot + 32]) for slot in range(PARTICIPANTS)),
    )
    noise = generator.bytes(32 * PARTICIPANTS)
    tokens = [(token(key, where), key) for key in taking]
    filled = [member for start in starts for member in sorted(tokens[start : start + K])]
    connection.executemany(
        "INSERT INTO memberships (round_id, slot, token, sealed) VALUES (?, ?, ?, ?)",
        (
            (
                number,
                slot,
                name,
                seal_member(key, where, slot, samples=60, update_digest=noise[32 * slot : 32 * slot + 32]),
            )
            for slot, (name, key) in enumerate(filled)
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
