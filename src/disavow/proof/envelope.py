"""DSSE: a payload, its type, and who signed both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disavow.errors import ProofTooLarge, VerificationError
from disavow.proof import canonical
from disavow.proof.kinds import PROOF, expecting
from disavow.proof.notes import PublicKey, Signer
from disavow.proof.reading import digest, exactly, fields, from_base64, list_of, record, to_base64

LARGEST = 16 << 20
"""Bytes of an envelope that are read."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Envelope:
    """An envelope that was read, and not yet believed."""

    payload: bytes
    key_id: str
    signature: bytes


def to_be_signed(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, signer: Signer) -> bytes:
    """The envelope as a file, in canonical form; `ProofTooLarge` if no verifier would read it."""
    signature = {"keyid": signer.public.id, "sig": to_base64(signer.sign(to_be_signed(payload)))}
    told = {"payload": to_base64(payload), "payloadType": PAYLOAD_TYPE, "signatures": [signature]}
    sealed = canonical.encode(told)
    if len(sealed) > LARGEST:
        raise ProofTooLarge(
            f"a proof would have {len(sealed):,} bytes, more than the {LARGEST:,} that a verifier reads"
        )
    return sealed


def read_envelope(data: bytes) -> Envelope:
    """An envelope with exactly one signature."""
    signed = record({"keyid": digest, "sig": from_base64})
    with expecting(data, PROOF):
        value = canonical.decode(data, what="the proof", most=LARGEST)
        found = fields(
            value,
            "the envelope",
            {
                "payload": from_base64,
                "payloadType": exactly(PAYLOAD_TYPE),
                "signatures": list_of(signed, most=1),
            },
        )
    if not found["signatures"]:
        raise VerificationError("the proof is not signed")
    [signature] = found["signatures"]
    return Envelope(found["payload"], signature["keyid"], signature["sig"])


def signer_of(envelope: Envelope, trusted: Sequence[PublicKey]) -> PublicKey:
    """Whichever of the trusted keys signed the envelope."""
    for key in trusted:
        if key.id == envelope.key_id:
            if not key.holds(envelope.signature, to_be_signed(envelope.payload)):
                raise VerificationError(f"the signature of {key.name} ({key.id[:16]}) does not fit the proof")
            return key
    raise VerificationError(
        f"the proof is signed by key {envelope.key_id[:16]}, which is not among those given; "
        "a key that was replaced since stands in the server's list of keys"
    )
