"""Keep and compare a node's own evidence: the server's key, its own id, the digests of the updates it returned, its
receipts, and the proof once it has left. What does not fit is a complaint.

Where it is kept, and when not, `evidence_store` says; in a folder, as files that `disavow verify` reads.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from disavow.domain import escaped
from disavow.errors import DisavowError, VerificationError
from disavow.flower.evidence_store import EvidenceStore, is_run
from disavow.flower.log import warn
from disavow.flower.node_keys import NodeSigner
from disavow.flower.node_requests import MOST_BYTES, RequestAnswer, answer_file, pending_requests, request_file
from disavow.flower.protocol import (
    ATTEMPT,
    CLIENT,
    CLIENT_ID,
    KEY_PREFIX,
    NUMBER,
    NUMBER_PREFIX,
    OPENING,
    PROOF,
    PUBLIC_KEY,
    REASON,
    RECEIPT,
    REQUESTS_ANSWERED,
    ROUND,
    RUN,
    SECOND,
    VERIFIED,
)
from disavow.proof.envelope import Envelope
from disavow.proof.notes import KeyIndex, PublicKey
from disavow.proof.opening import Opening
from disavow.proof.receipt import Receipt, check_receipt, decode_receipt
from disavow.proof.statement import decode_statement
from disavow.proof.verify import Report, TrustedKey, VerificationInputs, verify
from disavow.proof.word import SignedWord

_CLIENT, _KEY, _SINCE, _QUESTION = "client.txt", "server.pub", "since.txt", "asked.txt"
_UPDATES, _RECEIPTS, _DISPUTED = "updates/", "receipts/", "disputed/"
_ROUNDS, _COMPLAINTS, _VERIFICATION = "rounds.txt", "complaints.txt", "verification.txt"
_SECOND = ".purged"
"""In the names of the files of a second proof, beside the first."""

_WORDS, _RENEWALS = "words/", "renewals.txt"
_OF_ROUND = re.compile(r"[a-z]+/round-([0-9]+)-attempt-([0-9]+)-(?:leaf-[0-9]+\.json|([0-9a-f]{64})\.txt)")
"""Names of files that belong to a round: an update that was returned, by its digest; a receipt, by its leaf."""

_UNSIGNED = "the server signs nothing: no receipt will come for the updates that this node returns"
_NAMELESS = (
    "the server asked for training without saying which round it is: the update can be compared with nothing"
)
_UNKNOWN = "not checked against receipts: this node keeps none, and does not know under which id it took part"
_NO_RECEIPTS = "not checked against receipts: this node keeps none"


@dataclass(frozen=True, order=True)
class RoundAttempt:
    """A round and the attempt at it: after a rollback the same number comes again, with a higher attempt."""

    number: int
    attempt: int

    def __str__(self) -> str:
        return f"round {self.number}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


@dataclass(frozen=True)
class Span:
    """The part of the log in which a client had one key: of a proof, all that it can be about.

    A client of whom records were erased goes on under another key. `after` is the place of the withdrawal that the
    key began with, 0 for none; `until` of the one that ended it, None where the client has left.
    """

    after: int = 0
    until: int | None = None

    def holds(self, place: int) -> bool:
        """Say whether a leaf lies in it."""
        return self.after < place and (self.until is None or place < self.until)


_WHOLE = Span()

ReturnedUpdates = Mapping[RoundAttempt, Set[bytes]]
"""The digests of what a node returned; several where it was asked again and trained otherwise."""


class Evidence:
    """The evidence of one client, by the run."""

    def __init__(self, context: Context) -> None:
        named = context.node_config.get(CLIENT_ID)
        self._named = None if named is None else str(named)
        self._store = EvidenceStore(context)

    def receipts(self, run: str) -> list[bytes]:
        """List the receipts that are kept, for updates that this node returned."""
        names = [name for name in self._store.names(run) if name.startswith(_RECEIPTS)]
        kept = (self._store.read(run, name) for name in names)
        return [data for data in kept if data is not None]

    # -- what comes in -----------------------------------------------------------------------------------------

    def take(self, config: ConfigRecord) -> None:
        """Keep the key and the client's id (the first that come) and the receipt in a message; what does not hold,
        as a complaint.
        """
        run, client = config.get(RUN), config.get(CLIENT)
        if not isinstance(run, str) or not is_run(run) or not isinstance(client, str):
            return  # not from us
        first = self._store.first_run(run)
        if first != run:
            self._complain(first, f"the server names another run, {run}: it has given it a new name, or serves two")
        self._pin(run, _CLIENT, client, "called this client")
        public, receipt = config.get(PUBLIC_KEY), config.get(RECEIPT)
        if isinstance(public, str):
            self._pin(run, _KEY, public, "came with another key:")
        self._take_answers(run, config.get(REQUESTS_ANSWERED))
        leaf = self._take_receipt(run, client, receipt) if isinstance(receipt, bytes) else 0
        at = round_of(config)
        if at is not None:
            if self._since(run) is None:
                self._store.write(run, _SINCE, f"{leaf}\n".encode())
            self._miss_receipts(run, at)
            self._list_rounds(run)

    def _take_receipt(self, run: str, client: str, data: bytes) -> int:
        """Keep a receipt; one that is not for an update of this node, apart. The leaf it is for, 0 for none."""
        try:
            receipt = self._check(run, client, data)
        except DisavowError as wrong:
            self._complain(run, f"a receipt does not hold: {wrong}")
            return 0
        at = RoundAttempt(receipt.header.number, receipt.header.attempt)
        name = f"round-{at.number}-attempt-{at.attempt}-leaf-{receipt.leaf}.json"
        disputed = self._disputed(run, at, receipt)
        self._store.write(run, (_DISPUTED if disputed else _RECEIPTS) + name, data)
        if disputed:
            self._complain(run, disputed)
        return receipt.leaf

    def _disputed(self, run: str, at: RoundAttempt, receipt: Receipt) -> str | None:
        """What is wrong with a receipt that holds: it is for another update than this node returned."""
        returned, since = self._returned(run), self._since(run)
        if at in returned:
            if receipt.update not in returned[at]:
                return f"the receipt for {at} is for another update than this node returned"
        elif since is not None and receipt.leaf > since:
            return f"the receipt for {at} is for an update that this node did not return: it noted none"
        return None

    def _miss_receipts(self, run: str, at: RoundAttempt) -> None:
        """Complain of the rounds in which this node returned an update, and for which no receipt has come.

        `at` is the round that the server is at: only its receipt cannot have been made yet.
        """
        got = self._of_rounds(run, _RECEIPTS) | self._of_rounds(run, _DISPUTED)
        missing = sorted(set(self._returned(run)) - got - {at})
        if missing and self._store.read(run, _KEY) is None:
            self._complain(run, _UNSIGNED)
            return
        for each in missing:
            start = f"no receipt for {each}: "
            if each.number < at.number:
                why = "the server left the update out of the round, undid the round at once, or withholds it"
            else:
                why = f"the server went back to {at} before it came, never recorded the round, or withholds it"
            if not any(line.startswith(start) for line in self._complaints(run)):
                self._complain(run, start + why)

    def _since(self, run: str) -> int | None:
        """The leaf of the log after which this node has noted every update that it returned; None: it never has."""
        kept = self._store.read(run, _SINCE)
        return int(kept) if kept is not None and kept.strip().isdigit() else None

    def _returned(self, run: str) -> ReturnedUpdates:
        """The digests of the updates that this node noted, by round."""
        found: defaultdict[RoundAttempt, set[bytes]] = defaultdict(set)
        for name in self._store.names(run):
            match = _OF_ROUND.fullmatch(name)
            if match is not None and match[3] is not None and name.startswith(_UPDATES):
                found[RoundAttempt(int(match[1]), int(match[2]))].add(bytes.fromhex(match[3]))
        return dict(found)

    def _of_rounds(self, run: str, folder: str) -> set[RoundAttempt]:
        """The rounds of which there are files in a folder."""
        names = (name for name in self._store.names(run) if name.startswith(folder))
        return {RoundAttempt(int(m[1]), int(m[2])) for m in map(_OF_ROUND.fullmatch, names) if m is not None}

    def _list_rounds(self, run: str) -> None:
        """Write down, for a person, what was returned in each round and what the server gave for it."""
        returned = self._returned(run)
        kept, disputed = self._of_rounds(run, _RECEIPTS), self._of_rounds(run, _DISPUTED)
        lines = []
        for at in sorted({*returned, *kept, *disputed}):
            digests = " and ".join(sorted(digest.hex() for digest in returned.get(at, ())))
            state = (
                "receipt for another update" if at in disputed else "receipt kept" if at in kept else "no receipt"
            )
            if at in kept and at not in returned:
                state += ", from before this node noted its updates"
            lines.append(f"{at}: {f'returned {digests}' if digests else 'no update noted'}; {state}")
        self._write_lines(run, _ROUNDS, lines)

    def _pin(self, run: str, name: str, value: str, otherwise: str) -> None:
        """Keep what the server says first, escaped, because a person may read it; complain of anything else."""
        kept, value = self._pinned(run, name), escaped(value)
        if kept is None:
            self._store.write(run, name, value.encode() + b"\n")
        elif kept != value:
            self._complain(run, f"the server {otherwise} {value}")

    def _pinned(self, run: str, name: str) -> str | None:
        kept = self._store.read(run, name)
        return None if kept is None else kept.decode().removesuffix("\n")

    def _trusted(self, run: str) -> PublicKey:
        kept = self._pinned(run, _KEY)
        if kept is None:
            raise VerificationError("no server key was ever received")
        return PublicKey.parse(kept.strip())

    def _check(self, run: str, client: str, data: bytes) -> Receipt:
        receipt = decode_receipt(data)
        check_receipt(receipt, KeyIndex([self._trusted(run)]))
        if (receipt.run_id, receipt.client) != (run, client):
            raise VerificationError("it is of another run, or for another client")
        return receipt

    def _complaints(self, run: str) -> list[str]:
        return (self._store.read(run, _COMPLAINTS) or b"").decode().splitlines()

    def _complain(self, run: str, text: str) -> None:
        """Keep a complaint, and say it in the node's log; once."""
        known, text = self._complaints(run), escaped(text)
        if text not in known:
            warn(text)
            self._write_lines(run, _COMPLAINTS, [*known, text])

    def _write_lines(self, run: str, name: str, lines: Iterable[str]) -> None:
        self._store.write(run, name, "".join(f"{escaped(line)}\n" for line in lines).encode())

    def note_update(self, message: RecordDict, reply: RecordDict) -> None:
        """Note the digest of the update that goes back, to compare receipt and opening with; before it goes."""
        configs = [record for record in message.config_records.values() if is_run(record.get(RUN))]
        before, after = list(message.array_records.values()), list(reply.array_records.values())
        if len(configs) != 1 or len(before) != 1 or len(after) != 1:
            return
        run, at, digest = str(configs[0][RUN]), round_of(configs[0]), update_digest(before[0], after[0])
        if at is None:
            self._complain(run, _NAMELESS)
        elif digest is not None:
            self._compare_question(run, at, before[0])
            name = f"{_UPDATES}round-{at.number}-attempt-{at.attempt}-{digest.hex()}.txt"
            self._store.write(run, name, digest.hex().encode() + b"\n")
            self._list_rounds(run)

    def _compare_question(self, run: str, at: RoundAttempt, model: ArrayRecord) -> None:
        """Complain of a server that asks twice running for one round, and from two models: it has gone on since."""
        question = f"{at} from {model_digest(model).hex()}"
        last = self._pinned(run, _QUESTION)
        if last is not None and last != question and last.startswith(f"{at} from "):
            self._complain(
                run,
                f"the server asked for {at} again, from another model: it hides rounds from this node, unless one "
                "was undone in between",
            )
        self._write_lines(run, _QUESTION, [question])

    # -- requests of this node ---------------------------------------------------------------------------------

    def requests(self, config: ConfigRecord) -> list[bytes]:
        """List the requests that this node makes itself, of the run that a message is about, and that wait."""
        run = config.get(RUN)
        if not isinstance(run, str) or not is_run(run):
            return []
        waiting = (self._store.read(run, name) for name in pending_requests(self._store.names(run)))
        return [data for data in waiting if data is not None and len(data) <= MOST_BYTES]

    def _take_answers(self, run: str, answers: object) -> None:
        """Keep what the server says of requests that this node has made."""
        for data in answers if isinstance(answers, list) else []:
            try:
                found = RequestAnswer.decode(data if isinstance(data, bytes) else b"")
            except DisavowError as wrong:
                self._complain(run, f"what the server says of a request of this node cannot be read: {wrong}")
                continue
            if self._store.read(run, request_file(found.nonce)) is not None:
                self._write_lines(run, answer_file(found.nonce, settled=found.settled), [found.message])

    def words(self, content: RecordDict, removals: Iterable[bytes], signer: NodeSigner) -> list[bytes]:
        """Give the client's word that records were removed, by the log's commitments to them; always the same."""
        runs = {str(record[RUN]) for record in content.config_records.values() if is_run(record.get(RUN))}
        if len(runs) != 1:
            return []
        [run] = runs
        given = []
        for records in removals:
            name = f"{_WORDS}{records.hex()}.json"
            word = self._store.read(run, name)
            if word is None:
                at = datetime.now(UTC).isoformat(timespec="microseconds")
                word = SignedWord.sign(signer.key, run=run, records=records, at=at).encode()
                self._store.write(run, name, word)
            given.append(word)
        return given

    # -- after leaving -----------------------------------------------------------------------------------------

    def receive(self, config: ConfigRecord) -> dict[str, bool | str]:
        """Keep what a message outside training brings, and verify the proof in it; what to reply.

        Whom the message itself calls this client counts for nothing there: it is the proof that is in question.
        """
        run, proof, opening = config.get(RUN), config.get(PROOF), config.get(OPENING)
        if not isinstance(proof, bytes) or not isinstance(opening, bytes):
            self.take(config)
            return {}
        if not isinstance(run, str) or not is_run(run):
            return {VERIFIED: False, REASON: "what the message names as its run is no run's id"}
        pinned = self._pinned(run, _CLIENT)
        self.take(config)
        number = config.get(NUMBER)
        folder = f"request-{number}/" if _positive(number) and _is_for_records(opening) else ""
        return self._judge(run, proof, opening, pinned, folder, _SECOND if config.get(SECOND) is True else "")

    def _judge(
        self, run: str, proof: bytes, opening: bytes, pinned: str | None, folder: str, second: str
    ) -> dict[str, bool | str]:
        """Verify the proof with its opening and every receipt kept, that it is about this client, and that it shows
        the updates which this client returned.
        """
        self._store.write(run, f"{folder}proof{second}.json", proof)
        self._store.write(run, f"{folder}opening.json", opening)
        verification = f"{folder}{_VERIFICATION.replace('.', f'{second}.')}"
        try:
            trusted = [TrustedKey(self._trusted(run))]
            span = self._span(run, proof, opening)
            receipts = self._receipts_in(run, span)
            report = verify(VerificationInputs(proof, trusted, opening=opening, receipts=receipts))
            known = self._is_own(Opening.decode(opening).client, pinned)
            remarks = self._compare(run, report, Opening.decode(opening), span)
        except DisavowError as wrong:
            self._write_lines(run, verification, [f"the proof does not hold: {wrong}"])
            return {VERIFIED: False, REASON: str(wrong)}
        if span.until is not None:
            self._write_lines(run, _RENEWALS, map(str, sorted({*self._renewals(run), span.until})))
        if not receipts:
            remarks.insert(0, _NO_RECEIPTS if known else _UNKNOWN)
        passed = [f"{r.number} {r.name}: {r.detail}" for r in report.results if r.passed]
        self._write_lines(run, verification, ["the proof holds", *remarks, *passed])
        return {VERIFIED: True, REASON: "; ".join(remarks)} if remarks else {VERIFIED: True}

    def _span(self, run: str, proof: bytes, opening: bytes) -> Span:
        """The part of the log that a proof can be about: from the last request for records on, to this one."""
        said = decode_statement(Envelope.decode(proof).statement).predicate
        place = said.withdrawal
        after = max((each for each in self._renewals(run) if place is None or each < place), default=0)
        return Span(after, place if Opening.decode(opening).records is not None else None)

    def _renewals(self, run: str) -> set[int]:
        """The places of the withdrawals after which this client went on under another key."""
        kept = (self._store.read(run, _RENEWALS) or b"").decode().split()
        return {int(place) for place in kept if place.isdigit()}

    def _receipts_in(self, run: str, span: Span) -> list[bytes]:
        return [data for data in self.receipts(run) if span.holds(decode_receipt(data).leaf)]

    def _compare(self, run: str, report: Report, opening: Opening, span: Span) -> list[str]:
        """What a proof that holds does not show of the updates which this node returned; `VerificationError` where
        it shows others.
        """
        since = self._since(run)
        if since is None:
            return []  # nothing was ever noted
        found = compare(self._returned(run), since, report, opening, span)
        for text in (*found.contradicted, *found.left_out):
            self._complain(run, text)
        if found.contradicted:
            raise VerificationError("; ".join(found.contradicted))
        return [*found.left_out, *found.unrecorded]

    def _is_own(self, client: str, pinned: str | None) -> bool:
        """Whether it is known that this is our id; `VerificationError` where it is known to be another's."""
        own = [pinned] if pinned is not None else []
        if self._named is not None and not client.startswith((KEY_PREFIX, NUMBER_PREFIX)):
            own.append(escaped(self._named))
        if any(escaped(client) != each for each in own):
            raise VerificationError("the opening is another client's")
        return bool(own)


def _is_for_records(opening: bytes) -> bool:
    try:
        return Opening.decode(opening).records is not None
    except DisavowError:
        return False


def round_of(config: ConfigRecord) -> RoundAttempt | None:
    """Read the round that a message names: the one to train in, or the one that comes next; None for none."""
    number, attempt = config.get(ROUND), config.get(ATTEMPT)
    if _positive(number) and _positive(attempt):
        return RoundAttempt(number, attempt)
    return None


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def update_digest(before: ArrayRecord, after: ArrayRecord) -> bytes | None:
    """Compute SHA-256 of the update between two records, as the ledger does; None where they do not fit.

    As `replies.read_reply` and `ledger.updates.digest_of` do it: the floating arrays in the server's order, as
    float32, the difference as little-endian float32.
    """
    rows = []
    for name, array in before.items():
        start = array.numpy()
        if not np.issubdtype(start.dtype, np.floating):
            continue
        if name not in after:
            return None
        end = after[name].numpy()
        if end.shape != start.shape:
            return None
        rows.append((end.astype(np.float32) - start.astype(np.float32)).reshape(-1))
    return hashlib.sha256(np.concatenate(rows).astype("<f4", copy=False).tobytes()).digest() if rows else None


def model_digest(arrays: ArrayRecord) -> bytes:
    """Compute SHA-256 of the floating arrays of a model, in the server's order."""
    digest = hashlib.sha256()
    for array in arrays.values():
        numbers = array.numpy()
        if np.issubdtype(numbers.dtype, np.floating):
            digest.update(numbers.astype("<f4").tobytes())
    return digest.digest()


@dataclass(frozen=True)
class Comparison:
    """What a proof and its opening say of the updates that a node returned, each in a sentence.

    `contradicted`: it shows what the node did not return. `left_out`: rounds of the log in which the node returned
    an update, and is not shown. `unrecorded`: rounds that the log does not hold.
    """

    contradicted: tuple[str, ...]
    left_out: tuple[str, ...]
    unrecorded: tuple[str, ...]


def compare(
    returned: ReturnedUpdates, since: int, report: Report, opening: Opening, span: Span = _WHOLE
) -> Comparison:
    """Compare a verified proof and its opening with what a node returned; it noted all of it after leaf `since`.

    Of rounds outside `span` the proof says nothing: the client was, or is, in them under another key.
    """
    history, statement = report.history, report.statement
    assert history is not None and statement is not None  # noqa: S101, PT018 - both were read when it was verified
    rounds = statement.predicate.rounds
    superseded = set(rounds.superseded if rounds else ())
    at_place = {place: RoundAttempt(leaf.number, leaf.attempt) for place, leaf in history.rounds.items()}
    opened = {at_place[each.leaf]: each.update for each in opening.rounds}
    undone = {at_place[place] for place in superseded}
    invented = [
        at for place, at in at_place.items() if place > since and at in {*opened, *undone} and at not in returned
    ]
    others = [at for at, update in opened.items() if at in returned and update not in returned[at]]
    recorded = set(at_place.values())
    here = {at for place, at in at_place.items() if span.holds(place)}
    return Comparison(
        contradicted=(
            *(f"the opening is of another update than this node returned in {at}" for at in sorted(others)),
            *(f"the proof shows {at}, in which this node noted no update" for at in sorted(invented)),
        ),
        left_out=tuple(
            f"the proof does not show {at}, in which this node returned an update: the server left it out of the "
            "round, or hides it"
            for at in sorted(returned)
            if at in here and at not in opened and at not in undone
        ),
        unrecorded=tuple(
            f"this node returned an update in {at}, and the log holds no such round: it was not recorded"
            for at in sorted(returned)
            if at not in recorded and span.until is None
        ),
    )
