"""Place the requests that nodes make themselves, and tell each what became of its own.

A node's reply brings them (`node_requests`). Each is checked before anything is placed: it names this run and the
client that the node is known as, it is not older than a month, and it is signed with that client's key, unless the
strategy was told to do without. It is kept beside the openings as evidence of who asked: outside the run, which
names nobody. The request's history says that the node has asked, and has the digest of that file. Its nonce is in
the name of the file, so that the same request counts once, also after a restart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from flwr.app import ConfigRecord, Message

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import ConfigError, DisavowError, TextNamesClient, VerificationError
from disavow.federation import Federation
from disavow.flower.log import inform, warn
from disavow.flower.node_requests import MOST_AT_ONCE, NodeRequest, RequestAnswer, SignedRequest
from disavow.flower.protocol import NODE, RECORD, REQUESTS
from disavow.ledger.files import write_durably

AcceptRequests = Literal["signed", "unsigned", "never"]
"""Which requests of nodes are placed. `signed`: those that are signed with the key that the client is known by.
`unsigned`: all of whoever is known as the client, which proves nothing where node configs say who is who."""

_OLDEST, _NEWEST = timedelta(days=31), timedelta(days=1)
"""How long ago a request may have been made, and how far a node's clock may be ahead."""

_KEPT = re.compile(r"asked-([0-9]+)-([0-9a-f]{8})-([0-9a-f]{64})\.json")


class NodeRequests:
    """The requests that nodes make themselves.

    Args:
        federation: The run, open for training.
        openings: The folder for openings, where they are kept.
        accept: Which of them are placed.

    """

    def __init__(self, federation: Federation, openings: Path, accept: AcceptRequests) -> None:
        self._federation, self._openings, self._accept = federation, openings, accept
        self._received: dict[str, list[bytes]] = {}
        self._answers: dict[str, dict[bytes, RequestAnswer]] = {}
        self._placed = self._kept()
        self._completed = False

    def collect(self, replies: Mapping[int, Message], clients: Mapping[int, str]) -> None:
        """Keep the requests in these replies, by node, until they are placed.

        Args:
            replies: What came back.
            clients: Who the nodes are.

        """
        for node, reply in replies.items():
            record = reply.content.get(RECORD) if reply.has_content() else None
            requests = record.get(REQUESTS) if isinstance(record, ConfigRecord) else None
            if node in clients and isinstance(requests, list):
                self._received[clients[node]] = [each for each in requests if isinstance(each, bytes)][
                    :MOST_AT_ONCE
                ]

    def place(self) -> bool:
        """Place what has been received; of what is refused, its node gets the reason, and the log a line.

        Returns:
            Whether any of it was new, and is placed now.

        """
        before = len(self._placed)
        if not self._completed:
            self._complete()
        for client, requests in self._received.items():
            self._answers[client] = {}
            for data in requests:
                self._place(client, data)
        self._received.clear()
        return len(self._placed) > before

    def answers(self, client: str) -> list[bytes]:
        """Tell what became of the requests that a client's node has sent last.

        Args:
            client: Whose node it is.

        """
        return [self._current(nonce, answer).encode() for nonce, answer in self._answers.get(client, {}).items()]

    def answers_of(self, number: int) -> list[bytes]:
        """Tell what became of a request, to the node of somebody who has left by it.

        Args:
            number: The request.

        """
        nonces = [nonce for nonce, placed in self._placed.items() if placed == number]
        return [self._state(nonce, number).encode() for nonce in nonces]

    def _place(self, client: str, data: bytes) -> None:
        try:
            signed = SignedRequest.decode(data)
            request = signed.request
        except DisavowError as wrong:
            warn(f"a request of {client}'s node cannot be read: {wrong}")
            return
        try:
            number = self._placed.get(request.nonce) or self._placed_now(client, signed, request)
        except DisavowError as refused:
            warn(f"a request of {client}'s node is refused: {refused}")
            message = f"refused: {refused}"[:_LONGEST]
            self._answers[client][request.nonce] = RequestAnswer(nonce=request.nonce, settled=True, message=message)
            return
        self._answers[client][request.nonce] = self._state(request.nonce, number)

    def _placed_now(self, client: str, signed: SignedRequest, request: NodeRequest) -> int:
        """Check a request and place it; its number."""
        self._refuse(client, signed, request)
        kept = self._keep(signed, request.nonce)  # before it is placed, so that no request is without its evidence
        try:
            return self._place_kept(kept, client, signed, request)
        except DisavowError:
            kept.unlink()
            raise

    def _place_kept(self, kept: Path, client: str, signed: SignedRequest, request: NodeRequest) -> int:
        """Place a request that is kept, unless it was before; its number, by which the file is named then."""
        try:
            number = self._number(client, request, by=NODE, reason=_evidence(signed))
        except TextNamesClient:  # somebody is called by a word of these
            number = self._number(client, request)
        kept.replace(self._name(request.nonce, number))
        self._placed[request.nonce] = number
        wish = f"{len(request.records)} of its records be erased" if request.records else "it be forgotten"
        inform(f"the node of {client} asks that {wish}: request {number}")
        return number

    def _number(self, client: str, request: NodeRequest, *, by: str = "", reason: str = "") -> int:
        ledger, at = self._federation.ledger, self._federation.clock()
        if request.unit == "record":
            return ledger.place_record_requests({client: request.records}, at=at, by=by, reason=reason)[client]
        [number] = ledger.place_requests([client], at=at, by=by, reason=reason)
        return number

    def _refuse(self, client: str, signed: SignedRequest, request: NodeRequest) -> None:
        if self._accept == "never":
            raise ConfigError("this server takes no requests from nodes: ask whoever runs it")
        if request.run_id != self._federation.ledger.run_id:
            raise VerificationError("it is about another run")
        if request.client != client:
            raise VerificationError("it names another client than this node is known as")
        age = self._federation.clock() - datetime.fromisoformat(request.asked_at)
        if not -_NEWEST <= age <= _OLDEST:
            raise VerificationError(f"it was made at {request.asked_at}, too long ago or in the future: ask again")
        if self._accept == "signed":
            signed.refuse_unsigned(client)

    def _current(self, nonce: bytes, answer: RequestAnswer) -> RequestAnswer:
        """An answer as things stand now."""
        number = self._placed.get(nonce)
        return answer if number is None else self._state(nonce, number)

    def _state(self, nonce: bytes, number: int) -> RequestAnswer:
        [request] = self._federation.requests([number])
        return RequestAnswer(nonce=nonce, settled=not request.pending, message=_describe(request)[:_LONGEST])

    def _complete(self) -> None:
        """Place what was kept and has no number: a server app died in between, perhaps after it was placed."""
        self._completed = True
        for path in self._openings.glob(f"asked-{self._federation.ledger.run_id[:8]}-*.json"):
            try:
                signed = SignedRequest.decode(path.read_bytes())
                request = signed.request
                self._place_kept(path, request.client, signed, request)
            except DisavowError as wrong:
                warn(f"a request of a node that was kept in {path} is not placed: {wrong}")

    # -- the evidence of who asked -----------------------------------------------------------------------------

    def _keep(self, signed: SignedRequest, nonce: bytes) -> Path:
        self._openings.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._name(nonce)
        write_durably(path, signed.encode(), mode=0o600)
        return path

    def _name(self, nonce: bytes, number: int | None = None) -> Path:
        placed = "" if number is None else f"{number}-"
        return self._openings / f"asked-{placed}{self._federation.ledger.run_id[:8]}-{nonce.hex()}.json"

    def _kept(self) -> dict[bytes, int]:
        """The numbers of requests that were placed before, by their nonces."""
        names: Iterable[str] = [path.name for path in self._openings.glob("asked-*.json")]
        found = (match for match in map(_KEPT.fullmatch, names) if match is not None)
        run = self._federation.ledger.run_id[:8]
        return {bytes.fromhex(match[3]): int(match[1]) for match in found if match[2] == run}


_LONGEST = 1000
"""Characters of the answer to a node's request."""


def _evidence(signed: SignedRequest) -> str:
    """What a request's history says of who asked: that it was signed, and which file shows it. It names no key."""
    how = "not signed" if signed.signature is None else "signed with its key"
    return f"{how}; SHA-256 of what it sent: {hashlib.sha256(signed.encode()).hexdigest()}"


def _describe(request: ErasureRequest) -> str:
    """What became of a request, in a sentence."""
    sentence = f"request {request.number}: {request.state}"
    if request.state is RequestState.ANSWERED:
        sentence += f", {request.verdict}{', purged' if request.purged_at is not None else ''}"
    return f"{sentence}; {request.remark}" if request.remark else sentence
