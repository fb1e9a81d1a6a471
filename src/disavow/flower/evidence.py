"""What a node keeps in its own hands: the server's key, its own id, the digests of the updates it returned, its
receipts, and the proof once it has left. Each is compared with the others; what does not fit is a complaint.

In the folder that the node config names as `evidence-dir`, as files that `disavow verify` reads; without one, in
the node's context, which Flower keeps for as long as the run lasts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from disavow.domain import escaped
from disavow.errors import DisavowError, VerificationError
from disavow.flower.keeping import Keeping, is_run
from disavow.flower.names import (
    CLIENT,
    CLIENT_ID,
    GIVEN,
    OPENING,
    PROOF,
    PUBLIC_KEY,
    REASON,
    RECEIPT,
    RUN,
    VERIFIED,
)
from disavow.flower.reporting import warn
from disavow.flower.returned import (
    Returned,
    RoundAttempt,
    compare,
    model_digest,
    round_of,
    update_digest,
)
from disavow.proof.notes import KeyIndex, PublicKey
from disavow.proof.opening import Opening
from disavow.proof.receipt import Receipt, check_receipt, decode_receipt
from disavow.proof.verify import Asked, Report, TrustedKey, verify

_CLIENT, _KEY, _SINCE, _ASKED = "client.txt", "server.pub", "since.txt", "asked.txt"
_UPDATES, _RECEIPTS, _DISPUTED = "updates/", "receipts/", "disputed/"
_ROUNDS, _COMPLAINTS, _VERIFICATION = "rounds.txt", "complaints.txt", "verification.txt"
_OF_ROUND = re.compile(r"[a-z]+/round-([0-9]+)-attempt-([0-9]+)-(?:leaf-[0-9]+\.json|([0-9a-f]{64})\.txt)")
"""Names of files that belong to a round: an update that was returned, by its digest; a receipt, by its leaf."""

_UNSIGNED = "the server signs nothing: no receipt will come for the updates that this node returns"
_NAMELESS = (
    "the server asked for training without saying which round it is: the update can be compared with nothing"
)
_UNKNOWN = "not checked against receipts: this node keeps none, and does not know under which id it took part"
_NO_RECEIPTS = "not checked against receipts: this node keeps none"


class Evidence:
    """The evidence of one client, by the run."""

    def __init__(self, context: Context) -> None:
        named = context.node_config.get(CLIENT_ID)
        self._named = None if named is None else str(named)
        self._keeping = Keeping(context)

    @classmethod
    def of(cls, context: Context) -> Evidence:
        """The evidence that the node of this context keeps."""
        return cls(context)

    def receipts(self, run: str) -> list[bytes]:
        """The receipts that are kept, for updates that this node returned."""
        names = [name for name in self._keeping.names(run) if name.startswith(_RECEIPTS)]
        kept = (self._keeping.read(run, name) for name in names)
        return [data for data in kept if data is not None]

    # -- what comes in -----------------------------------------------------------------------------------------

    def take(self, told: ConfigRecord) -> None:
        """Keep the key and the client's id (the first that come) and the receipt in a message; what does not hold,
        as a complaint.
        """
        run, client = told.get(RUN), told.get(CLIENT)
        if not isinstance(run, str) or not is_run(run) or not isinstance(client, str):
            return  # not from us
        first = self._keeping.first_run(run)
        if first != run:
            self._complain(first, f"the server names another run, {run}: it has given it a new name, or serves two")
        self._pin(run, _CLIENT, client, "called this client")
        public, receipt = told.get(PUBLIC_KEY), told.get(RECEIPT)
        if isinstance(public, str):
            self._pin(run, _KEY, public, "came with another key:")
        leaf = self._take_receipt(run, client, receipt) if isinstance(receipt, bytes) else 0
        at = round_of(told)
        if at is not None:
            if self._since(run) is None:
                self._keeping.write(run, _SINCE, f"{leaf}\n".encode())
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
        self._keeping.write(run, (_DISPUTED if disputed else _RECEIPTS) + name, data)
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
        if missing and self._keeping.read(run, _KEY) is None:
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
        kept = self._keeping.read(run, _SINCE)
        return int(kept) if kept is not None and kept.strip().isdigit() else None

    def _returned(self, run: str) -> Returned:
        """The digests of the updates that this node noted, by round."""
        found: defaultdict[RoundAttempt, set[bytes]] = defaultdict(set)
        for name in self._keeping.names(run):
            match = _OF_ROUND.fullmatch(name)
            if match is not None and match[3] is not None and name.startswith(_UPDATES):
                found[RoundAttempt(int(match[1]), int(match[2]))].add(bytes.fromhex(match[3]))
        return dict(found)

    def _of_rounds(self, run: str, folder: str) -> set[RoundAttempt]:
        """The rounds of which there are files in a folder."""
        names = (name for name in self._keeping.names(run) if name.startswith(folder))
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

    def _pin(self, run: str, name: str, told: str, otherwise: str) -> None:
        """Keep what the server says first, escaped, because a person may read it; complain of anything else."""
        kept, told = self._pinned(run, name), escaped(told)
        if kept is None:
            self._keeping.write(run, name, told.encode() + b"\n")
        elif kept != told:
            self._complain(run, f"the server {otherwise} {told}")

    def _pinned(self, run: str, name: str) -> str | None:
        kept = self._keeping.read(run, name)
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
        return (self._keeping.read(run, _COMPLAINTS) or b"").decode().splitlines()

    def _complain(self, run: str, text: str) -> None:
        """Keep a complaint, and say it in the node's log; once."""
        known, text = self._complaints(run), escaped(text)
        if text not in known:
            warn(text)
            self._write_lines(run, _COMPLAINTS, [*known, text])

    def _write_lines(self, run: str, name: str, lines: Iterable[str]) -> None:
        self._keeping.write(run, name, "".join(f"{escaped(line)}\n" for line in lines).encode())

    def note_update(self, asked: RecordDict, returned: RecordDict) -> None:
        """Note the digest of the update that goes back, to compare receipt and opening with; before it goes."""
        told = [record for record in asked.config_records.values() if is_run(record.get(RUN))]
        before, after = list(asked.array_records.values()), list(returned.array_records.values())
        if len(told) != 1 or len(before) != 1 or len(after) != 1:
            return
        run, at, digest = str(told[0][RUN]), round_of(told[0]), update_digest(before[0], after[0])
        if at is None:
            self._complain(run, _NAMELESS)
        elif digest is not None:
            self._compare_question(run, at, before[0])
            name = f"{_UPDATES}round-{at.number}-attempt-{at.attempt}-{digest.hex()}.txt"
            self._keeping.write(run, name, digest.hex().encode() + b"\n")
            self._list_rounds(run)

    def _compare_question(self, run: str, at: RoundAttempt, asked: ArrayRecord) -> None:
        """Complain of a server that asks twice running for one round, and from two models: it has gone on since."""
        question = f"{at} from {model_digest(asked).hex()}"
        last = self._pinned(run, _ASKED)
        if last is not None and last != question and last.startswith(f"{at} from "):
            self._complain(
                run,
                f"the server asked for {at} again, from another model: it hides rounds from this node, unless one "
                "was undone in between",
            )
        self._write_lines(run, _ASKED, [question])

    # -- after leaving -----------------------------------------------------------------------------------------

    def receive(self, told: ConfigRecord) -> dict[str, bool | str]:
        """Take what a message outside training brings, and judge the proof in it; what to reply.

        Whom the message itself calls this client counts for nothing there: it is the proof that is in question.
        """
        run, proof, opening = told.get(RUN), told.get(PROOF), told.get(OPENING)
        if not isinstance(proof, bytes) or not isinstance(opening, bytes):
            self.take(told)
            return {}
        if not isinstance(run, str) or not is_run(run):
            return {VERIFIED: False, REASON: "what the message names as its run is no run's id"}
        pinned = self._pinned(run, _CLIENT)
        self.take(told)
        return self._judge(run, proof, opening, pinned)

    def _judge(self, run: str, proof: bytes, opening: bytes, pinned: str | None) -> dict[str, bool | str]:
        """Verify the proof with its opening and every receipt kept, that it is about this client, and that it shows
        the updates which this client returned.
        """
        self._keeping.write(run, "proof.json", proof)
        self._keeping.write(run, "opening.json", opening)
        receipts = self.receipts(run)
        try:
            trusted = [TrustedKey(self._trusted(run))]
            report = verify(Asked(proof, trusted, opening=opening, receipts=receipts))
            known = self._is_own(Opening.decode(opening).client, pinned)
            remarks = self._compare(run, report, Opening.decode(opening))
        except DisavowError as wrong:
            self._write_lines(run, _VERIFICATION, [f"the proof does not hold: {wrong}"])
            return {VERIFIED: False, REASON: str(wrong)}
        if not receipts:
            remarks.insert(0, _NO_RECEIPTS if known else _UNKNOWN)
        passed = [f"{r.number} {r.name}: {r.detail}" for r in report.results if r.passed]
        self._write_lines(run, _VERIFICATION, ["the proof holds", *remarks, *passed])
        return {VERIFIED: True, REASON: "; ".join(remarks)} if remarks else {VERIFIED: True}

    def _compare(self, run: str, report: Report, opening: Opening) -> list[str]:
        """What a proof that holds does not show of the updates which this node returned; `VerificationError` where
        it shows others.
        """
        since = self._since(run)
        if since is None:
            return []  # nothing was ever noted
        found = compare(self._returned(run), since, report, opening)
        for text in (*found.contradicted, *found.left_out):
            self._complain(run, text)
        if found.contradicted:
            raise VerificationError("; ".join(found.contradicted))
        return [*found.left_out, *found.unrecorded]

    def _is_own(self, client: str, pinned: str | None) -> bool:
        """Whether it is known that this is our id; `VerificationError` where it is known to be another's."""
        own = [pinned] if pinned is not None else []
        if self._named is not None and not client.startswith(GIVEN):
            own.append(escaped(self._named))
        if any(escaped(client) != each for each in own):
            raise VerificationError("the opening is another client's")
        return bool(own)
