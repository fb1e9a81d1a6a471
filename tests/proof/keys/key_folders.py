"""Folders with signing keys, and what is in them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disavow.proof.keys import generate
from disavow.proof.notes import PublicKey
from disavow.proof.pkcs8 import ITERATIONS, iterations_of
from tests.proof.made_proofs import SERVER

THEN = "2026-01-01T00:00:00.000000+00:00"
LATER = "2026-02-01T00:00:00.000000+00:00"
LAST = "2026-03-01T00:00:00.000000+00:00"
SECRET = "correct horse"
KEY = str(SERVER.public).encode()


def made(folder: Path, *, at: str = THEN, passphrase: str | None = None, **more: Any) -> PublicKey:
    return generate(folder, name="fl.example", passphrase=passphrase, at=at, **more).public


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


def old_key(folder: Path) -> None:
    """A key as it was encrypted before: with the few iterations that are the library's default."""
    made(folder)
    key = load_pem_private_key((folder / "signing.pem").read_bytes(), None)
    encryption = BestAvailableEncryption(SECRET.encode())
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    (folder / "signing.pem").write_bytes(data)
    few = iterations_of(data)
    assert few is not None
    assert few < ITERATIONS
