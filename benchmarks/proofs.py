"""Proofs: how large they are, how long they take to make and to verify.

    python -m benchmarks.proofs

Fifty rounds of fifty clients from a real ledger, with a leaver whose clusters have lost nobody before, and the same
after five withdrawals; a thousand rounds of ten thousand participants (k = 10) from a log made up for the purpose,
whose clusters hold random commitments. Seconds are medians of seven.
"""

from __future__ import annotations

import hashlib
import json
import secrets
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
from disavow.erasure.prove import OpenedProof, Proof, prove_what_if
from disavow.ledger import Ledger
from disavow.proof import leaves
from disavow.proof.bounds import bounds_of, chance_drawn, largest_displacement, total_ratio
from disavow.proof.commitment import commit, commit_client
from disavow.proof.merkle import path_to, root_of
from disavow.proof.noise import logged_tau
from disavow.proof.notes import Checkpoint, Signer, origin_of
from disavow.proof.opening import OpenedSlot, Opening
from disavow.proof.statement import (
    LeaverRounds,
    Predicate,
    ShownCluster,
    StatedVerdict,
    Statement,
    Times,
    TotalBounds,
    WithdrawnSlot,
)
from disavow.proof.validation import day_of, write_figure
from disavow.proof.verify import Asked, TrustedKey, verify
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Updates

TIMES = 7
LEAVERS = 5
MOMENT = "2026-01-01T00:00:00.000000+00:00"


def main() -> None:
    """Print one line of JSON for each."""
    signer = Signer("bench", Ed25519PrivateKey.generate())
    for line in from_a_ledger(signer, rounds=50, clients=50):
        print(json.dumps(line), flush=True)
    print(json.dumps(made_up(signer, rounds=1000, participants=10_000, k=10)), flush=True)


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
                answer_without_training(ledger, options, Retrain(), openings=Path(folder) / "openings")
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
    asked = Asked(data, [TrustedKey(signer.public)], opening=opening.encode(), what_if=what_if)
    verified, _ = _timed(lambda: verify(asked))
    return {
        "what": what,
        "rounds": rounds,
        "participants": participants,
        "kilobytes": round(len(data) / 1000, 1),
        "made_seconds": made,
        "verified_seconds": verified,
    }


def made_up(signer: Signer, *, rounds: int, participants: int, k: int) -> dict[str, Any]:
    """The proof of a deniable erasure from a log that was never trained."""
    run_id, client, count = secrets.token_hex(16), "somebody", participants // k
    policy = leaves.LoggedPolicy(
        k=k, x=3, representatives=1, delta=None, relative_delta=None, odds=None, clustering="mdav", sticky=True,
        metric="l2", noise="paper", distribution="gaussian", sigma=0.02, statistics="mean", clip=None, tau=None,
        draws="fresh", mechanism="retrain",
    )  # fmt: skip
    model = hashlib.sha256(b"model 0").hexdigest()
    log: list[leaves.Leaf] = [
        leaves.RunLeaf(run=run_id, created_at=MOMENT, initial_model=model, policy=policy, key=signer.public)
    ]
    shown, opened, bounds, values = [], [], [], []
    for number in range(1, rounds + 1):
        position = secrets.randbelow(count)
        first = position * k
        slot = first + secrets.randbelow(k)
        salt, update = secrets.token_bytes(32), secrets.token_bytes(32)
        commitments = [secrets.token_bytes(32) for _ in range(k)]
        commitments[slot - first] = commit(
            run_id=run_id, round_number=number, salt=salt, client=client, update_digest=update
        )
        cluster = leaves.ClusterLeaf(
            position=position,
            first=first,
            size=k,
            weight=1 / count,
            spread=0.5,
            slots=leaves.joined(commitments),
        )
        hashes = [secrets.token_bytes(32) for _ in range(count)]
        hashes[position] = cluster.hash
        tau = logged_tau(policy, [(1 / count, 0.5)] * count)
        after = hashlib.sha256(f"model {number}".encode()).hexdigest()
        log.append(
            leaves.RoundLeaf(
                number=number,
                attempt=1,
                before=model,
                after=after,
                delta=0.5,
                update_norm=0.5,
                pairs_within=1.0,
                tau=tau,
                participants=participants,
                clusters=count,
                root=root_of(hashes),
                at=MOMENT,
            )
        )
        hidden = secrets.token_bytes(32)
        entry = leaves.withdrawn_entry(position, leaves.withdrawn_inner(hidden, slot))
        values.append(leaves.sized(1, entry))
        bounds.append(bounds_of(weight=1 / count, spread=0.5, tau=tau, representatives=1))
        odds = bounds[-1].log10_odds
        gone = WithdrawnSlot(leaf=rounds + 1, position=position, slot=slot, salt=hidden, inner=None)
        shown.append(
            ShownCluster(
                leaf=number,
                position=position,
                first=first,
                size=k,
                weight=1 / count,
                spread=0.5,
                path=tuple(path_to(hashes, position)),
                slot=slot,
                slots=tuple(commitments),
                withdrawn=(gone,),
                displacement=write_figure(bounds[-1].displacement),
                log10_odds=None if odds is None else write_figure(odds),
            )
        )
        opened.append(OpenedSlot(leaf=number, slot=slot, salt=salt, update=update))
        model = after
    salts = secrets.token_bytes(32), secrets.token_bytes(32)
    request = leaves.LoggedRequest(
        asked_at=day_of(MOMENT),
        verdict="deniable",
        client=commit_client(run_id=run_id, salt=salts[0], client=client),
        rounds=leaves.commit_rounds(salts[1], list(range(1, rounds + 1))),
    )
    root = leaves.map_root(values)
    log.append(leaves.WithdrawalLeaf(requests=(request,), rounds=rounds, root=root, at=day_of(MOMENT)))
    ratio = total_ratio(bounds)
    head = Checkpoint(origin_of(run_id), len(log), root_of([leaf.hash for leaf in log]))
    predicate = Predicate(
        checkpoint=head.body,
        leaves=tuple(log),
        withdrawal=rounds + 1,
        request=0,
        rounds=LeaverRounds(salt=salts[1], superseded=()),
        maps=((),),
        clusters=tuple(shown),
        bounds=TotalBounds(
            displacement=write_figure(largest_displacement(bounds)),
            ratio=None if ratio is None else write_figure(ratio),
            drawn=write_figure(chance_drawn([k] * rounds, 1)),
        ),
        verdict=StatedVerdict(kind="deniable", start=None),
        times=Times(asked_at=MOMENT, judged_at=MOMENT, answered_at=MOMENT),
    )
    opening = Opening(run_id=run_id, client=client, salt=salts[0], rounds=tuple(opened))
    sealed = Proof(Statement.of(predicate, model=model, what_if=False), head).sealed(signer)
    return _line("made up", rounds, participants, sealed, opening, signer, None, what_if=False)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The median of several times, and what came out of the last."""
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return round(statistics.median(seconds), 4), result


if __name__ == "__main__":
    main()
