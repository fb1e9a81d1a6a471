"""A proof that was kept is renewed for the present head."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disavow.erasure.proof_files import unsigned_path
from disavow.erasure.prove import renew
from disavow.errors import IntegrityError, LedgerError, VerificationError
from disavow.federation import Callbacks, Federation
from disavow.ledger import fsck
from disavow.proof import canonical
from disavow.proof.envelope import Envelope
from disavow.proof.notes import Signer
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from tests.erasure.mechanisms.contract import (
    ask,
    leave,
)
from tests.erasure.proving import (
    CLUSTER,
    DRAWN,
    SERVER,
    SUCCESSOR,
    deniable_client,
    held,
    log_size,
    opening_of,
    pair_that_breaks,
    predicate_of,
    proof_of,
    received,
    reopened,
    served,
    start,
    trained,
    trust,
)
from tests.refusals import refuses

# -- renewed -------------------------------------------------------------------------------------------------------


def renewed(run: Federation, request: int, signer: Signer = SERVER) -> bytes:
    kept = Envelope.decode(proof_of(run, request)).statement
    return renew(run.ledger, kept, signer)


@DRAWN
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 9))])
def test_every_proof_can_be_renewed_for_the_present_head_whatever_came_after_it(
    tmp_path: Path, changed: dict[str, Any], seed: int
) -> None:
    """Rounds, departures from the same clusters, rollbacks over the leaver's rounds; its opening stays."""
    rng, superseded = random.Random(seed), 0
    with start(tmp_path / "run", number=14, seed=seed + 30, **changed) as run:
        left: dict[int, str] = {}
        kept: dict[str, list[bytes]] = {}
        for rounds in (2, 3, 4, 4):
            replace(run, settings=run.settings.model_copy(update={"rounds": rounds})).train()
            leavers = rng.sample(run.ledger.clients(), rng.randint(1, 2))
            kept |= {client: received(run, client) for client in leavers}
            left |= {request.number: client for request, client in zip(leave(run, *leavers), leavers, strict=True)}
            for number, client in left.items():
                proof = renewed(run, number)
                inputs = VerificationInputs(
                    proof, trust(), opening_of(run, number), kept[client], model=served(run)
                )
                report = verify(inputs)
                assert report.opening is not None
                assert report.opening.client == client
                said = predicate_of(report)
                assert report.head is not None
                assert report.head.size == log_size(run)
                assert said["verdict"] == predicate_of(held(run, number, client))["verdict"]
                superseded += len(report.opening.rounds) > len(said["clusters"])
    assert superseded or seed  # or nothing of the kind came up at all
    assert fsck(tmp_path / "run") == []


def test_a_proof_at_the_present_head_is_renewed_as_it_is(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        assert renewed(run, 1) == proof_of(run, 1)


def test_rounds_that_were_rebuilt_approximately_since_do_not_keep_a_proof_from_being_renewed(
    tmp_path: Path,
) -> None:
    more: dict[str, Any] = {**CLUSTER, "mechanism": {"name": "federaser", "interval": 1}}
    with trained(tmp_path / "run", number=14, **more) as run:
        client = deniable_client(run)
        leave(run, client)
        leave(run, *pair_that_breaks(run))
        report = verify(VerificationInputs(renewed(run, 1), trust(), opening_of(run, 1), model=served(run)))
        assert report.history is not None
        assert report.history.rebuilt


def test_a_renewed_proof_is_signed_with_the_key_that_replaced_the_one_before(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
    with reopened(tmp_path / "run", SUCCESSOR) as run:
        proof = renewed(run, 1, SUCCESSOR)
        stolen = [TrustedKey(SERVER.public, revoked="2026-01-01T00:00:00.000000+00:00"), *trust(SUCCESSOR)]
        assert verify(VerificationInputs(proof, stolen, opening_of(run, 1))).named
        with pytest.raises(VerificationError):
            verify(VerificationInputs(proof_of(run, 1), stolen, opening_of(run, 1)))
        with pytest.raises(IntegrityError):
            renewed(run, 1, SERVER)  # the log names the new key


def test_a_statement_that_waits_for_a_key_can_be_renewed_too(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None, **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        leave(run, deniable_client(run))
        unsigned = unsigned_path(run.ledger.directory, 1).read_bytes()
        assert verify(VerificationInputs(renew(run.ledger, unsigned, SERVER), trust(), opening_of(run, 1))).named


def test_what_is_no_proof_of_this_run_is_not_renewed(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run, trained(tmp_path / "other", seed=8, **CLUSTER) as other:
        leave(run, deniable_client(run))
        leave(other, deniable_client(other))
        foreign = Envelope.decode(proof_of(other, 1)).statement
        with pytest.raises(IntegrityError):
            renew(run.ledger, foreign, SERVER)
        statement = json.loads(Envelope.decode(proof_of(run, 1)).statement)
        statement["predicate"]["clusters"][0]["slot"] ^= 1
        leave(run, deniable_client(run))
        with pytest.raises(IntegrityError):
            renew(run.ledger, canonical.encode(statement), SERVER)


def test_nothing_is_renewed_while_a_rebuild_is_unfinished(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        ask(run, *pair_that_breaks(run))
        refused = []

        def on_round(summary: object) -> None:
            with refuses(LedgerError, "unfinished"):
                renewed(run, 1)
            refused.append(summary)

        run.answer(Callbacks(on_round))
        assert refused
        assert verify(VerificationInputs(renewed(run, 1), trust(), opening_of(run, 1), model=served(run))).named
