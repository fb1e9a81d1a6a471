"""Runs with a signing key, and what their proofs say."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config, runs
from disavow.data import client_ids
from disavow.erasure.judge import judge
from disavow.erasure.proof_files import default_openings, opening_path, proof_path, unsigned_path
from disavow.erasure.prove import prove_what_if, sign_late
from disavow.erasure.receipts import receipts
from disavow.errors import LedgerError
from disavow.federation import Federation
from disavow.ledger import Ledger, log
from disavow.ledger.keys import default_folder
from disavow.proof.notes import Signer
from disavow.proof.verify import Report, TrustedKey, VerificationInputs, verify
from tests.erasure.mechanisms.contract import (
    LAYOUT,
    ToyEngine,
    standing,
    toy_settings,
)
from tests.rounds.builders import MOMENT

SERVER = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
SUCCESSOR = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(b"s" * 32))

CLUSTER: dict[str, Any] = {"clustering": {"sticky": False}, "deniability": {"x": 2}}
TWO_DRAWN: dict[str, Any] = {"clustering": {"sticky": False, "representatives": 2}, "deniability": {"x": 1}}
DRAWN = pytest.mark.parametrize("changed", [CLUSTER, TWO_DRAWN], ids=["one drawn", "two drawn"])


def start(directory: Path, signer: Signer | None = SERVER, *, number: int = 9, **changed: Any) -> Federation:
    settings = toy_settings(number, **changed)
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=LAYOUT,
        initial=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        clients=client_ids(number),
        config=config.to_toml(settings),
        created_by="tests",
        at=MOMENT,
        signer=signer,
    )
    return assembled(ledger)


def trained(directory: Path, signer: Signer | None = SERVER, *, number: int = 9, **changed: Any) -> Federation:
    run = start(directory, signer, number=number, **changed)
    run.train()
    return run


def reopened(directory: Path, signer: Signer | None = SERVER, keys: Path | None = None) -> Federation:
    return assembled(Ledger.open(directory, write=True, signer=signer, keys=keys))


def assembled(ledger: Ledger) -> Federation:
    settings = runs.settings_of(ledger.directory)
    return Federation(ledger.directory, settings, ledger, default_folder(), own_engine=ToyEngine(settings.seed))


def trust(*signers: Signer) -> list[TrustedKey]:
    return [TrustedKey(signer.public) for signer in signers or (SERVER,)]


def opening_of(run: Federation | Path, request: int) -> bytes:
    directory = run if isinstance(run, Path) else run.ledger.directory
    with Ledger.open(directory) as ledger:
        return opening_path(default_openings(directory), ledger.run_id, request).read_bytes()


def signed_late(run: Federation, request: int) -> bytes:
    return sign_late(run.ledger, unsigned_path(run.ledger.directory, request).read_bytes(), SERVER)


def proof_of(run: Federation | Path, request: int) -> bytes:
    return proof_path(run if isinstance(run, Path) else run.ledger.directory, request).read_bytes()


def held(run: Federation | Path, request: int, client: str, **more: Any) -> Report:
    """The report of a request's proof, which must hold and name this client."""
    if "checkpoint" in more:
        more["checkpoint"] = more["checkpoint"].encode()
    inputs = VerificationInputs(
        proof=proof_of(run, request),
        opening=opening_of(run, request),
        **{"trusted": trust(), **more},
    )
    report = verify(inputs)
    assert report.opening is not None
    assert report.opening.client == client
    return report


def received(run: Federation, client: str) -> list[bytes]:
    return [data for _, data in receipts(run.ledger, client, run.ledger.signer)]


def predicate_of(report: Report) -> dict[str, Any]:
    assert report.statement is not None
    return report.statement.predicate.to_json()


def served(run: Federation) -> str:
    rounds = standing(run.ledger)
    return rounds[-1].after if rounds else run.ledger.initial_model


def deniable_client(run: Federation) -> str:
    for client in run.ledger.clients():
        try:
            prove_what_if(run.ledger, client)
        except LedgerError:
            continue
        return client
    raise AssertionError("nobody is deniable")


def pair_that_breaks(run: Federation) -> tuple[str, str]:
    """Two who cannot both leave without a rollback, not to round 1 if there are such."""
    policy = run.ledger.policy
    found: dict[int, tuple[str, str]] = {}
    for pair in combinations(run.ledger.clients(), 2):
        verdict = judge(run.ledger.evidence(list(run.ledger.numbers_of(pair).values())), policy)
        found.setdefault(verdict.round or 0, pair)
    return next(pair for first, pair in sorted(found.items(), reverse=True) if first)


def detail(report: Report, name: str) -> str:
    [found] = [result.detail for result in report.results if result.name == name]
    return found


def log_size(run: Federation) -> int:
    with run.ledger._connect() as connection:
        return log.head_size(connection)
