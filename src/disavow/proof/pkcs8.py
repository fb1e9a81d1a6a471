"""Encrypt a private key as PKCS#8 with as many iterations of PBKDF2 as guessing a passphrase should cost.

`cryptography` writes the same file with 2,048 iterations and does not let them be chosen (it does for PKCS#12 and
OpenSSH only); it reads any number. So the key is derived and used by `cryptography`, and only the wrapping is
written here: EncryptedPrivateKeyInfo of RFC 5958 with PBES2 of RFC 8018 (PBKDF2 with HMAC-SHA-256, AES-256-CBC).
"""

from __future__ import annotations

import base64
import binascii
import os
import textwrap

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

ITERATIONS = 600_000
"""OWASP's figure for PBKDF2 with HMAC-SHA-256."""

_INTEGER, _OCTETS, _NULL, _OID, _SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_PBKDF2 = bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256 = bytes.fromhex("2a864886f70d0209")
_AES256_CBC = bytes.fromhex("60864801650304012a")
_SALT_BYTES = 16
_KEY_BYTES = 32
_BLOCK_BYTES = 16
_LONG_FORM = 0x80
_LABEL = "ENCRYPTED PRIVATE KEY"


def encrypt(key: Ed25519PrivateKey, passphrase: bytes, *, iterations: int = ITERATIONS) -> bytes:
    """Encrypt a private key with a passphrase.

    Args:
        key: The private key.
        passphrase: What it is encrypted with.
        iterations: How many iterations of PBKDF2 a guess takes.

    Returns:
        The file in PEM.
    """
    salt, vector = os.urandom(_SALT_BYTES), os.urandom(_BLOCK_BYTES)
    secret = PBKDF2HMAC(SHA256(), _KEY_BYTES, salt, iterations).derive(passphrase)
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    plain = padder.update(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())) + padder.finalize()
    cipher = Cipher(algorithms.AES256(secret), modes.CBC(vector)).encryptor()
    count = iterations.to_bytes(iterations.bit_length() // 8 + 1, "big")
    derivation = _sequence(
        _der(_OID, _PBKDF2),
        _sequence(
            _der(_OCTETS, salt),
            _der(_INTEGER, count),
            _sequence(_der(_OID, _HMAC_SHA256), _der(_NULL)),
        ),
    )
    encryption = _sequence(_der(_OID, _AES256_CBC), _der(_OCTETS, vector))
    algorithm = _sequence(_der(_OID, _PBES2), _sequence(derivation, encryption))
    wrapped = _sequence(algorithm, _der(_OCTETS, cipher.update(plain) + cipher.finalize()))
    lines = textwrap.wrap(base64.b64encode(wrapped).decode(), 64)
    return "\n".join([f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", ""]).encode()


def iterations_of(data: bytes) -> int | None:
    """With how many iterations of PBKDF2 a key in PEM is encrypted; None where it is not, or not by PBKDF2."""
    try:
        wrapped = base64.b64decode(b"".join(data.strip().splitlines()[1:-1]), validate=True)
    except binascii.Error:
        return None
    # behind its name stand SEQUENCE { OCTET STRING salt, INTEGER iterations, ... }; no length has a second byte
    _, name, rest = wrapped.partition(_der(_OID, _PBKDF2))
    try:
        salt, integer = rest[2:], rest[4 + rest[3] :]
        if not name or (rest[0], salt[0], integer[0]) != (_SEQUENCE, _OCTETS, _INTEGER):
            return None
        return int.from_bytes(integer[2 : 2 + integer[1]], "big")
    except IndexError:
        return None


def _sequence(*parts: bytes) -> bytes:
    return _der(_SEQUENCE, *parts)


def _der(tag: int, *parts: bytes) -> bytes:
    """A value of DER: tag, length, content."""
    content = b"".join(parts)
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8 or 1, "big")
    if size >= _LONG_FORM:
        length = bytes([_LONG_FORM | len(length)]) + length
    return bytes([tag]) + length + content
