"""The signing key as files, outside every run: a private key, its public key, and a list of all keys with dates.

signing.pem    the private key, encrypted with a passphrase, readable by its owner alone
signing.pub    the public key, for whoever verifies
keys.json      every public key that was ever used, from when until when, for whoever verifies old proofs
retired/       private keys that were replaced
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disavow.errors import ConfigError, Unreadable
from disavow.proof import canonical
from disavow.proof.notes import PublicKey, Signer, check_name
from disavow.proof.reading import exactly, fields, list_of, moment, optional, record, text
from disavow.proof.verify import TrustedKey

PRIVATE = "signing.pem"
PUBLIC = "signing.pub"
LIST = "keys.json"
RETIRED = "retired"
KEY_VARIABLE = "DISAVOW_SIGNING_KEY"
NAME_VARIABLE = "DISAVOW_SIGNING_NAME"
PASSPHRASE_VARIABLE = "DISAVOW_PASSPHRASE"  # noqa: S105
DEFAULT_NAME = "disavow"

_LIST_TYPE = "disavow/keys/v1"
_LARGEST = 1 << 20
_SPACE = b" \t\r\n"

AskPassphrase = Callable[[Path], str | None]
"""Asks a person for the passphrase of a key file; None where nobody can be asked."""


@dataclass(frozen=True)
class Generated:
    """A new key, and where it lies."""

    public: PublicKey
    folder: Path
    replaced: PublicKey | None


def nobody_to_ask(path: Path) -> str | None:
    """There is no terminal."""
    del path
    return None


def generate(folder: Path, *, name: str, passphrase: str | None, at: str, rotate: bool = False) -> Generated:
    """Make a signing key. An existing one is never overwritten; with `rotate` it is retired."""
    check_name(name)
    private, public = folder / PRIVATE, folder / PUBLIC
    replaced = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if private.exists() or public.exists():
            if not rotate:
                raise ConfigError(
                    f"{private} is there and is never overwritten; `disavow keygen --rotate` replaces the key"
                )
            replaced = read_public(public)
            _mend_list(folder, replaced)
            (folder / RETIRED).mkdir(exist_ok=True, mode=0o700)
            private.rename(folder / RETIRED / f"{replaced.id[:16]}.pem")
            public.unlink()
        elif rotate:
            raise ConfigError(f"{folder} holds no key to rotate; `disavow keygen` makes one")
        signer = Signer(name, Ed25519PrivateKey.generate())
        _write(private, _pem(signer, passphrase), mode=0o600)
        _write(public, f"{signer.public}\n".encode(), mode=0o644)
        _add_to_list(folder, signer.public, at)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for keys: {error.strerror}") from None
    return Generated(signer.public, folder, replaced)


def _add_to_list(folder: Path, key: PublicKey, at: str) -> None:
    """List a key that is in use from a moment on; whatever was in use until then no longer is."""
    known = read_list(folder / LIST) if (folder / LIST).exists() else []
    known = [TrustedKey(each.key, each.since, each.until or at) for each in known]
    _write(folder / f".{LIST}", _list([*known, TrustedKey(key, at, None)]), mode=0o644, replace=True)
    (folder / f".{LIST}").replace(folder / LIST)


def _mend_list(folder: Path, key: PublicKey) -> None:
    """Make sure that the list has the key in use: it may have been lost, or a rotation cut off before it."""
    known = read_list(folder / LIST) if (folder / LIST).exists() else []
    if not known or known[-1].key != key:
        made = datetime.fromtimestamp((folder / PUBLIC).stat().st_mtime, UTC)
        _add_to_list(folder, key, made.isoformat(timespec="microseconds"))


def _pem(signer: Signer, passphrase: str | None) -> bytes:
    locked: KeySerializationEncryption = NoEncryption()
    if passphrase:
        locked = BestAvailableEncryption(passphrase.encode())
    return signer.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)


def _write(path: Path, data: bytes, *, mode: int, replace: bool = False) -> None:
    how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    with os.fdopen(os.open(path, how, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def load_signer(folder: Path, ask: AskPassphrase = nobody_to_ask) -> Signer | None:
    """The signing key from the environment, or else from the folder; None where there is none."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        name = check_name(os.environ.get(NAME_VARIABLE) or DEFAULT_NAME)
        return Signer(name, _unlock(given.encode(), KEY_VARIABLE, os.environ.get(PASSPHRASE_VARIABLE)))
    path = folder / PRIVATE
    try:
        if not path.exists():
            return None
        data, mode = path.read_bytes(), path.stat().st_mode & 0o077
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if mode:
        raise ConfigError(f"{path} can be read by others; `chmod 600 {path}` first")
    public = read_public(folder / PUBLIC)
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    if b"ENCRYPTED" in data and passphrase is None:
        passphrase = ask(path)
        if passphrase is None:
            raise ConfigError(f"{path} is locked; set {PASSPHRASE_VARIABLE} to its passphrase")
    signer = Signer(public.name, _unlock(data, str(path), passphrase))
    if signer.public != public:
        raise ConfigError(f"{path} and {PUBLIC} beside it are not of one key: restore them from a backup")
    with contextlib.suppress(OSError):  # the folder may be read-only
        _mend_list(folder, public)
    return signer


def _unlock(data: bytes, where: str, passphrase: str | None) -> Ed25519PrivateKey:
    try:
        encrypted = b"ENCRYPTED" in data
        key = load_pem_private_key(data, passphrase.encode() if passphrase and encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} cannot be opened: a wrong passphrase, or not a private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{where} is not an Ed25519 key")
    return key


def read_public(path: Path) -> PublicKey:
    """A public key from its file."""
    return PublicKey.parse(_read(path).strip(_SPACE).decode("utf-8", "replace"), str(path))


def read_list(path: Path) -> list[TrustedKey]:
    """All keys of a list, with their dates."""
    value = canonical.decode_any(_read(path), what=str(path), most=_LARGEST)
    entry = record({"key": text, "from": moment, "until": optional(moment)})
    found = fields(value, str(path), {"type": exactly(_LIST_TYPE), "keys": list_of(entry, most=10_000)})
    return [TrustedKey(PublicKey.parse(e["key"], str(path)), e["from"], e["until"]) for e in found["keys"]]


def trusted_keys(path: Path) -> list[TrustedKey]:
    """The keys in a file that a verifier was given: one public key, or a list with dates."""
    if _read(path).lstrip(_SPACE)[:1] == b"{":
        return read_list(path)
    return [TrustedKey(read_public(path))]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise Unreadable(f"{path} is too large to be a key")
    return data


def _list(keys: list[TrustedKey]) -> bytes:
    entries = [{"key": str(each.key), "from": each.since, "until": each.until} for each in keys]
    return canonical.encode({"type": _LIST_TYPE, "keys": entries}) + b"\n"
