"""Requests for erasure that a node makes itself: for its client, or for some of the client's records.

`ask_erasure` writes one into the node's folder of evidence, signed with the node's key where that is given. The
node's app sends it with its next reply, and again with each until the server has said what became of it::

    requests/NONCE.json         what is asked for, signed
    requests/NONCE.placed.txt   once the server has placed it: the number of the request
    requests/NONCE.answer.txt   at the end: its number and verdict, or why it is refused
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from disavow.errors import ConfigError, VerificationError
from disavow.flower.evidence_store import is_run, write_private
from disavow.flower.node_keys import NodeSigner, fingerprint, is_signed
from disavow.flower.protocol import KEY_PREFIX
from disavow.proof import canonical
from disavow.proof.envelope import to_be_signed
from disavow.proof.merkle import HASH_BYTES
from disavow.proof.record import AtMost, Base64, Boolean, Hash, Key, Moment, Record, RunId, Text, constant, word

CLIENT_FILE = "client.txt"
"""Where a node's folder of evidence keeps the id under which the run knows it."""

REQUESTS = "requests/"
MOST_RECORDS = 10_000
MOST_BYTES = 1 << 20
"""Of one request."""

MOST_AT_ONCE = 16
"""How many requests one reply carries."""

_REQUEST = re.compile(rf"{REQUESTS}[0-9a-f]{{64}}\.json")
_PAYLOAD_TYPE = "application/vnd.disavow.node-request+json"
_TYPE = "disavow/node-request/v1"


@dataclass(frozen=True, kw_only=True)
class NodeRequest(Record):
    """What a node asks for.

    Args:
        run_id: The run.
        client: The id under which the run knows the client.
        unit: "client" for the whole client, "record" for some of its records.
        records: The keys of the records; none for the whole client.
        nonce: 32 random bytes: a request that comes twice counts once.
        asked_at: When it was made.

    """

    type: Annotated[str, constant(_TYPE)] = _TYPE
    run_id: Annotated[RunId, Key("run")]
    client: Text
    unit: Annotated[str, word("client", "record")]
    records: Annotated[tuple[Text, ...], AtMost(MOST_RECORDS)]
    nonce: Hash
    asked_at: Moment


@dataclass(frozen=True, kw_only=True)
class SignedRequest(Record):
    """A node's request as it is sent: the request, and where the node has a key, its signature."""

    payload: Base64
    payload_type: Annotated[str, constant(_PAYLOAD_TYPE), Key("payloadType")] = _PAYLOAD_TYPE
    public_key: Text | None
    signature: Base64 | None

    @classmethod
    def make(cls, request: NodeRequest, signer: NodeSigner | None) -> Self:
        """Sign a request.

        Args:
            request: What is asked for.
            signer: The node's key; None leaves it unsigned.

        """
        payload = request.encode()
        return cls(
            payload=payload,
            public_key=None if signer is None else signer.public_key.decode("ascii"),
            signature=None if signer is None else signer.sign(to_be_signed(payload, _PAYLOAD_TYPE)),
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what a node sent; nothing of it is believed yet.

        Args:
            data: The bytes.

        Raises:
            Unreadable: It is no such request.

        """
        what = "the node's request"
        return cls.parse(canonical.decode(data, what=what, most=MOST_BYTES), what)

    @property
    def request(self) -> NodeRequest:
        """What is asked for.

        Raises:
            Unreadable: It cannot be read.
            VerificationError: It does not say whether the client or its records are meant.

        """
        what = "the node's request"
        found = NodeRequest.parse(canonical.decode(self.payload, what=what, most=MOST_BYTES), what)
        if (found.unit == "record") != bool(found.records):
            raise VerificationError("it asks for records and names none, or for the client and names records")
        return found

    def refuse_unsigned(self, client: str) -> None:
        """Refuse a request that the holder of a client's key did not sign.

        Args:
            client: The fingerprint of that key.

        Raises:
            VerificationError: It is not signed, or by another key.

        """
        if self.public_key is None or self.signature is None:
            raise VerificationError("it is not signed with the node's key")
        key = self.public_key.encode()
        if not client.startswith(KEY_PREFIX) or fingerprint(key) != client:
            raise VerificationError("it is signed with another key than the node is known by")
        if not is_signed(key, self.signature, to_be_signed(self.payload, _PAYLOAD_TYPE)):
            raise VerificationError("its signature does not hold")


@dataclass(frozen=True, kw_only=True)
class RequestAnswer(Record):
    """What the server says of a node's request.

    Args:
        nonce: Which request it is.
        settled: Whether nothing more will come of it: it need not be sent again.
        message: What became of it, in a sentence.

    """

    nonce: Hash
    settled: Boolean
    message: Text

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what the server sent.

        Args:
            data: The bytes.

        Raises:
            Unreadable: It is no such answer.

        """
        what = "the answer to a node's request"
        return cls.parse(canonical.decode(data, what=what, most=MOST_BYTES), what)


def ask_erasure(
    evidence_dir: Path | str,
    *,
    records: Sequence[str] | None = None,
    node_key: Path | str | None = None,
    run: str | None = None,
    at: datetime | None = None,
) -> Path:
    """Ask, on a node, that its client be forgotten, or some of its records. The node's next reply carries it.

    Args:
        evidence_dir: The folder that the node config names as `evidence-dir`.
        records: The keys of the records; None for the whole client.
        node_key: The file of the node's authentication key, to sign with.
        run: The run, where the folder holds evidence of several.
        at: When it is asked; now.

    Returns:
        Where the request lies. What becomes of it is written beside it.

    Raises:
        ConfigError: The folder holds no such run, no record is named, or the key is not the client's.

    """
    folder = _run_folder(Path(evidence_dir).expanduser(), run)
    if records is not None and not 0 < len(records) <= MOST_RECORDS:
        raise ConfigError(f"{len(records)} records are named; allowed: 1 to {MOST_RECORDS:,}")
    client = (folder / CLIENT_FILE).read_text(encoding="utf-8").removesuffix("\n")
    signer = None if node_key is None else NodeSigner.load(node_key)
    if signer is not None and fingerprint(signer.public_key) != client:
        raise ConfigError(f"{node_key} is another key than the one that the run knows this node by, {client}")
    nonce = secrets.token_bytes(HASH_BYTES)
    request = NodeRequest(
        run_id=folder.name,
        client=client,
        unit="client" if records is None else "record",
        records=tuple(dict.fromkeys(records or ())),
        nonce=nonce,
        asked_at=(at or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="microseconds"),
    )
    path = folder / request_file(nonce)
    write_private(path, SignedRequest.make(request, signer).encode())
    return path


def request_file(nonce: bytes) -> str:
    """Name the file of a request, below the folder of its run."""
    return f"{REQUESTS}{nonce.hex()}.json"


def answer_file(nonce: bytes, *, settled: bool) -> str:
    """Name the file of what became of a request, below the folder of its run."""
    return f"{REQUESTS}{nonce.hex()}.{'answer' if settled else 'placed'}.txt"


def pending_requests(names: Iterable[str]) -> list[str]:
    """Choose the files of requests that nobody has answered yet, from those of a run."""
    kept = set(names)
    requests = sorted(name for name in kept if _REQUEST.fullmatch(name))
    return [name for name in requests if f"{name.removesuffix('.json')}.answer.txt" not in kept][:MOST_AT_ONCE]


def _run_folder(evidence: Path, run: str | None) -> Path:
    """The folder of a run in a node's folder of evidence: the one that is named, or the only one."""
    try:
        found = sorted(path for path in evidence.iterdir() if is_run(path.name) and (path / CLIENT_FILE).is_file())
    except OSError as error:
        raise ConfigError(
            f"{evidence} cannot be read: {error.strerror}; allowed: the node's evidence-dir"
        ) from None
    if run is not None:
        found = [path for path in found if path.name == run]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ConfigError(
            f"{evidence} holds evidence of {len(found)} such runs ({names}); allowed: the evidence-dir of a node "
            "that has been asked to train, and the id of its run where there are several"
        )
    return found[0]
