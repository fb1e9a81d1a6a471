"""Keys and lists of keys that somebody trusts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.proof.second_verifier.reading import (
    MIB,
    UnreadableError,
    a_string,
    fields,
    list_of,
    need,
    optional,
    parse,
    sha,
    text,
    time,
    unbase64,
)


@dataclass(frozen=True)
class Key:
    """A public key. Two are the same if name and bytes are."""

    name: str
    public: bytes

    @property
    def short(self) -> bytes:
        """The hash in its text and in signature lines."""
        return sha(self.name.encode(), b"\n\x01", self.public)[:4]

    @property
    def id(self) -> str:
        """The id, a digest."""
        return sha(self.public).hex()

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature is this key's."""
        if len(signature) != 64:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")


def parse_key(value: Any) -> Key:
    """Read `name+hash+base64`."""
    text(value)
    parts = value.split("+", 2)
    need(len(parts) == 3, "no key")
    name, short, encoded = parts
    need(KEY_NAME.fullmatch(name) is not None, "no name of a key")
    decoded = unbase64(encoded)
    need(len(decoded) == 33 and decoded[0] == 1, "no Ed25519 key")
    key = Key(name, decoded[1:])
    need(key.short.hex() == short, "the key's hash is another")
    return key


def is_key(value: Any) -> None:
    """A public key as text."""
    parse_key(value)


@dataclass(frozen=True)
class Witness(Key):
    """The key of a witness ("Cosignatures")."""

    @property
    def short(self) -> bytes:
        """The hash in its text and in signature lines."""
        return sha(self.name.encode(), b"\n\x04", self.public)[:4]


def parse_witnesses(data: bytes) -> list[Witness]:
    """Read a file with keys of witnesses, one a line ("Cosignatures")."""
    need(len(data) <= MIB, "too many bytes")
    try:
        lines = [line.strip(" \t\r") for line in data.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise UnreadableError("no UTF-8") from error
    found = []
    for line in filter(None, lines):
        parts = line.split("+", 2)
        need(len(parts) == 3 and KEY_NAME.fullmatch(parts[0]) is not None, "no key")
        decoded = unbase64(parts[2])
        need(len(decoded) == 33 and decoded[0] == 4, "no key of a witness")
        found.append(Witness(parts[0], decoded[1:]))
        need(found[-1].short.hex() == parts[1], "the key's hash is another")
    need(0 < len(found) <= 1_000, "no witness, or too many")
    return found


@dataclass(frozen=True)
class Trusted:
    """A key that the verifier trusts, with its dates."""

    key: Key
    start: str | None = None
    end: str | None = None
    revoked: str | None = None

    def allows(self, moment: str, *, late: bool) -> bool:
        """Check 7: both ends are included; a log that names no key may be older than it; of a day, days count."""
        start, end = (each and each[: len(moment)] for each in (self.start, self.end))
        return (late or start is None or start <= moment) and (end is None or moment <= end)


def not_revoked(keys: Sequence["Trusted"]) -> list["Trusted"]:
    """Those of which no entry with the same bytes is revoked ("Public keys")."""
    revoked = {each.key.public for each in keys if each.revoked is not None}
    return [each for each in keys if each.key.public not in revoked]


DATED = {"key": is_key, "from": time, "until": optional(time)}
KEY_LISTS = {
    "disavow/keys/v1": DATED,
    "disavow/keys/v2": {**DATED, "revoked": optional(time)},
}


def parse_keys(data: bytes) -> list[Trusted]:
    """Read a key file: one public key or a list ("Public keys")."""
    need(len(data) <= MIB, "too many bytes")
    stripped = data.strip(b" \t\r\n")
    if stripped.startswith(b"{"):
        value = parse(data, MIB)
        kind = value.get("type")
        need(isinstance(kind, str) and kind in KEY_LISTS, "no key list")
        fields({"type": a_string, "keys": list_of(fields(KEY_LISTS[kind]), 10_000)})(value)
        return [
            Trusted(parse_key(entry["key"]), entry["from"], entry["until"], entry.get("revoked"))
            for entry in value["keys"]
        ]
    try:
        return [Trusted(parse_key(stripped.decode()))]
    except UnicodeDecodeError as error:
        raise UnreadableError("no UTF-8") from error


# "Merkle trees", "Commitments", "Inside a round", "The map of withdrawals"
