"""DSSE: a payload, its type, and who signed both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import ProofTooLarge, VerificationError
from disavow.proof import canonical
from disavow.proof.notes import PublicKey, Signer
from disavow.proof.record import PROOF, AtMost, Base64, Digest, Key, Record, constant, expecting

LARGEST = 16 << 20
"""Bytes of an envelope that are read."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, kw_only=True)
class Signature(Record):
    """Whose signature it is, and its bytes."""

    key_id: Annotated[Digest, Key("keyid")]
    value: Annotated[Base64, Key("sig")]


@dataclass(frozen=True, kw_only=True)
class Envelope(Record):
    """An envelope that was read, and not yet believed. It has exactly one signature."""

    payload: Base64
    payload_type: Annotated[str, constant(PAYLOAD_TYPE), Key("payloadType")] = PAYLOAD_TYPE
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

    def signer(self, trusted: Sequence[PublicKey]) -> PublicKey:
        """Find which of the trusted keys signed the envelope.

        Args:
            trusted: The keys to choose from.

        Raises:
            VerificationError: None of them did, or the signature does not fit.

        """
        [signature] = self.signatures
        for key in trusted:
            if key.id == signature.key_id:
                if not key.holds(signature.value, to_be_signed(self.payload)):
                    raise VerificationError(f"the signature of {key.name} ({key.id[:16]}) does not fit the proof")
                return key
        raise VerificationError(
            f"the proof is signed by key {signature.key_id[:16]}, which is not among those given; "
            "a key that was replaced since stands in the server's list of keys"
        )


def to_be_signed(payload: bytes) -> bytes:
    """Encode a payload for signing: DSSE's pre-authentication encoding.

    Args:
        payload: What is to be signed.

    """
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, signer: Signer) -> bytes:
    """Sign a payload; the envelope as a file, in canonical form.

    Args:
        payload: What is to be signed.
        signer: Who signs it.

    Raises:
        ProofTooLarge: No verifier would read it.

    """
    signature = Signature(key_id=signer.public.id, value=signer.sign(to_be_signed(payload)))
    sealed = Envelope(payload=payload, signatures=(signature,)).encode()
    if len(sealed) > LARGEST:
        raise ProofTooLarge(
            f"a proof would have {len(sealed):,} bytes, more than the {LARGEST:,} that a verifier reads"
        )
    return sealed
