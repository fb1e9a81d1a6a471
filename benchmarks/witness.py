"""What witnesses cost a round, and a proof: three of them, each a process of its own, on loopback.

    python -m benchmarks witness
    python -m benchmarks.witness 1000

Rounds are recorded through the real ledger: models of eight parameters, k = 10, 40 clients in each. After each, its
head is cosigned by three `disavow witness`, whose states lie on the same disk as the run, where `--state` would be.
`milliseconds` are from asking until all three cosignatures are in the ledger, `recorded_milliseconds` what the
round took before that; `processor_milliseconds` are of the server alone, with all its threads. Medians and 95 %
quantiles.
`proof_bytes` are those of a leaver's proof with the three cosignatures and without.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from disavow import config
from disavow.config import WitnessSettings
from disavow.cosigning import Cosigner
from disavow.domain import Layout, TensorSpec
from disavow.erasure.erase import answer_without_training
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.proof_files import proof_path
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger
from disavow.proof.envelope import Envelope, seal
from disavow.proof.keys import child_environment, generate, load_signer
from disavow.proof.statement import Statement, decode_statement
from disavow.proof.witness_keys import generate_witness_key
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.participation import SecretOrder
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Updates

ROUNDS = 300
WITNESSES = 3
TAKE_PART = 40
LAYOUT = Layout((TensorSpec("weight", (8,)),))
CLIENTS = [f"client-{i:03d}" for i in range(TAKE_PART)]


def main(rounds: int = ROUNDS) -> None:
    """Print one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), rounds)), flush=True)


def measured(folder: Path, rounds: int) -> dict[str, Any]:
    """What asking three witnesses costs, round after round, and what their lines add to a proof."""
    generate(
        folder / "keys", name="bench.example.org", passphrase=None, at=now().isoformat(timespec="microseconds")
    )
    signer = load_signer(folder / "keys")
    assert signer is not None
    values = {"data": {"clients": TAKE_PART}, "clustering": {"k": 10}, "deniability": {"x": 3}}
    ledger = Ledger.create(
        folder / "run",
        policy=config.from_values(values, source="benchmark").policy,
        layout=LAYOUT,
        initial=torch.zeros(LAYOUT.size).numpy(),
        clients=CLIENTS,
        config="",
        created_by="benchmark",
        at=now(),
        signer=signer,
        keys=folder / "keys",
    )
    recorded, waited, processor = [], [], []
    with ledger, witnesses(folder) as servers:
        cosigner = Cosigner(WitnessSettings.model_validate({"servers": servers, "timeout": 10.0}), print)
        options = RoundOptions(seed=1, participation=SecretOrder.of(ledger))
        cosigner.cosign(ledger)
        for _ in range(rounds):
            start = time.perf_counter()
            opening, taking_part = open_round(ledger, options)
            updates = torch.randn(len(taking_part), LAYOUT.size)
            close_round(ledger, opening, Updates(taking_part, (10,) * len(taking_part), updates), options)
            recorded.append(time.perf_counter() - start)
            start, spent = time.perf_counter(), time.process_time()
            cosigner.cosign(ledger)
            waited.append(time.perf_counter() - start)
            processor.append(time.process_time() - spent)
        ledger.place_requests(CLIENTS[:1], at=now())
        asking = replace(options, on_head=lambda ledger, proving: cosigner.cosign(ledger, proving=proving))
        [request] = answer_without_training(ledger, asking, Retrain(), Reporting(openings=folder / "openings"))
        head = ledger.cosigned_head()
        cosigned = 0 if head is None else len(head.lines)
        proof = proof_path(ledger.directory, request.number).read_bytes()
        statement = decode_statement(Envelope.decode(proof).statement)
        assert isinstance(statement, Statement)
        without = replace(statement, predicate=replace(statement.predicate, cosignatures=None))
        plain = seal(without.encode(), signer, packed=True)
        cosigner.close()
    return {
        "witnesses": WITNESSES,
        "rounds": rounds,
        "recorded_milliseconds": _milliseconds(statistics.median(recorded)),
        "milliseconds": _milliseconds(statistics.median(waited)),
        "milliseconds_95": _milliseconds(statistics.quantiles(waited, n=20)[-1]),
        "processor_milliseconds": _milliseconds(statistics.median(processor)),
        "processor_milliseconds_95": _milliseconds(statistics.quantiles(processor, n=20)[-1]),
        "cosignatures": cosigned,
        "proof_bytes": len(proof),
        "proof_bytes_without": len(plain),
    }


@contextmanager
def witnesses(folder: Path) -> Iterator[list[dict[str, str]]]:
    """Start witnesses, each as its command; where they are, as settings name them."""
    started: list[subprocess.Popen[str]] = []
    try:
        for number in range(WITNESSES):
            key = folder / f"witness-{number}.pem"
            generate_witness_key(key, name=f"witness-{number}.example.net", passphrase=None)
            arguments = ["--key", str(key), "--state", str(folder / f"witness-{number}"), "--port", "0", "--json"]
            log = ["--log", f"disavow/run/*={folder / 'keys' / 'signing.pub'}"]
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "disavow", "witness", *arguments, *log],
                    env=child_environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
        yield [_where(process) for process in started]
    finally:
        for process in started:
            process.terminate()
            process.communicate()


def _where(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        text += process.stdout.readline()
    started = json.loads(text)
    return {"url": started["url"], "key": started["key"]}


def _milliseconds(seconds: float) -> float:
    return round(1_000 * seconds, 2)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
