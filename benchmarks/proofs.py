"""Proofs: how large they are, how long they take to make and to verify.

    python -m benchmarks.proofs

Fifty rounds of fifty clients from a real ledger, with a leaver whose clusters have lost nobody before, and the same
after five withdrawals. Seconds are of processor time, medians of seven. After thousands of rounds:
`benchmarks.proof_growth`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config
from disavow.domain import Layout, TensorSpec
from disavow.erasure.erase import answer_without_training
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.prove import OpenedProof, prove_what_if
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger
from disavow.proof.notes import Signer
from disavow.proof.opening import Opening
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Updates

TIMES = 7
LEAVERS = 5


def main() -> None:
    """Print one line of JSON for each."""
    signer = Signer("bench", Ed25519PrivateKey.generate())
    for line in from_a_ledger(signer, rounds=50, clients=50):
        print(json.dumps(line), flush=True)


def from_a_ledger(signer: Signer, *, rounds: int, clients: int) -> Iterator[dict[str, Any]]:
    """A what-if from a real ledger: the same clusters, paths and bounds as an erasure."""
    values = {"data": {"clients": clients}, "clustering": {"k": 10}, "deniability": {"x": 3}}
    layout = Layout((TensorSpec("weight", (1000,)),))
    names = [f"client-{i:02d}" for i in range(clients)]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(
            Path(folder) / "run",
            policy=config.from_values(values, source="benchmark").policy,
            layout=layout,
            initial=torch.zeros(layout.size).numpy(),
            clients=names,
            config="",
            created_by="benchmark",
            at=now(),
            signer=signer,
            keys=Path(folder) / "keys",
        )
        with ledger:
            options = RoundOptions(seed=1)
            for _ in range(rounds):
                opening, taking_part = open_round(ledger, options)
                updates = torch.randn(clients, layout.size)
                close_round(ledger, opening, Updates(taking_part, (10,) * clients, updates), options)

            def make() -> tuple[bytes, OpenedProof]:
                proof = prove_what_if(ledger, names[0])
                return proof.sealed(signer), proof

            made, (data, proof) = _timed(make)
            yield _line("ledger", rounds, clients, data, proof.opening, signer, made, what_if=True)
            for name in names[1 : LEAVERS + 1]:
                ledger.place_requests([name], at=now())
                answer_without_training(ledger, options, Retrain(), Reporting(openings=Path(folder) / "openings"))
            made, (data, proof) = _timed(make)
            what = f"ledger, after {LEAVERS} withdrawals"
            yield _line(what, rounds, clients, data, proof.opening, signer, made, what_if=True)


def _line(
    what: str,
    rounds: int,
    participants: int,
    data: bytes,
    opening: Opening,
    signer: Signer,
    made: float | None,
    *,
    what_if: bool,
) -> dict[str, Any]:
    inputs = VerificationInputs(data, [TrustedKey(signer.public)], opening=opening.encode(), what_if=what_if)
    verified, _ = _timed(lambda: verify(inputs))
    return {
        "what": what,
        "rounds": rounds,
        "participants": participants,
        "kilobytes": round(len(data) / 1000, 1),
        "made_seconds": made,
        "verified_seconds": verified,
    }


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The median of several times, and what came out of the last."""
    seconds = []
    for _ in range(TIMES):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return round(statistics.median(seconds), 4), result


if __name__ == "__main__":
    main()
