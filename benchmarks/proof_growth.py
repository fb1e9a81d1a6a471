"""Proofs after many rounds and many withdrawals: how large they are, and what they cost to make and to verify.

    python -m benchmarks proof_growth
    python -m benchmarks.proof_growth 1000 300

Recorded through the real ledger: models of eight parameters, k = 10, x = 3, 40 clients in each round, four times as
many clients as will leave. After the last round one client after another leaves, each deniable. The figures are of
the proof of the last of them; `made_seconds` is its renewal, which makes it and verifies it once. Seconds are of
processor time, medians of three.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config
from disavow.domain import ErasureRequest, Layout, TensorSpec, VerdictKind
from disavow.erasure.erase import answer_without_training
from disavow.erasure.judge import judge
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.proof_files import opening_path, proof_path
from disavow.erasure.prove import renew
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger
from disavow.proof.envelope import Envelope
from disavow.proof.notes import Signer
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.participation import SecretOrder
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Updates

SIZES = ((1_000, 300), (10_000, 1_000))
TAKE_PART = 40
TIMES = 3
LAYOUT = Layout((TensorSpec("weight", (8,)),))


def main(sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """Print one line of JSON for each size: rounds, and withdrawals after them."""
    for rounds, withdrawals in sizes:
        print(json.dumps(grown(rounds, withdrawals)), flush=True)


def grown(rounds: int, withdrawals: int) -> dict[str, Any]:
    """What the proof of the last leaver costs."""
    signer = Signer("bench", Ed25519PrivateKey.generate())
    clients = [f"client-{i:05d}" for i in range(4 * withdrawals)]
    values = {
        "data": {"clients": len(clients)},
        "clustering": {"k": 10},
        "deniability": {"x": 3},
        "training": {"fraction": TAKE_PART / len(clients)},
    }
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(
            Path(folder) / "run",
            policy=config.from_values(values, source="benchmark").policy,
            layout=LAYOUT,
            initial=torch.zeros(LAYOUT.size).numpy(),
            clients=clients,
            config="",
            created_by="benchmark",
            at=now(),
            signer=signer,
            keys=Path(folder) / "keys",
        )
        with ledger:
            fraction = TAKE_PART / len(clients)
            options = RoundOptions(seed=1, fraction=fraction, participation=SecretOrder.of(ledger))
            recorded = time.process_time()
            for _ in range(rounds):
                opening, taking_part = open_round(ledger, options)
                updates = torch.randn(len(taking_part), LAYOUT.size)
                close_round(ledger, opening, Updates(taking_part, (10,) * len(taking_part), updates), options)
            recorded = time.process_time() - recorded
            erased = time.process_time()
            answered: list[ErasureRequest] = []
            for name in clients:
                if len(answered) == withdrawals:
                    break
                verdict = judge(ledger.evidence(list(ledger.numbers_of([name]).values())), ledger.policy)
                if verdict.kind is VerdictKind.ROLLBACK:
                    continue  # too few would be left in one of its clusters
                ledger.place_requests([name], at=now())
                answered += answer_without_training(
                    ledger, options, Retrain(), Reporting(openings=Path(folder) / "openings")
                )
            erased = time.process_time() - erased
            last = answered[-1].number
            proof = proof_path(ledger.directory, last).read_bytes()
            opened = opening_path(Path(folder) / "openings", ledger.run_id, last).read_bytes()
            inputs = VerificationInputs(proof, [TrustedKey(signer.public)], opening=opened)
            statement = Envelope.decode(proof).statement
            made, _ = _processor_time(lambda: renew(ledger, statement, signer))
            verified, report = _processor_time(lambda: verify(inputs))
    return {
        "rounds": rounds,
        "withdrawals": len(answered),
        "rounds_shown": len(report.survivors),
        "megabytes": round(len(proof) / 1e6, 2),
        "made_seconds": made,
        "verified_seconds": verified,
        "recorded_seconds_each": round(recorded / rounds, 4),
        "erased_seconds_each": round(erased / max(len(answered), 1), 3),
    }


def _processor_time(work: Callable[[], Any]) -> tuple[float, Any]:
    seconds = []
    for _ in range(TIMES):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return round(statistics.median(seconds), 3), result


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(tuple(zip(given[::2], given[1::2], strict=True)) or SIZES)
