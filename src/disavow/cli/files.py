"""Files that a command was given, and that may be anything."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from disavow.errors import ConfigError, Unreadable
from disavow.proof import envelope

_CHUNK = 1 << 20


def read_bytes(path: Path) -> bytes:
    """What a file holds; one that cannot be ours is not read to its end."""
    try:
        with path.open("rb") as file:
            data = file.read(envelope.LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > envelope.LARGEST:
        raise Unreadable(f"{path} is larger than {envelope.LARGEST:,} bytes")
    return data


def read_lines(path: Path) -> list[str]:
    """The lines of a file, or of stdin where it is called -, without those that are empty."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8; allowed: the keys of records, one a line") from None
    return [line for line in text.splitlines() if line]


def receipts_in(folder: Path) -> list[Path]:
    """The receipts in a folder; there must be some."""
    if not folder.is_dir():
        raise Unreadable(f"{folder} is not a folder of receipts")
    found = sorted(folder.glob("*.json"))
    if not found:
        raise Unreadable(f"{folder} holds no receipts (*.json)")
    return found


def digest_of(path: Path) -> str:
    """The SHA-256 digest of a file of any size, in hexadecimal."""
    hashed = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    return hashed.hexdigest()
