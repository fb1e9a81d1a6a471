"""A client's word that it removed records, signed with a key of its own.

Nobody can prove that something was deleted. So a proof says that it is the client's word, and where the client has
a key, such as a Flower node's, the word is a file that holds the client to it. The file names the client by its
key: the run and the proof have only its digest, which tells nothing to whoever has not the file, because of the
`nonce`.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from disavow.errors import Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.envelope import to_be_signed
from disavow.proof.record import WORD, Base64, Hash, Key, Moment, Record, RunId, constant, expecting

TYPE = "disavow/word/v1"
PAYLOAD_TYPE = "application/vnd.disavow.word+json"
_TAG = b"disavow/word/v1\x00"
_NONCE_BYTES = 32
_MOST_BYTES = 1 << 16

PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey
_PublicKey = EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, kw_only=True)
class Word(Record):
    """What is signed: the records of this request, by the commitment in the log, are no longer held.

    Args:
        run: The run.
        records: The commitment to the records in the log (`LoggedRequest.records`).
        at: When they were removed, by the client's clock.
        nonce: 32 random bytes: without the file, nobody can tell by its digest whose word it is.

    """

    run: RunId
    records: Hash
    at: Moment
    nonce: Hash


@dataclass(frozen=True, kw_only=True)
class SignedWord(Record):
    """A word as a file.

    `public_key` is a SubjectPublicKeyInfo in DER: Ed25519, or ECDSA on P-256 or P-384 with SHA-256.
    """

    type: Annotated[str, constant(TYPE)] = TYPE
    payload: Base64
    public_key: Annotated[Base64, Key("publicKey")]
    signature: Base64

    @classmethod
    def sign(cls, key: PrivateKey, *, run: str, records: bytes, at: str) -> Self:
        """Give a word.

        Args:
            key: The client's private key.
            run: The run.
            records: The commitment to the records, 32 bytes.
            at: When they were removed, as leaves have it.

        """
        payload = Word(run=run, records=records, at=at, nonce=secrets.token_bytes(_NONCE_BYTES)).encode()
        message = to_be_signed(payload, PAYLOAD_TYPE)
        signature = key.sign(message) if isinstance(key, Ed25519PrivateKey) else key.sign(message, _ECDSA)
        der, info = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return cls(payload=payload, public_key=key.public_key().public_bytes(der, info), signature=signature)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a word; nothing of it is believed yet.

        Args:
            data: The file.

        Raises:
            Unreadable: It is no word in canonical form.

        """
        with expecting(data, WORD):
            return cls.parse(canonical.decode(data, what="the word", most=_MOST_BYTES), "the word")

    @cached_property
    def word(self) -> Word:
        """What was signed.

        Raises:
            Unreadable: The payload is not in canonical form.

        """
        return Word.parse(canonical.decode(self.payload, what="the word", most=_MOST_BYTES), "the word")

    @property
    def digest(self) -> bytes:
        """What stands for the file in the run and in the proof."""
        return hashlib.sha256(_TAG + self.encode()).digest()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hexadecimal."""
        return hashlib.sha256(self.public_key).hexdigest()

    def check(self, *, run: str, records: bytes) -> None:
        """Refuse a word of another run or request, or one whose signature does not hold.

        Args:
            run: The run.
            records: The commitment to the records of the request.

        Raises:
            Unreadable: It is no word, or its key is of a kind that is not read.
            VerificationError: It does not hold.

        """
        if (self.word.run, self.word.records) != (run, records):
            raise VerificationError("the word is about other records")
        key = _read_key(self.public_key)
        message = to_be_signed(self.payload, PAYLOAD_TYPE)
        try:
            if isinstance(key, Ed25519PublicKey):
                key.verify(self.signature, message)
            else:
                key.verify(self.signature, message, _ECDSA)
        except InvalidSignature:
            raise VerificationError("the signature of the word does not hold") from None


_ECDSA = ECDSA(hashes.SHA256())


def _read_key(data: bytes) -> _PublicKey:
    try:
        key = serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise Unreadable("the key of the word cannot be read") from None
    curve = key.curve if isinstance(key, EllipticCurvePublicKey) else None
    if isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey) and isinstance(curve, _CURVES):
        found = key.public_bytes(serialization.Encoding.DER, _SPKI)
        if found == data:
            return key
    raise Unreadable("the key of the word is not Ed25519, P-256 or P-384 in DER")


_CURVES = (NoneType, SECP256R1, SECP384R1)
_SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
