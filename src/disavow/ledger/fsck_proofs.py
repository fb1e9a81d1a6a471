"""The part of fsck that checks the folder of proofs: each holds, and is that of its request in this run's log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.domain import RequestState
from disavow.errors import IntegrityError, VerificationError
from disavow.ledger import log
from disavow.ledger.findings import Checked, Finding
from disavow.ledger.proofs import PROOFS, KeptProof, ProofStore
from disavow.ledger.requests import RESTORED
from disavow.ledger.schema import erasures, requests
from disavow.ledger.schema import log as log_table
from disavow.proof.envelope import Envelope, seal
from disavow.proof.leaves import KeyLeaf, RunLeaf
from disavow.proof.merkle import root_of
from disavow.proof.notes import Checkpoint, Signer, origin_of
from disavow.proof.statement import Statement, decode_statement, leaf_hashes
from disavow.proof.verify import TrustedKey, VerificationInputs, verify


def check_proofs(checked: Checked) -> Iterator[Finding]:
    """Everything that is wrong with the proofs; no reason, though, not to honour another request."""
    store = ProofStore(checked.directory)
    for name in store.strangers():
        yield Finding(f"{PROOFS}/{name}", "is no proof of a run; no command reads or removes it", spare=True)
    for name in store.halves():
        what = "was left half-written; the next command that writes to the run removes it"
        yield Finding(f"{PROOFS}/{name}", what, fault=False)
    kept = store.kept()
    for proof in kept:
        try:
            _check(checked, store, proof)
        except (VerificationError, IntegrityError) as error:
            yield Finding(f"{PROOFS}/{proof.name}", str(error), spare=True)
    yield from _missing(checked, {proof.request for proof in kept if not proof.purged})
    yield from _missing_second(checked, store, {proof.request for proof in kept if proof.purged})


def _missing(checked: Checked, proved: set[int]) -> Iterator[Finding]:
    done = (RequestState.ANSWERED.value,)
    query = sa.select(requests.c.id).join(erasures).where(erasures.c.state.in_(done)).order_by(requests.c.id)
    query = query.where(requests.c.note != RESTORED)  # of nobody who could be named: there is nothing to prove
    for request in checked.connection.execute(query).scalars():
        if request not in proved:
            what = "has no proof in the run: it was removed, or the run is a copy without proofs"
            yield Finding(f"request {request}", what, fault=False)


def _missing_second(checked: Checked, store: ProofStore, proved: set[int]) -> Iterator[Finding]:
    query = sa.select(requests.c.id).where(requests.c.purged_at.is_not(None), requests.c.note != RESTORED)
    for request in checked.connection.execute(query.order_by(requests.c.id)).scalars():
        if request not in proved and not _says_purged(store, request):
            yield Finding(f"request {request}", "is purged, and has no second proof in the run", fault=False)


def _says_purged(store: ProofStore, request: int) -> bool:
    """Whether the first proof of a request says already that none of its rounds stands, or does not show any."""
    for signed in (True, False):
        if (data := store.read(request, signed=signed)) is not None:
            try:
                said = decode_statement(Envelope.decode(data).statement if signed else data).predicate
            except (VerificationError, IntegrityError):
                return True  # what is wrong with it is said elsewhere
            return not said.clusters
    return True  # that it is missing is said elsewhere


def _check(checked: Checked, store: ProofStore, proof: KeptProof) -> None:
    """Raise what is wrong with one proof."""
    data = store.read(proof.request, signed=proof.signed, purged=proof.purged)
    if data is None:
        return  # a run at work has taken it away
    statement = decode_statement(Envelope.decode(data).statement if proof.signed else data)
    said, hashes = statement.predicate, leaf_hashes(statement)
    with checked.connection.engine.connect() as fresh:  # it may be younger than what fsck looks at
        keys, logged, place = log.keys_of(fresh), log.hashes_of(fresh), _place(fresh, proof.request)
    if not isinstance(statement, Statement) or not hashes or hashes != logged[: len(hashes)]:
        raise IntegrityError("is about another log than this run's")
    if place != (said.withdrawal, said.request):
        raise IntegrityError(f"is not about request {proof.request}")
    if proof.purged and said.clusters:
        raise IntegrityError("is a second proof, and shows rounds that stand")
    head = Checkpoint(origin_of(checked.run_id), len(hashes), root_of(hashes))
    if not proof.signed and said.checkpoint != head.body:
        raise IntegrityError("has another head than that of its leaves")
    if proof.signed and any(isinstance(leaf, RunLeaf | KeyLeaf) and leaf.key for leaf in said.leaves):
        verify(VerificationInputs(data, [TrustedKey(key) for key in keys]))
        return
    # no key of this log has signed, at most a later one: what it says is examined under one that is made up
    signer = Signer("fsck", Ed25519PrivateKey.generate())
    signed = replace(statement, predicate=replace(statement.predicate, checkpoint=head.signed(signer)))
    sealed = seal(signed.encode(), signer, packed=True)
    verify(VerificationInputs(sealed, [TrustedKey(signer.public)]))


def _place(connection: sa.Connection, request: int) -> tuple[int, int]:
    """Which leaf of the log withdraws the client of a request, and which of the requests in it this is."""
    erasure = connection.execute(sa.select(requests.c.erasure).where(requests.c.id == request)).scalar()
    if erasure is None:
        raise IntegrityError(f"there is no request {request} that was answered")
    together = sa.select(requests.c.id).where(requests.c.erasure == erasure).order_by(requests.c.id)
    first = sa.select(sa.func.min(log_table.c.position)).where(log_table.c.erasure == erasure)
    return connection.execute(first).scalar_one(), list(connection.execute(together).scalars()).index(request)
