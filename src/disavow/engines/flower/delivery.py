"""Evidence that no train message brings: the proof of an erasure to the leaver, the last receipts to who stays."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from disavow.engines.flower.exchange import exchange
from disavow.engines.flower.letters import Letters
from disavow.engines.flower.names import (
    CLIENT,
    OPENING,
    PROOF,
    PUBLIC_KEY,
    QUERY,
    REASON,
    RECORD,
    RUN,
    VERIFIED,
)
from disavow.engines.flower.reporting import inform, warn
from disavow.engines.flower.roster import Roster
from disavow.erasure.prove import opening_path, proof_path
from disavow.ledger import Ledger

_SECONDS = 60.0


class Delivery:
    """Sends each proof once in the life of the server app; a node that is away gets it when it is back."""

    def __init__(self, grid: Grid, ledger: Ledger, roster: Roster, openings: Path) -> None:
        self._grid, self._ledger, self._roster, self._openings = grid, ledger, roster, openings
        self._delivered: set[int] = set()

    def proofs(self) -> None:
        """Hand proofs and openings to the leavers who are here.

        An opening says whom a proof is about: it goes to a node only where somebody else than the node itself says
        who it is.
        """
        for request, (node, person) in self._roster.leavers.items():
            proof = proof_path(self._ledger.directory, request)
            opening = opening_path(self._openings, self._ledger.run_id, request)
            if request in self._delivered or not person.vouched or not proof.exists() or not opening.exists():
                continue
            self._delivered.add(request)
            letter: dict[str, str | bytes] = {
                CLIENT: person.client,
                RUN: self._ledger.run_id,
                PROOF: proof.read_bytes(),
                OPENING: opening.read_bytes(),
            }
            if self._ledger.signer is not None:
                letter[PUBLIC_KEY] = str(self._ledger.signer.public)
            self._report(request, self._send({node: letter}).get(node))

    def last_receipts(self, aware: set[str], letters: Letters) -> None:
        """Hand out the receipts of the newest round, which no later train message will bring."""
        letters.prepare()
        here = self._roster.members
        told = {client: letters.evidence(client) for client in sorted(aware) if client in here}
        self._send(
            {
                here[client]: {CLIENT: client, RUN: self._ledger.run_id, **letter}
                for client, letter in told.items()
                if letter
            }
        )

    def _send(self, letters: dict[int, dict[str, str | bytes]]) -> dict[int, Message]:
        messages = [
            Message(RecordDict({RECORD: ConfigRecord(dict(letter))}), node, QUERY, ttl=_SECONDS)
            for node, letter in letters.items()
        ]
        return dict(exchange(self._grid, messages, timeout=_SECONDS))

    def _report(self, request: int, reply: Message | None) -> None:
        if reply is None or reply.has_error():
            why = "no answer" if reply is None else reply.error.reason
            inform(f"the proof of request {request} could not be handed over ({why}); it lies in the run")
            return
        record = reply.content.get(RECORD)
        verified = isinstance(record, ConfigRecord) and record.get(VERIFIED) is True
        if verified:
            inform(f"the client of request {request} has verified its proof")
        else:
            reason = record.get(REASON) if isinstance(record, ConfigRecord) else None
            warn(f"the client of request {request} does not accept its proof: {reason or 'it does not say why'}")
