"""③ Prove: from ledger rows to a signed proof and the leaver's opening.

Made before anything is deleted, because it is made from what is about to be. The proof stays with the run and names
nobody; the opening is the leaver's alone and never lies inside the run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.domain import VerdictKind
from disavow.erasure.judge import judge
from disavow.erasure.proof_files import check_openings, default_openings, opening_path, what_if_path
from disavow.erasure.proof_size import ROUND_LEAF, ProofSizes, sealed_bytes
from disavow.erasure.reporting import OnOpening
from disavow.errors import ConfigError, IntegrityError, LedgerError, ProofTooLarge, UnknownClient, Unreadable
from disavow.ledger import Ledger, Reader, database
from disavow.ledger.files import remove_temporaries, sync_folder, write_durably
from disavow.ledger.log import not_before, time_of
from disavow.ledger.proofs import ProofStore
from disavow.ledger.requests import JudgedRequest
from disavow.ledger.withdrawals import Withdrawn
from disavow.proof.bounds import Bounds, bounds_of, chance_drawn, largest_displacement, total_ratio
from disavow.proof.commitment import close_records
from disavow.proof.envelope import LARGEST, Envelope, seal
from disavow.proof.keys import DEFAULT_NAME
from disavow.proof.leaves import RoundLeaf, show_leaves
from disavow.proof.merkle import cover_of, leaf_hash, path_to, root_of
from disavow.proof.notes import LONGEST_NAME, Checkpoint, Signer, origin_of
from disavow.proof.opening import OpenedRecords, OpenedSlot, Opening
from disavow.proof.statement import (
    ErasedRecords,
    LeaverRounds,
    Predicate,
    ShownCluster,
    StatedVerdict,
    Statement,
    Times,
    TotalBounds,
    decode_statement,
    leaf_hashes,
)
from disavow.proof.validation import write_figure
from disavow.proof.verify import TrustedKey, VerificationInputs, examine
from disavow.rounds.options import OnHead


@dataclass(frozen=True, eq=False)
class Proof:
    """A statement that only has to be signed."""

    statement: Statement
    head: Checkpoint

    def sealed(self, signer: Signer) -> bytes:
        """Sign the head and the statement; the proof as a file, without cosignatures where only these are too much.

        Args:
            signer: Who signs both.

        Raises:
            ProofTooLarge: No verifier would read it.

        """
        predicate = replace(self.statement.predicate, checkpoint=self.head.signed(signer))
        try:
            return seal(replace(self.statement, predicate=predicate).encode(), signer, packed=True)
        except ProofTooLarge:
            if predicate.cosignatures is None:
                raise
        predicate = replace(predicate, cosignatures=None)
        return seal(replace(self.statement, predicate=predicate).encode(), signer, packed=True)

    def unsigned(self) -> bytes:
        """Write the statement of a run that has no key, to be signed once there is one."""
        return self.statement.encode()


@dataclass(frozen=True, eq=False)
class OpenedProof(Proof):
    """The same, with the opening that goes with it."""

    opening: Opening


def prove_leavers(
    ledger: Ledger,
    leavers: Sequence[int],
    openings: Path,
    *,
    at: datetime,
    on_opening: OnOpening = lambda request, path: None,
) -> None:
    """Write proof and opening of clients who are about to be deleted.

    Each proof is verified first: what it is made from can be mended only while it is there. An opening goes to the
    folder that was asked for with the request, if it can be used, and else to `openings`.

    Args:
        ledger: The run.
        leavers: The clients, by their numbers.
        openings: The folder for openings.
        at: When they are answered: now.
        on_opening: Called with where each opening was written.

    Raises:
        ProofTooLarge: No verifier would read a proof; nothing was deleted.
        IntegrityError: A proof does not hold; nothing was deleted.

    """
    proofs = ProofStore(ledger.directory)
    with database.room_to_write(ledger.directory), ledger.snapshot() as snapshot:
        for request in snapshot.judged_requests_of(leavers):
            proof = prove_erasure(snapshot, request, at=at)
            opening = proof.opening.encode()
            signer = ledger.signer or _made_up()
            sealed = _sealed(proof, signer, request.number, ledger)
            _refuse_invalid(sealed, opening, signer, request.number)
            # the opening first: without it the proof would name nobody, ever
            path = _write_opening(opening, request, ledger, openings)
            if ledger.signer is not None:
                proofs.write(request.number, sealed)
            else:
                proofs.write(request.number, proof.unsigned(), signed=False)
            _remove_what_ifs(ledger, proof.opening.client, path.parent)
            on_opening(request.number, path)


def _write_opening(opening: bytes, request: JudgedRequest, ledger: Ledger, openings: Path) -> Path:
    """Write an opening to where it was asked for; beside the others where that folder is gone or closed to us."""
    wished = [Path(request.openings)] if request.openings is not None else []
    for folder in {*wished, openings, default_openings(ledger.directory)}:
        remove_temporaries(folder, re.escape(opening_path(folder, ledger.run_id, request.number).name))
    if request.openings is not None:
        wanted = Path(request.openings)
        with contextlib.suppress(ConfigError, OSError):
            path = opening_path(check_openings(wanted, ledger.directory), ledger.run_id, request.number)
            write_durably(path, opening, mode=0o600)
            return path
    if not openings.exists():
        openings.mkdir(parents=True, mode=0o700)
        sync_folder(openings.parent)
    path = opening_path(openings, ledger.run_id, request.number)
    write_durably(path, opening, mode=0o600)
    return path


def _remove_what_ifs(ledger: Ledger, client: str, openings: Path) -> None:
    """Remove openings that say what the answer would have been: they name a client who is about to be deleted."""
    for folder in {openings, default_openings(ledger.directory)}:
        path = what_if_path(folder, ledger.run_id, client)
        remove_temporaries(folder, re.escape(path.name))
        if path.exists():
            path.unlink()
            sync_folder(folder)


def _made_up() -> Signer:
    """A key for runs that have none, so that what an unsigned statement says is examined all the same. No name is
    longer: whoever signs it later, the proof is no larger.
    """
    return Signer(DEFAULT_NAME.ljust(LONGEST_NAME, "-"), Ed25519PrivateKey.generate())


def _sealed(proof: Proof, signer: Signer, request: int, ledger: Ledger) -> bytes:
    try:
        return proof.sealed(signer)
    except ProofTooLarge as reason:
        raise ProofTooLarge(
            f"request {request} cannot be proved: {reason}; nothing was deleted. A new run without the client can "
            f"take the place of {ledger.directory} (docs/erasure.md, proofs that are too large)"
        ) from None


def refuse_too_large(reader: Reader, erasure: int, *, at: datetime) -> None:
    """Refuse an erasure whose proofs no verifier would read, while its transaction can still be given up.

    Rounds that are about to be rebuilt are counted as if they were in the log.

    Args:
        reader: The ledger, inside the transaction.
        erasure: The erasure.
        at: When it is answered.

    Raises:
        ProofTooLarge: A proof would be too large.

    """
    sizes = ProofSizes.read(reader)
    for request in reader.judged_together(erasure):
        first, last = request.rollback_to, request.target
        ahead = 0 if first is None or last is None else (last - first + 1) * sealed_bytes(ROUND_LEAF)
        if sizes.of(request.client) + ahead <= LARGEST:
            continue
        try:
            found = len(prove_erasure(reader, request, at=at).sealed(_made_up()))
            if found + ahead > LARGEST:
                raise ProofTooLarge(
                    f"a proof would have {found + ahead:,} bytes or more, and a verifier reads {LARGEST:,}"
                )
        except ProofTooLarge as reason:
            raise ProofTooLarge(
                f"request {request.number} cannot be proved: {reason}; nothing was undone or deleted, and it waits "
                f"until `disavow cancel {reader.directory} CLIENT` takes it back (docs/erasure.md, proofs that are "
                "too large)"
            ) from None


def _refuse_invalid(sealed: bytes, opening: bytes, signer: Signer, request: int) -> None:
    report = examine(VerificationInputs(sealed, [TrustedKey(signer.public)], opening=opening))
    if report.failed is not None:
        raise IntegrityError(
            f"the proof of request {request} does not hold (check {report.failed.number}, {report.failed.name}: "
            f"{report.failed.detail}); nothing was deleted: `disavow fsck` says more"
        )


def prove_erasure(reader: Reader, request: JudgedRequest, *, at: datetime) -> OpenedProof:
    """Make the proof of a request that has been judged and whose client is still in the tables.

    Args:
        reader: The ledger.
        request: The request.
        at: When it is answered: now.

    Raises:
        LedgerError: The request is not in the log.

    """
    withdrawal = reader.withdrawal_positions().get(request.erasure)
    if withdrawal is None:
        raise LedgerError(f"request {request.number} is not in the log")
    shown = {slot.place for slot in reader.logged_slots(request.client)}
    superseded = [place for place in reader.positions_of_client(request.client) if place not in shown]
    start = request.rollback_to if request.verdict == VerdictKind.ROLLBACK else None
    answer = _Answer(
        verdict=StatedVerdict(kind=request.verdict, start=start),
        withdrawal=withdrawal,
        request=request.index,
        rounds=LeaverRounds(salt=request.salts.rounds, superseded=tuple(superseded)),
        times=_times(reader, withdrawal, request.asked_at, request.judged_at, time_of(at)),
    )
    opened = None
    if request.records is not None:
        opened = OpenedRecords(salt=request.salts.records, keys=tuple(sorted(request.records)))
        closed = close_records(salt=opened.salt, records=opened.keys)
        answer = replace(answer, records=ErasedRecords(count=len(opened.keys), closed=closed, word=request.word))
    return _open(reader, request.client, answer, salt=request.salts.client, records=opened)


def prove_what_if(ledger: Ledger, client: str) -> OpenedProof:
    """Prove that a client who is still in would be deniable, if it asked now.

    Args:
        ledger: The run.
        client: The client's id.

    Raises:
        UnknownClient: The run has no such client.
        LedgerError: It is not deniable now.

    """
    with ledger.snapshot() as snapshot:
        number = snapshot.numbers_of([client]).get(client)
        if number is None:
            raise UnknownClient(f"{client!r} is not a client of this run; nothing can be proved about it")
        verdict = judge(snapshot.evidence([number]), snapshot.policy)
        if verdict.kind is VerdictKind.ROLLBACK:
            raise LedgerError(
                f"{client!r} is not deniable now: without it the criterion (survivors, width, odds) does not hold "
                f"in round {verdict.round}, and erasing it would roll back to there; there is nothing to prove"
            )
        present = bool(snapshot.logged_slots(number))
        kind = VerdictKind.DENIABLE if present else VerdictKind.NEVER_PRESENT
        return _open(snapshot, number, _Answer(verdict=StatedVerdict(kind=kind.value, start=None)))


def sign_late(ledger: Ledger, statement: bytes, signer: Signer) -> bytes:
    """Seal a statement that was made when the run had no key, if it is still that of this run's log.

    Args:
        ledger: The run.
        statement: The statement as it was kept.
        signer: Who signs it now.

    Raises:
        IntegrityError: It is not one of this run, or does not hold.

    """
    kept = _decode_kept(statement, "the unsigned statement is not one that can be read; it is not signed")
    hashes = leaf_hashes(kept)
    with ledger.snapshot() as snapshot:
        logged = snapshot.log_hashes()
    if not hashes or hashes != logged[: len(hashes)] or kept.what_if:
        raise IntegrityError("the unsigned statement is not one of this run; it is not signed")
    sealed = Proof(kept, Checkpoint(origin_of(ledger.run_id), len(hashes), root_of(hashes))).sealed(signer)
    report = examine(VerificationInputs(sealed, [TrustedKey(signer.public)]))
    if report.failed is not None:
        raise IntegrityError(f"the unsigned statement does not hold ({report.failed.detail}); it is not signed")
    return sealed


def renew(ledger: Ledger, statement: bytes, signer: Signer, *, word: bytes | None = None) -> bytes:
    """Prove an answered request again, for the present head and the model served now.

    What a proof needs of what was deleted with the leaver is in the statement that was kept: its slots, and what
    opens the commitment to its rounds. All else is in the log and in permanent tables: rounds, and who was taken
    out of them since. The opening stays as it is; rounds that were superseded since are told as such.

    Args:
        ledger: The run.
        statement: The statement of the proof that was kept.
        signer: Who signs the new one.
        word: The digest of the client's word that it removed the records, where it has given one.

    Raises:
        IntegrityError: What was kept is not of this run, or the renewed proof does not hold.
        LedgerError: A rebuild is unfinished.
        ProofTooLarge: No verifier would read the renewed proof.

    """
    proof = _renewed(ledger, statement, word)
    try:
        sealed = proof.sealed(signer)
    except ProofTooLarge as reason:
        raise ProofTooLarge(
            f"the proof cannot be renewed: {reason}; the one that was kept stays good, as of its head"
        ) from None
    report = examine(VerificationInputs(sealed, [TrustedKey(signer.public)]))
    if report.failed is not None:
        raise IntegrityError(f"the renewed proof does not hold ({report.failed.detail}); it is not written")
    return sealed


def _renewed(ledger: Ledger, statement: bytes, word: bytes | None) -> Proof:
    """The proof of the present head, made from a statement that was kept."""
    kept = _decode_kept(statement, "the proof that was kept is not one that can be read; it is not renewed")
    said, hashes = kept.predicate, leaf_hashes(kept)
    with ledger.snapshot() as snapshot:
        known = bool(hashes) and hashes == snapshot.log_hashes()[: len(hashes)]
        if not known or kept.what_if or said.rounds is None:
            raise IntegrityError("the proof that was kept is not one of this run; it is not renewed")
        if snapshot.rebuilding() is not None:
            raise LedgerError(
                "a rebuild is unfinished, and no model is served that a proof could be of; renew it later"
            )
        rows = snapshot.standing_positions()
        gone = [each.leaf for each in said.clusters if each.leaf not in rows]
        rounds = replace(said.rounds, superseded=tuple(sorted([*said.rounds.superseded, *gone])))
        records = said.records if said.records is None else replace(said.records, word=word or said.records.word)
        answer = _Answer(said.verdict, said.withdrawal, said.request, rounds, said.times, records)
        standing = [(each.leaf, rows[each.leaf], each.slot) for each in said.clusters if each.leaf in rows]
        return _prove(snapshot, standing, answer)


def prove_purged(
    ledger: Ledger, *, at: datetime, on_head: OnHead = lambda ledger, proving: None
) -> tuple[int, ...]:
    """Write the second proof of each request none of whose rounds stands any more, and note it as purged.

    The first proof is renewed: it says then which purge or rollback undid the last round. One that says so already
    is enough. What cannot be renewed, because the first proof was removed or damaged or is too large, is no reason
    to keep others waiting: it is purged all the same, and fsck tells that its proof is missing.

    Args:
        ledger: The run.
        at: When: now.
        on_head: Called before a proof is made.

    Returns:
        The numbers of these requests.

    """
    numbers, proofs = ledger.to_be_purged(), ProofStore(ledger.directory)
    if numbers:
        on_head(ledger, True)
    for number in numbers:
        statement = _kept_statement(proofs, number)
        if statement is None:
            continue
        with contextlib.suppress(IntegrityError, ProofTooLarge), database.room_to_write(ledger.directory):
            if _decode_kept(statement, "the first proof is not one that can be read").predicate.clusters:
                _write_second(ledger, proofs, number, statement)
    if numbers:
        with ledger.transaction() as transaction:
            transaction.note_purged(numbers, at=at)
    return numbers


def _write_second(ledger: Ledger, proofs: ProofStore, number: int, statement: bytes) -> None:
    """Write the second proof of a request; without a key, the statement, examined under one that is made up."""
    word = ledger.word_of(number)
    if ledger.signer is not None:
        proofs.write(number, renew(ledger, statement, ledger.signer, word=word), purged=True)
    else:
        renew(ledger, statement, _made_up(), word=word)
        proofs.write(number, _renewed(ledger, statement, word).unsigned(), signed=False, purged=True)


def _kept_statement(proofs: ProofStore, number: int) -> bytes | None:
    """The statement of the first proof of a request; None where there is none, or none that can be read."""
    if (sealed := proofs.read(number)) is None:
        return proofs.read(number, signed=False)
    try:
        return Envelope.decode(sealed).statement
    except Unreadable:
        return None


def _decode_kept(statement: bytes, refusal: str) -> Statement:
    """Read a statement that the run kept: where that cannot be read, it is the run that is damaged."""
    try:
        found = decode_statement(statement)
    except Unreadable as error:
        raise IntegrityError(f"{refusal}: {error}") from None
    if not isinstance(found, Statement):
        raise IntegrityError(f"{refusal}: it is of an older version than this run's log")
    return found


# -- from rows to a predicate --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """What a predicate says of one request; of a what-if, only the verdict."""

    verdict: StatedVerdict
    withdrawal: int | None = None
    request: int | None = None
    rounds: LeaverRounds | None = None
    times: Times | None = None
    records: ErasedRecords | None = None


def _times(reader: Reader, withdrawal: int, asked_at: str, judged_at: str, answered_at: str) -> Times:
    """The times of a request. They never go back, whatever the clocks say, and lie on the days of the log."""
    judged_at = not_before(max(asked_at, judged_at), reader.day_of_leaf(withdrawal))
    return Times(asked_at=asked_at, judged_at=judged_at, answered_at=max(judged_at, answered_at))


def _open(
    reader: Reader,
    client: int,
    answer: _Answer,
    *,
    salt: bytes | None = None,
    records: OpenedRecords | None = None,
) -> OpenedProof:
    """The proof about a client who is still in the tables, with its opening; `salt` is that of its request, and
    `records` opens those that it names.
    """
    mine = reader.logged_slots(client)
    proof = _prove(reader, [(each.place, each.round_id, each.slot) for each in mine], answer)
    [name] = reader.names_of([client])
    opened = tuple(
        OpenedSlot(leaf=each.place, slot=each.slot, salt=each.salt, update=each.update_digest) for each in mine
    )
    opening = Opening(run_id=reader.run_id, client=name, salt=salt, rounds=opened, records=records)
    return OpenedProof(proof.statement, proof.head, opening)


def _prove(reader: Reader, standing: Sequence[tuple[int, int, int]], answer: _Answer) -> Proof:
    """The proof that shows these slots: the place of the round's leaf, the round's row, the slot."""
    head, gone = reader.log_head(), _withdrawn_with(reader, answer.withdrawal)
    entries = {(each.place, each.slot): index for index, each in enumerate(gone)}
    opened = [_open_cluster(reader, place, round_id, slot, gone, entries) for place, round_id, slot in standing]
    bounds = [each for _, each in opened]
    ratio, sizes = total_ratio(bounds), (cluster.size for cluster, _ in opened)
    shown = {place for place, *_ in standing} | ({answer.withdrawal} if answer.withdrawal is not None else set())
    own = [cluster.entry for cluster, _ in opened if cluster.entry is not None]
    predicate = Predicate(
        checkpoint=head.body,
        leaves=show_leaves(reader.closed_leaves(shown)),
        withdrawal=answer.withdrawal,
        request=answer.request,
        rounds=answer.rounds,
        cover=b"".join(cover_of([leaf_hash(each.inner) for each in gone], own)),
        clusters=tuple(cluster for cluster, _ in opened),
        bounds=TotalBounds(
            displacement=write_figure(largest_displacement(bounds)),
            ratio=None if ratio is None else write_figure(ratio),
            drawn=write_figure(chance_drawn(sizes, reader.policy.representatives)),
        ),
        verdict=answer.verdict,
        times=answer.times,
        records=answer.records,
        purge=None if standing else _purge_of(reader, answer),
        cosignatures=_cosignatures(reader, head),
    )
    model = reader.digest_before(reader.last_round + 1)
    return Proof(Statement.of(predicate, model=model, what_if=answer.withdrawal is None), head)


def _cosignatures(reader: Reader, head: Checkpoint) -> tuple[str, ...] | None:
    """What witnesses have cosigned of the head; None where none has."""
    found = reader.cosigned_head()
    return tuple(found.lines.values()) or None if found is not None and found.size == head.size else None


def _purge_of(reader: Reader, answer: _Answer) -> int | None:
    """The place of the leaf that undid the last round of a leaver none of whose rounds stands.

    None where it was in none, or where they had been undone before it left. Nor is it out of the model while a
    round stands that was rebuilt approximately.
    """
    if answer.rounds is None or answer.withdrawal is None or reader.rebuilt_stands():
        return None
    place = reader.undone_at(answer.rounds.superseded)
    return place if place is not None and place > answer.withdrawal else None


def _withdrawn_with(reader: Reader, withdrawal: int | None) -> list[Withdrawn]:
    """All slots that were withdrawn together with the leaver's, in the order of the leaf; none for a what-if."""
    by_place = {place: erasure for erasure, place in reader.withdrawal_positions().items()}
    return [] if withdrawal is None else reader.withdrawn_by(by_place[withdrawal])


def _open_cluster(
    reader: Reader,
    place: int,
    round_id: int,
    slot: int,
    gone: Sequence[Withdrawn],
    entries: Mapping[tuple[int, int], int],
) -> tuple[ShownCluster, Bounds]:
    """Open the leaver's cluster in one round, with what leads to the roots; the cluster, and its bounds.

    `gone` are the slots of the leaver's withdrawal, and `entries` their numbers by place and slot.
    """
    logged, stored = reader.logged_round(place), reader.cluster_at(round_id, slot)
    if not isinstance(logged.leaf, RoundLeaf):
        raise IntegrityError(f"leaf {place} of the log is of a rebuilt round, which has no clusters")
    bounds = bounds_of(
        weight=stored.weight,
        spread=stored.spread,
        tau=logged.leaf.tau,
        representatives=reader.policy.representatives,
    )
    odds, entry = bounds.log10_odds, entries.get((place, slot))
    cluster = ShownCluster(
        leaf=place,
        position=stored.position,
        first=stored.first_slot,
        size=stored.size,
        weight=stored.weight,
        spread=stored.spread,
        path=tuple(path_to(logged.cluster_hashes, stored.position)),
        slot=slot,
        slots=tuple(stored.commitments),
        entry=entry,
        salt=None if entry is None else gone[entry].salt,
        displacement=write_figure(bounds.displacement),
        log10_odds=None if odds is None else write_figure(odds),
    )
    return cluster, bounds
