"""What a node keeps in its own hands: the server's key, its receipts, and the proof once it has left.

In the folder that the node config names as `evidence-dir`, as files that `disavow verify` reads; without one, in
the node's context, which Flower keeps for as long as the run lasts.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from disavow.engines.flower.names import CLIENT, OPENING, PROOF, PUBLIC_KEY, REASON, RECEIPT, RUN, VERIFIED
from disavow.errors import DisavowError, VerificationError
from disavow.proof.notes import PublicKey
from disavow.proof.receipt import Receipt, check_receipt, read_receipt
from disavow.proof.verify import Asked, TrustedKey, verify

FOLDER = "evidence-dir"
_STATE = "disavow-evidence"
_KEY, _RECEIPT, _COMPLAINTS, _UPDATES = "server.pub", "receipts/", "complaints.txt", "updates.txt"
_VERIFICATION = "verification.txt"


class Evidence:
    """The evidence of one client in one run; names of files to what they hold."""

    def __init__(self, context: Context, folder: Path | None) -> None:
        self._folder = folder
        if _STATE not in context.state:
            context.state[_STATE] = ConfigRecord()
        self._state: ConfigRecord = context.state.config_records[_STATE]

    @classmethod
    def of(cls, context: Context) -> Evidence:
        """The evidence that the node of this context keeps."""
        named = context.node_config.get(FOLDER)
        return cls(context, None if named is None else Path(str(named)).expanduser())

    # -- files, or entries of the context -------------------------------------------------------------------

    def _write(self, run: str, name: str, data: bytes) -> None:
        if self._folder is None:
            self._state[f"{run}/{name}"] = data
            return
        path = self._folder / run / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_bytes(data)
        fresh.chmod(0o600)
        fresh.replace(path)

    def _read(self, run: str, name: str) -> bytes | None:
        if self._folder is None:
            kept = self._state.get(f"{run}/{name}")
            return kept if isinstance(kept, bytes) else None
        path = self._folder / run / name
        return path.read_bytes() if path.is_file() else None

    def _names(self, run: str) -> list[str]:
        if self._folder is None:
            return [name.partition("/")[2] for name in self._state if name.startswith(f"{run}/")]
        home = self._folder / run
        return [str(path.relative_to(home)) for path in home.rglob("[!.]*") if path.is_file()]

    def receipts(self, run: str) -> list[bytes]:
        """The receipts that are kept."""
        kept = (self._read(run, name) for name in sorted(self._names(run)) if name.startswith(_RECEIPT))
        return [data for data in kept if data is not None]

    # -- what comes in -----------------------------------------------------------------------------------------

    def take(self, told: ConfigRecord) -> None:
        """Keep the key (the first that comes) and the receipt in a message; what does not hold, as a complaint."""
        run, client = told.get(RUN), told.get(CLIENT)
        if not isinstance(run, str) or not run.isalnum() or not isinstance(client, str):
            return  # not from us
        public, receipt = told.get(PUBLIC_KEY), told.get(RECEIPT)
        if isinstance(public, str):
            self._pin(run, public)
        if isinstance(receipt, bytes):
            try:
                read = self._check(run, client, receipt)
            except DisavowError as wrong:
                self._complain(run, f"a receipt does not hold: {wrong}")
            else:
                self._write(run, f"{_RECEIPT}round-{read.header['number']}-leaf-{read.leaf}.json", receipt)

    def _pin(self, run: str, public: str) -> None:
        kept = self._read(run, _KEY)
        if kept is None:
            self._write(run, _KEY, public.encode() + b"\n")
        elif kept.decode().strip() != public.strip():
            self._complain(run, f"the server came with another key: {public}")

    def _trusted(self, run: str) -> PublicKey:
        kept = self._read(run, _KEY)
        if kept is None:
            raise VerificationError("no server key was ever received")
        return PublicKey.parse(kept.decode().strip())

    def _check(self, run: str, client: str, data: bytes) -> Receipt:
        receipt = check_receipt(read_receipt(data), [self._trusted(run)])
        if (receipt.run_id, receipt.client) != (run, client):
            raise VerificationError("it is of another run, or for another client")
        returned = self._read(run, _UPDATES)
        if returned is not None and receipt.told["update"].hex() not in returned.decode().split():
            raise VerificationError(
                f"it is for an update that this client did not return (round {receipt.header['number']})"
            )
        return receipt

    def _complain(self, run: str, text: str) -> None:
        kept = self._read(run, _COMPLAINTS) or b""
        if text.encode() not in kept:
            self._write(run, _COMPLAINTS, kept + text.encode() + b"\n")

    def note_update(self, asked: RecordDict, returned: RecordDict) -> None:
        """Remember the digest of the update that goes back, to compare the receipt with."""
        runs = [record.get(RUN) for record in asked.config_records.values() if isinstance(record.get(RUN), str)]
        before, after = list(asked.array_records.values()), list(returned.array_records.values())
        if len(runs) != 1 or len(before) != 1 or len(after) != 1:
            return
        run = str(runs[0])
        digest = update_digest(before[0], after[0])
        if digest is not None:
            self._write(run, _UPDATES, (self._read(run, _UPDATES) or b"") + digest.hex().encode() + b"\n")

    # -- after leaving -----------------------------------------------------------------------------------------

    def judge(self, told: ConfigRecord) -> dict[str, bool | str]:
        """Verify the proof in a message, with its opening and every receipt kept; what to reply."""
        run, proof, opening = told.get(RUN), told.get(PROOF), told.get(OPENING)
        if not isinstance(run, str) or not isinstance(proof, bytes) or not isinstance(opening, bytes):
            return {}
        self._write(run, "proof.json", proof)
        self._write(run, "opening.json", opening)
        try:
            trusted = [TrustedKey(self._trusted(run))]
            report = verify(Asked(proof, trusted, opening=opening, receipts=self.receipts(run)))
        except DisavowError as wrong:
            self._write(run, _VERIFICATION, f"the proof does not hold: {wrong}\n".encode())
            return {VERIFIED: False, REASON: str(wrong)}
        passed = [f"{r.number} {r.name}: {r.detail}" for r in report.results if r.passed]
        self._write(run, _VERIFICATION, ("the proof holds\n" + "\n".join(passed) + "\n").encode())
        return {VERIFIED: True}


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
