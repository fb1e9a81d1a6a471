"""The serving statement: a server says which model it serves now, and as of which head of its log.

A proof names the model it is about. Without a statement nothing binds the server to serving that one: it could show
a proof about one model and serve another. See docs/proof-format.md, "The serving statement".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import VerificationError
from disavow.proof import canonical
from disavow.proof.envelope import LARGEST, Signature, find_signer, to_be_signed
from disavow.proof.leaves import ShownLeaf, parse_shown
from disavow.proof.notes import PublicKey, Signer
from disavow.proof.record import (
    SERVING,
    AtMost,
    Base64,
    Codec,
    Digest,
    Key,
    Moment,
    Record,
    Text,
    Whole,
    constant,
    expecting,
)

TYPE = "disavow/serving/v1"
PAYLOAD_TYPE = "application/vnd.disavow.serving+json"
_MOST_LEAVES = 1_000_000
_WHAT = "the serving statement"


@dataclass(frozen=True, kw_only=True)
class Serving(Record):
    """What is signed.

    Args:
        model: The SHA-256 digest of the model served, in hexadecimal: that of its safetensors file, as in a proof.
        at: When it was said, by the server's clock.
        checkpoint: The head of the log as it was then, signed with the same key.
        since: Where `leaves` begin: the head of a proof that is to be compared with a later model.
        leaves: The leaves of the log from there to the head, as a proof of version 4 has them; none where `since`
            is the head.

    """

    type: Annotated[str, constant(TYPE)] = TYPE
    model: Digest
    at: Moment
    checkpoint: Text
    since: Whole
    leaves: Annotated[
        tuple[Annotated[ShownLeaf, Codec(parse_shown, lambda leaf: leaf.to_json())], ...], AtMost(_MOST_LEAVES)
    ]


@dataclass(frozen=True, kw_only=True)
class SignedServing(Record):
    """A serving statement as a file: a DSSE envelope, read and not yet believed."""

    payload: Base64
    payload_type: Annotated[str, constant(PAYLOAD_TYPE), Key("payloadType")] = PAYLOAD_TYPE
    signatures: Annotated[tuple[Signature, ...], AtMost(1)]

    @classmethod
    def sign(cls, said: Serving, signer: Signer) -> Self:
        """Sign a statement.

        Args:
            said: The statement.
            signer: Who signs it: the key of the run's log.

        """
        payload = said.encode()
        signature = Signature(key_id=signer.public.id, value=signer.sign(to_be_signed(payload, PAYLOAD_TYPE)))
        return cls(payload=payload, signatures=(signature,))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a statement; nothing of it is believed yet.

        Args:
            data: The file.

        Raises:
            Unreadable: It is no serving statement in canonical form.
            VerificationError: It is not signed.

        """
        with expecting(data, SERVING):
            found = cls.parse(canonical.decode(data, what=_WHAT, most=LARGEST), _WHAT)
        if not found.signatures:
            raise VerificationError(f"{_WHAT} is not signed")
        return found

    @property
    def said(self) -> Serving:
        """What was signed.

        Raises:
            Unreadable: The payload is not in canonical form.

        """
        return Serving.parse(canonical.decode(self.payload, what=_WHAT, most=LARGEST), _WHAT)

    def signer(self, trusted: Sequence[PublicKey]) -> PublicKey:
        """Find which of the trusted keys signed it.

        Args:
            trusted: The keys to choose from.

        Raises:
            VerificationError: None of them did, or the signature does not fit.

        """
        [signature] = self.signatures
        return find_signer(signature, to_be_signed(self.payload, PAYLOAD_TYPE), trusted, _WHAT)
