"""Signed notes and checkpoints, as C2SP's signed-note and tlog-checkpoint have them.

A note is a text, an empty line, and a line for each signature: ``— name base64(key hash ‖ signature)``. A
checkpoint is a note of three lines: the log's origin, its size, and its root in base64.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from disavow.errors import Unreadable, VerificationError
from disavow.proof.validation import from_base64, hashed, to_base64

LARGEST = 1 << 14
_ED25519 = b"\x01"
_HASH_BYTES = 4
_SIGNATURE_BYTES = 64
_KEY_BYTES = 32
LONGEST_NAME = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:/@-]{{0,{LONGEST_NAME - 1}}}")
_SIZE = re.compile(r"0|[1-9][0-9]{0,14}")
_DASH = "\N{EM DASH}"


def check_name(name: str) -> str:
    """Check a key's name: letters and digits of ASCII, and a few signs.

    Args:
        name: The name, which is returned.

    Raises:
        Unreadable: No key can have it.

    """
    if not _NAME.fullmatch(name):
        raise Unreadable(f"a key's name has 1 to 100 of A-Z a-z 0-9 . _ : / @ -; got {name[:100]!a}")
    return name


@dataclass(frozen=True)
class PublicKey:
    """Whom a signature is by. As text: ``name+hash+base64``, the verifier key of C2SP's signed-note."""

    algorithm: ClassVar[bytes] = _ED25519
    """The byte that C2SP gives to what the key signs: here, notes."""

    kind: ClassVar[str] = "an Ed25519 key"
    """What the key is, for an error."""

    name: str
    raw: bytes

    @property
    def id(self) -> str:
        """SHA-256 of the 32 bytes of the key, in hexadecimal."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def hash(self) -> bytes:
        """The four bytes by which a note refers to the key."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.algorithm + self.raw).digest()[:_HASH_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.hash.hex()}+{to_base64(self.algorithm + self.raw)}"

    @classmethod
    def parse(cls, text: str, where: str = "the public key") -> Self:
        """Read what `str` wrote.

        Args:
            text: ``name+hash+base64``.
            where: Where it stands, for the error.

        Raises:
            Unreadable: It is no public key.

        """
        # nothing of the text is repeated in an error: it may be a private key, given by mistake
        if "PRIVATE KEY-----" in text:
            raise Unreadable(f"{where} is a private key, which is to be shown to nobody; give the public one")
        parts = text.split("+", 2)
        if len(parts) != 3 or not _NAME.fullmatch(parts[0]):  # noqa: PLR2004
            raise Unreadable(f"{where} is not of the form name+hash+base64")
        data = from_base64(parts[2], where)
        key = cls(parts[0], data[1:])
        if data[:1] != cls.algorithm or len(key.raw) != _KEY_BYTES or str(key) != text:
            raise Unreadable(f"{where} is damaged, or not {cls.kind}")
        return key

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Say whether this is the key's signature of a message.

        Args:
            signature: 64 bytes.
            message: What was signed.

        """
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, repr=False)
class Signer:
    """A private key with its name."""

    name: str
    private: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        """What others check its signatures with."""
        return PublicKey(self.name, self.private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Sign a message; 64 bytes.

        Args:
            message: What to sign.

        """
        return self.private.sign(message)


@dataclass(frozen=True)
class Checkpoint:
    """The head of a log: how many leaves it has, and their root."""

    origin: str
    size: int
    root: bytes

    @property
    def body(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{to_base64(self.root)}\n"

    def signed(self, signer: Signer) -> str:
        """Write the note, with one signature.

        Args:
            signer: Who signs it.

        """
        return f"{self.body}\n{write_signature(signer.public, signer.sign(self.body.encode()))}\n"


def origin_of(run_id: str) -> str:
    """Name the origin of a run's log.

    Args:
        run_id: The run.

    """
    return f"disavow/run/{run_id}"


Line = tuple[str, bytes]
"""What a signature line says of its key: the name, and the four bytes of its hash."""


@dataclass(frozen=True)
class TrustedKey:
    """A key that the verifier trusts, and between which moments; no moment means no limit.

    Args:
        key: The key.
        since: From when on it was in use.
        until: When it was replaced.
        revoked: When it was revoked. Nothing that it ever signed is accepted: a thief writes any date.

    """

    key: PublicKey
    since: str | None = None
    until: str | None = None
    revoked: str | None = None

    def in_use(self, time: str) -> bool:
        """Say whether the key was in use then.

        Args:
            time: A moment, or a day.

        """
        return (self.since is None or self.since[: len(time)] <= time) and not self.retired_before(time)

    def retired_before(self, time: str) -> bool:
        """Say whether the key had been replaced by then.

        Args:
            time: A moment, or a day: then, on a day before.

        """
        return self.until is not None and self.until[: len(time)] < time


class KeyIndex:
    """Keys by the name and hash under which a note refers to them, each once; and when which bytes were revoked."""

    def __init__(self, keys: Iterable[PublicKey], revoked: Mapping[bytes, str] | None = None) -> None:
        self._keys: dict[Line, list[PublicKey]] = {}
        self._revoked = revoked or {}
        for key in dict.fromkeys(keys):
            self._keys.setdefault((key.name, key.hash), []).append(key)

    @classmethod
    def of(cls, trusted: Sequence[TrustedKey]) -> KeyIndex:
        """Index trusted keys; a key is revoked if one of the entries with its bytes says so.

        Args:
            trusted: The keys that a verifier trusts.

        """
        revoked = {each.key.raw: each.revoked for each in trusted if each.revoked is not None}
        return cls((each.key for each in trusted), revoked)

    def under(self, line: Line) -> list[PublicKey]:
        """Find the keys that a signature line may be by.

        Args:
            line: The name and hash of the line.

        """
        return self._keys.get(line, [])

    def refuse_revoked(self, key: PublicKey, what: str) -> None:
        """Refuse what was signed with a revoked key.

        Args:
            key: The key that signed.
            what: What it signed, for the error.

        Raises:
            VerificationError: The key was revoked.

        """
        if key.raw in self._revoked:
            raise VerificationError(
                f"{what} is signed with the key of {key.name} ({key.id[:16]}), which was revoked at "
                f"{self._revoked[key.raw]}: nothing that it signed is accepted"
            )


@dataclass(frozen=True)
class Note:
    """A checkpoint that was read. Nobody has checked its signatures, which are kept by the line's key."""

    head: Checkpoint
    signatures: dict[Line, list[bytes]]

    def holds(self, key: PublicKey, line: Line) -> bool:
        """Say whether every signature under a line is the key's.

        Args:
            key: The key.
            line: A line of the note.

        """
        message = self.head.body.encode()
        return all(
            len(signature) == _SIGNATURE_BYTES and key.holds(signature, message)
            for signature in self.signatures[line]
        )


def open_checkpoint(
    note: str, key: PublicKey, what: str = "the checkpoint", *, cosigned: bool = False
) -> Checkpoint:
    """Read the checkpoint in a note, which this key must have signed.

    Args:
        note: The note.
        key: Who must have signed it.
        what: What the note is, for the error.
        cosigned: Whether others may have signed it too.

    Raises:
        VerificationError: The key did not sign it.

    """
    read, line = read_note(note, what, cosigned=cosigned), (key.name, key.hash)
    if line not in read.signatures:
        raise VerificationError(f"{what} is not signed by {key.name} ({key.id[:16]})")
    if not read.holds(key, line):
        raise VerificationError(f"{what} bears a false signature of {key.name} ({key.id[:16]})")
    return read.head


def open_with_any(note: str, keys: KeyIndex, what: str, *, cosigned: bool = False) -> Checkpoint:
    """Read the checkpoint in a note, which one of these keys must have signed; a revoked one does not count.

    Dates are not looked at: a checkpoint does not say when it was signed.

    Args:
        note: The note.
        keys: The keys of which one must have signed it.
        what: What the note is, for the error.
        cosigned: Whether others may have signed it too.

    Raises:
        VerificationError: None of them signed it, or only a revoked one.

    """
    read = read_note(note, what, cosigned=cosigned)
    refused = VerificationError(f"{what} is not signed by a key that was given")
    for key in (key for line in read.signatures for key in keys.under(line) if read.holds(key, line)):
        try:
            keys.refuse_revoked(key, what)
        except VerificationError as revoked:
            refused = revoked
        else:
            return read.head
    raise refused


def read_note(note: str, what: str, *, cosigned: bool = False) -> Note:
    """Read a note of three lines and its signatures, none of which is checked.

    Args:
        note: The note.
        what: What it is, for the error.
        cosigned: Whether it may have more than one signature.

    Raises:
        Unreadable: It is no such note.

    """
    if len(note) > LARGEST:
        raise Unreadable(f"{what} is longer than {LARGEST:,} characters")
    try:
        note.encode()
    except UnicodeEncodeError:
        raise Unreadable(f"{what} is no proper text") from None
    body, separator, signatures = note.rpartition("\n\n")
    lines = body.split("\n")
    if not separator or len(lines) != 3 or not signatures.endswith("\n"):  # noqa: PLR2004
        raise Unreadable(f"{what} is not a note of three lines with a signature")
    origin, size, root = lines
    if not origin or not _SIZE.fullmatch(size):
        raise Unreadable(f"{what} does not say how long the log is")
    found = Note(Checkpoint(origin, int(size), hashed(root, f"the root of {what}")), {})
    signed = signatures[:-1].split("\n")
    if len(signed) > 1 and not cosigned:
        raise Unreadable(f"{what} bears more than one signature")
    for text in signed:
        line, signature = read_signature(text, what)
        found.signatures.setdefault(line, []).append(signature)
    return found


def write_signature(key: PublicKey, signature: bytes) -> str:
    """Write a line with a signature, without its end.

    Args:
        key: Whose it is.
        signature: The bytes behind the hash of the key.

    """
    return f"{_DASH} {key.name} {to_base64(key.hash + signature)}"


def read_signature(text: str, what: str) -> tuple[Line, bytes]:
    """Read a line with a signature: whose it is, and the bytes behind the hash of the key.

    Args:
        text: The line, without its end.
        what: What it stands in, for the error.

    Raises:
        Unreadable: It is no such line.

    """
    dash, _, rest = text.partition(" ")
    name, _, encoded = rest.partition(" ")
    if dash != _DASH:
        raise Unreadable(f"{what} holds a line that is no signature")
    check_name(name)
    data = from_base64(encoded, f"a signature of {what}")
    if len(data) <= _HASH_BYTES:
        raise Unreadable(f"{what} holds a line that is no signature")
    return (name, data[:_HASH_BYTES]), data[_HASH_BYTES:]
