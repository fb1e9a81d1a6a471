"""DSSE: a payload, its type, and who signed both."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import ProofTooLarge, Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.notes import PublicKey, Signer
from disavow.proof.record import PROOF, AtMost, Base64, Digest, Key, Record, expecting, word

LARGEST = 16 << 20
"""Bytes of an envelope that are read."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PACKED_TYPE = "application/vnd.disavow.in-toto+zlib"
"""The same, compressed."""


@dataclass(frozen=True, kw_only=True)
class Signature(Record):
    """Whose signature it is, and its bytes."""

    key_id: Annotated[Digest, Key("keyid")]
    value: Annotated[Base64, Key("sig")]


@dataclass(frozen=True, kw_only=True)
class Envelope(Record):
    """An envelope that was read, and not yet believed. It has exactly one signature."""

    payload: Base64
    payload_type: Annotated[str, word(PAYLOAD_TYPE, PACKED_TYPE), Key("payloadType")] = PAYLOAD_TYPE
    signatures: Annotated[tuple[Signature, ...], AtMost(1)]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an envelope.

        Args:
            data: The file.

        Raises:
            Unreadable: It is no envelope in canonical form.
            VerificationError: It is not signed.

        """
        with expecting(data, PROOF):
            found = cls.parse(canonical.decode(data, what="the proof", most=LARGEST), "the envelope")
        if not found.signatures:
            raise VerificationError("the proof is not signed")
        return found

    @property
    def statement(self) -> bytes:
        """The statement that it holds, unpacked.

        Raises:
            Unreadable: It is not packed as it should be, or larger than what is read.

        """
        return self.payload if self.payload_type == PAYLOAD_TYPE else _unpacked(self.payload)

    def signer(self, trusted: Sequence[PublicKey]) -> PublicKey:
        """Find which of the trusted keys signed the envelope.

        Args:
            trusted: The keys to choose from.

        Raises:
            VerificationError: None of them did, or the signature does not fit.

        """
        [signature] = self.signatures
        return find_signer(signature, to_be_signed(self.payload, self.payload_type), trusted, "the proof")


def find_signer(signature: Signature, message: bytes, trusted: Sequence[PublicKey], what: str) -> PublicKey:
    """Find which of the trusted keys made a signature.

    Args:
        signature: The signature.
        message: What was signed.
        trusted: The keys to choose from.
        what: What was signed, for the error.

    Raises:
        VerificationError: None of them did, or the signature does not fit.

    """
    for key in trusted:
        if key.id == signature.key_id:
            if not key.holds(signature.value, message):
                raise VerificationError(f"the signature of {key.name} ({key.id[:16]}) does not fit {what}")
            return key
    raise VerificationError(
        f"{what} is signed by key {signature.key_id[:16]}, which is not among those given; "
        "a key that was replaced since stands in the server's list of keys"
    )


def _unpacked(payload: bytes) -> bytes:
    """Decompress no more than what is read, of one zlib stream without anything behind it."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(payload, LARGEST + 1)
    except zlib.error:
        raise Unreadable("the payload is not packed as it should be") from None
    if len(found) > LARGEST:
        raise Unreadable(f"the payload unpacks to more than the {LARGEST:,} bytes that are read")
    if not stream.eof or stream.unused_data:
        raise Unreadable("the payload is cut short, or something follows it")
    return found


def to_be_signed(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Encode a payload for signing: DSSE's pre-authentication encoding.

    Args:
        payload: What is to be signed.
        payload_type: What it is.

    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(statement: bytes, signer: Signer, *, packed: bool = False) -> bytes:
    """Sign a statement; the envelope as a file, in canonical form.

    Args:
        statement: What is to be signed.
        signer: Who signs it.
        packed: Whether it is compressed.

    Raises:
        ProofTooLarge: No verifier would read it.

    """
    payload, kind = (zlib.compress(statement, 9), PACKED_TYPE) if packed else (statement, PAYLOAD_TYPE)
    signature = Signature(key_id=signer.public.id, value=signer.sign(to_be_signed(payload, kind)))
    sealed = Envelope(payload=payload, payload_type=kind, signatures=(signature,)).encode()
    size = max(len(sealed), len(statement))
    if size > LARGEST:
        raise ProofTooLarge(f"a proof would have {size:,} bytes, more than the {LARGEST:,} that a verifier reads")
    return sealed
