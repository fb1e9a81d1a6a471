"""Evidence that no train message brings: the proof of an erasure to the leaver, the last receipts to who stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from disavow.erasure.prove import opening_path
from disavow.flower.exchange import exchange
from disavow.flower.identity import knows_no_question
from disavow.flower.log import inform, warn
from disavow.flower.message_config import MessageConfigs
from disavow.flower.protocol import (
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
from disavow.flower.roster import Roster
from disavow.ledger import Ledger
from disavow.ledger.proofs import ProofStore

_SECONDS, _SECONDS_BEFORE_ERASURE = 60.0, 10.0
"""How long nodes are waited for; an erasure does not wait so long for nodes that may have died."""

_MOST_TRIES = 5
"""How often a proof is sent to a node that does not answer: each try may keep the next round waiting."""


class Delivery:
    """Hands each proof over, once, in the life of the server app; a node that is away gets it when it is back."""

    def __init__(self, grid: Grid, ledger: Ledger, roster: Roster, openings: Path) -> None:
        self._grid, self._ledger, self._roster, self._openings = grid, ledger, roster, openings
        self._settled: set[int] = set()
        self._written: dict[int, Path] = {}
        self._tries: Counter[tuple[int, int]] = Counter()

    def note_opening(self, request: int, path: Path) -> None:
        """Remember where an opening was written: elsewhere than by default, if that was asked for."""
        self._written[request] = path

    def proofs(self) -> None:
        """Hand proofs and openings to the leavers who are here; those that did not get through, again.

        An opening says whom a proof is about: it goes to a node only where somebody else than the node itself says
        who it is.
        """
        configs, requests = {}, {}
        for request, (node, person) in self._roster.leavers.items():
            if request in self._settled or self._tries[request, node] >= _MOST_TRIES or not person.vouched:
                continue
            config = self._letter(request, person.client)
            if config is not None:
                configs[node], requests[node] = config, request
        replies = self._send(configs, _SECONDS)
        for node, request in requests.items():
            self._tries[request, node] += 1
            self._report(request, node, replies.get(node))

    def _letter(self, request: int, client: str) -> dict[str, str | bytes] | None:
        """The proof of a request and its opening; None while they are not made."""
        proof = ProofStore(self._ledger.directory).read(request)
        opening = self._written.get(request) or opening_path(self._openings, self._ledger.run_id, request)
        if proof is None or not opening.exists():
            return None
        config: dict[str, str | bytes] = {
            CLIENT: client,
            RUN: self._ledger.run_id,
            PROOF: proof,
            OPENING: opening.read_bytes(),
        }
        if self._ledger.signer is not None:
            config[PUBLIC_KEY] = str(self._ledger.signer.public)
        return config

    def receipts_before_erasure(self, aware: set[str], configs: MessageConfigs) -> None:
        """Hand out the receipts of the newest round before requests are answered.

        Whoever leaves gets no message any more, and of a round that is undone nobody gets a receipt.
        """
        self._roster.look()
        self.last_receipts(aware, configs, timeout=_SECONDS_BEFORE_ERASURE)

    def last_receipts(self, aware: set[str], configs: MessageConfigs, *, timeout: float | None = None) -> None:
        """Hand out the receipts of the newest round, which no later train message will bring; none if unsigned."""
        if self._ledger.signer is None:
            return
        configs.prepare()
        here = self._roster.members
        told = {here[client]: configs.evidence(client) for client in sorted(aware) if client in here}
        self._send(told, _SECONDS if timeout is None else timeout)

    def _send(self, configs: Mapping[int, Mapping[str, str | int | bytes]], timeout: float) -> dict[int, Message]:
        messages = [
            Message(RecordDict({RECORD: ConfigRecord(dict(config))}), node, QUERY, ttl=_SECONDS)
            for node, config in configs.items()
        ]
        return dict(exchange(self._grid, messages, timeout=timeout))

    def _report(self, request: int, node: int, reply: Message | None) -> None:
        """Log what became of a proof; it is settled once an app has answered, or can never answer."""
        if reply is None or reply.has_error():
            why = "no answer" if reply is None else reply.error.reason.strip()
            tries = self._tries[request, node]
            if knows_no_question(reply):
                self._settled.add(request)
                after = "its app takes none"
            elif tries < _MOST_TRIES:
                after = f"try {tries} of {_MOST_TRIES}, the next follows between two later rounds"
            else:
                after = f"try {tries} of {_MOST_TRIES}, the last until the server app is started again"
            warn(f"the proof of request {request} could not be handed over ({why}; {after}); it lies in the run")
            return
        self._settled.add(request)
        record = reply.content.get(RECORD)
        verified = isinstance(record, ConfigRecord) and record.get(VERIFIED) is True
        reason = record.get(REASON) if isinstance(record, ConfigRecord) else None
        if verified:
            inform(f"the client of request {request} has verified its proof{f'; {reason}' if reason else ''}")
        else:
            warn(f"the client of request {request} does not accept its proof: {reason or 'it does not say why'}")
