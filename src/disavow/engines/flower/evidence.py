"""What a node keeps in its own hands: the server's key, its own id, its receipts, and the proof once it has left.

In the folder that the node config names as `evidence-dir`, as files that `disavow verify` reads; without one, in
the node's context, which Flower keeps for as long as the run lasts.
"""

from __future__ import annotations

import hashlib

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from disavow.engines.flower.keeping import Keeping, is_run
from disavow.engines.flower.names import (
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
from disavow.errors import DisavowError, VerificationError
from disavow.proof.notes import KeyIndex, PublicKey
from disavow.proof.opening import read_opening
from disavow.proof.receipt import Receipt, check_receipt, read_receipt
from disavow.proof.verify import Asked, TrustedKey, verify

_KEY, _RECEIPT, _COMPLAINTS, _UPDATES = "server.pub", "receipts/", "complaints.txt", "updates.txt"
_CLIENT, _VERIFICATION = "client.txt", "verification.txt"

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
        """The receipts that are kept."""
        names = [name for name in self._keeping.names(run) if name.startswith(_RECEIPT)]
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
        self._pin(run, _CLIENT, client, "called this client")
        public, receipt = told.get(PUBLIC_KEY), told.get(RECEIPT)
        if isinstance(public, str):
            self._pin(run, _KEY, public, "came with another key:")
        if isinstance(receipt, bytes):
            try:
                read = self._check(run, client, receipt)
            except DisavowError as wrong:
                self._complain(run, f"a receipt does not hold: {wrong}")
            else:
                name = f"{_RECEIPT}round-{read.header['number']}-leaf-{read.leaf}.json"
                self._keeping.write(run, name, receipt)

    def _pin(self, run: str, name: str, told: str, otherwise: str) -> None:
        kept = self._keeping.read(run, name)
        if kept is None:
            self._keeping.write(run, name, told.encode() + b"\n")
        elif kept.decode().strip() != told.strip():
            self._complain(run, f"the server {otherwise} {told}")

    def _trusted(self, run: str) -> PublicKey:
        kept = self._keeping.read(run, _KEY)
        if kept is None:
            raise VerificationError("no server key was ever received")
        return PublicKey.parse(kept.decode().strip())

    def _check(self, run: str, client: str, data: bytes) -> Receipt:
        receipt = check_receipt(read_receipt(data), KeyIndex([self._trusted(run)]))
        if (receipt.run_id, receipt.client) != (run, client):
            raise VerificationError("it is of another run, or for another client")
        returned = self._keeping.read(run, _UPDATES)
        if returned is not None and receipt.told["update"].hex() not in returned.decode().split():
            raise VerificationError(
                f"it is for an update that this client did not return (round {receipt.header['number']})"
            )
        return receipt

    def _complain(self, run: str, text: str) -> None:
        kept = self._keeping.read(run, _COMPLAINTS) or b""
        if text.encode() not in kept:
            self._keeping.write(run, _COMPLAINTS, kept + text.encode() + b"\n")

    def note_update(self, asked: RecordDict, returned: RecordDict) -> None:
        """Remember the digest of the update that goes back, to compare the receipt with."""
        runs = [str(record[RUN]) for record in asked.config_records.values() if is_run(record.get(RUN))]
        before, after = list(asked.array_records.values()), list(returned.array_records.values())
        if len(runs) != 1 or len(before) != 1 or len(after) != 1:
            return
        digest = update_digest(before[0], after[0])
        if digest is not None:
            kept = self._keeping.read(runs[0], _UPDATES) or b""
            self._keeping.write(runs[0], _UPDATES, kept + digest.hex().encode() + b"\n")

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
        pinned = self._keeping.read(run, _CLIENT)
        self.take(told)
        return self._judge(run, proof, opening, None if pinned is None else pinned.decode().strip())

    def _judge(self, run: str, proof: bytes, opening: bytes, pinned: str | None) -> dict[str, bool | str]:
        """Verify the proof with its opening and every receipt kept, and that it is about this client."""
        self._keeping.write(run, "proof.json", proof)
        self._keeping.write(run, "opening.json", opening)
        receipts = self.receipts(run)
        try:
            trusted = [TrustedKey(self._trusted(run))]
            report = verify(Asked(proof, trusted, opening=opening, receipts=receipts))
            known = self._is_own(read_opening(opening).client, pinned)
        except DisavowError as wrong:
            self._keeping.write(run, _VERIFICATION, f"the proof does not hold: {wrong}\n".encode())
            return {VERIFIED: False, REASON: str(wrong)}
        remark = "" if receipts else _NO_RECEIPTS if known else _UNKNOWN
        passed = [f"{r.number} {r.name}: {r.detail}" for r in report.results if r.passed]
        lines = ["the proof holds", *filter(None, [remark]), *passed]
        self._keeping.write(run, _VERIFICATION, ("\n".join(lines) + "\n").encode())
        return {VERIFIED: True, REASON: remark} if remark else {VERIFIED: True}

    def _is_own(self, client: str, pinned: str | None) -> bool:
        """Whether it is known that this is our id; `VerificationError` where it is known to be another's."""
        own = [pinned] if pinned is not None else []
        if self._named is not None and not client.startswith(GIVEN):
            own.append(self._named)
        if any(client != each for each in own):
            raise VerificationError("the opening is another client's")
        return bool(own)


def update_digest(before: ArrayRecord, after: ArrayRecord) -> bytes | None:
    """SHA-256 of the update between two records, as the ledger computes it; None where they do not fit."""
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
