"""What a client is called in one round, and what is sealed under its key: all of it derives from that key.

    token   the client's pseudonym in one record of a round: what its membership is found by
    salt    what its slot's commitment is closed with
    sealed  its sample count and its update's digest, encrypted and bound to their place

Without the key, a token is a random number: nothing links it to a client, to a token of another round, or to what
the client said or did. HMAC-SHA-256 derives, AES-256-GCM seals.
"""

from __future__ import annotations

import hmac
import os
import struct
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from disavow.proof.commitment import SALT_BYTES

KEY_BYTES = 32
TOKEN_BYTES = 16
NONCE_BYTES = 16
_GCM_NONCE_BYTES = 12
_MEMBER = struct.Struct(">Q32s")


@dataclass(frozen=True)
class RoundName:
    """Which round it is: the run, the round's number, which attempt at it, and a number drawn for its record.

    The last one makes the pseudonyms of a round others than those of the same attempt before a backup was restored.
    """

    run_id: str
    number: int
    attempt: int
    nonce: bytes

    @cached_property
    def encoded(self) -> bytes:
        """The same as bytes; no two rounds share them."""
        return self.run_id.encode() + struct.pack(">QQ", self.number, self.attempt) + self.nonce


def derive(key: bytes, purpose: str, context: bytes) -> bytes:
    """Derive 32 bytes from a key: HMAC-SHA-256(key, "disavow/PURPOSE/v1" ‖ 0 ‖ context).

    Args:
        key: The client's key, or the keyring's secret.
        purpose: What they are for.
        context: Where they are used.

    """
    return hmac.digest(key, _tag(purpose) + context, "sha256")


@cache
def _tag(purpose: str) -> bytes:
    return f"disavow/{purpose}/v1".encode() + b"\x00"


def token(key: bytes, where: RoundName) -> bytes:
    """Compute a client's pseudonym in a round: the round's number, and 16 bytes that derive from the key.

    The number is first so that the tokens of a round lie together in their index: random ones would be all over it,
    and recording a round would write more the more rounds there are.
    """
    return token_in(token_context(where), key)


TokenContext: TypeAlias = tuple[bytes, bytes]
"""What the tokens of a round have in common."""


def token_context(where: RoundName) -> TokenContext:
    """Prepare the tokens of a round, of which many are to be made."""
    return struct.pack(">I", where.number), _tag("token") + where.encoded


def token_in(context: TokenContext, key: bytes) -> bytes:
    """Compute a client's pseudonym in a round that was prepared."""
    number, message = context
    return number + hmac.digest(key, message, "sha256")[:TOKEN_BYTES]


def salt(key: bytes, where: RoundName) -> bytes:
    """Compute what closes the commitment of a client's slot in a round."""
    return derive(key, "salt", where.encoded)[:SALT_BYTES]


def seal_member(key: bytes, where: RoundName, slot: int, *, samples: int, update_digest: bytes) -> bytes:
    """Seal what a client brought to a round, bound to its slot."""
    return seal(key, _place(where, slot), _MEMBER.pack(samples, update_digest))


def open_member(key: bytes, where: RoundName, slot: int, sealed: bytes) -> tuple[int, bytes] | None:
    """Open what `seal_member` sealed: samples and update digest; None where it is not what was sealed there."""
    found = open_sealed(key, _place(where, slot), sealed)
    if found is None or len(found) != _MEMBER.size:
        return None
    samples, digest = _MEMBER.unpack(found)
    return samples, digest


def _place(where: RoundName, slot: int) -> bytes:
    return b"member/" + where.encoded + struct.pack(">Q", slot)


def seal(key: bytes, place: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate: nonce ‖ AES-256-GCM under a key of its own for this place.

    Args:
        key: The key to derive from.
        place: What the content is and where it belongs.
        content: The bytes.

    """
    nonce = os.urandom(_GCM_NONCE_BYTES)
    return nonce + AESGCM(derive(key, "seal", place)).encrypt(nonce, content, place)


def open_sealed(key: bytes, place: bytes, sealed: bytes) -> bytes | None:
    """Open what `seal` sealed for this place; None where it is anything else."""
    try:
        return AESGCM(derive(key, "seal", place)).decrypt(
            sealed[:_GCM_NONCE_BYTES], sealed[_GCM_NONCE_BYTES:], place
        )
    except (InvalidTag, ValueError, TypeError):
        return None
