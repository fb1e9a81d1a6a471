"""The signing key as files, outside every run: a private key, its public key, and a list of all keys with dates.

signing.pem    the private key, encrypted with a passphrase, readable by its owner alone
signing.pub    the public key, for whoever verifies
keys.json      every public key that was ever used, from when until when, for whoever verifies old proofs

A private key that is replaced is destroyed. Nothing needs it any more: a run goes on with the new key, and old
proofs are verified with the public one. Whoever found it could sign for ever, with dates from when it was in use.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disavow.durable_files import sync
from disavow.errors import ConfigError, Unreadable
from disavow.proof import canonical
from disavow.proof.notes import PublicKey, Signer, TrustedKey, check_name
from disavow.proof.pkcs8 import ITERATIONS, encrypt, iterations_of
from disavow.proof.record import AtMost, Key, Moment, Record, Text, constant

PRIVATE = "signing.pem"
PUBLIC = "signing.pub"
LIST = "keys.json"
KEY_VARIABLE = "DISAVOW_SIGNING_KEY"
NAME_VARIABLE = "DISAVOW_SIGNING_NAME"
PASSPHRASE_VARIABLE = "DISAVOW_PASSPHRASE"  # noqa: S105
DEFAULT_NAME = "disavow"

_LIST_TYPE = "disavow/keys/v2"
_FIRST_LIST_TYPE = "disavow/keys/v1"
"""A list without revocations."""
_LARGEST = 1 << 20
_MOST_KEYS = 10_000
_SHORTEST_ID = 8
_RETIRED = "retired"
"""Where private keys that were replaced used to be kept."""

_logger = logging.getLogger(__name__)
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
    """Make a signing key. An existing one is never overwritten; with `rotate` it is replaced, and destroyed.

    Args:
        folder: Where the key's files are written.
        name: The name that the key signs under.
        passphrase: What the private key is encrypted with; None leaves it plain.
        at: The moment from which the key is in use.
        rotate: Replace the key that is there.

    Raises:
        ConfigError: There is a key already, or none to rotate, or the folder cannot be used.
        Unreadable: No key can have this name, or the list of keys is damaged.
    """
    check_name(name)
    private, public = folder / PRIVATE, folder / PUBLIC
    replaced = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _clear(folder)
        if not rotate and (private.exists() or public.exists()):
            raise ConfigError(
                f"{private} is there and is never overwritten; `disavow keygen --rotate` replaces the key"
            )
        if rotate and not (private.exists() or public.exists()):
            raise ConfigError(f"{folder} holds no key to rotate; `disavow keygen` makes one")
        signer = Signer(name, Ed25519PrivateKey.generate())
        if rotate:
            replaced = _rotate(folder, signer, _pem(signer, passphrase), at)
        else:
            _write(private, _pem(signer, passphrase), mode=0o600)
            _write(public, f"{signer.public}\n".encode(), mode=0o644)
            _write_list(folder, _with_new(folder, signer.public, at))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for keys: {error.strerror}") from None
    return Generated(signer.public, folder, replaced)


def _rotate(folder: Path, signer: Signer, pem: bytes, at: str) -> PublicKey:
    """Put a new key in the place of the one there is, which is destroyed once the new one is durable; the old one.

    All files are written before the first is renamed, so that a full disk changes nothing.
    """
    replaced = read_public(folder / PUBLIC)
    _mend_list(folder, replaced)
    _write(_next(folder, PRIVATE), pem, mode=0o600, replace=True)
    _write(_next(folder, PUBLIC), f"{signer.public}\n".encode(), mode=0o644, replace=True)
    _write(_next(folder, LIST), _list(_with_new(folder, signer.public, at)), mode=0o644, replace=True)
    _replace_private(folder, PRIVATE, PUBLIC, LIST)
    for path in (folder / _RETIRED).glob("*.pem"):
        _overwrite(path.open("r+b"))
        path.unlink()
    with contextlib.suppress(OSError):  # it is not there, or something else is in it
        (folder / _RETIRED).rmdir()
    return replaced


def _next(folder: Path, name: str) -> Path:
    """What a file is called until it takes its place."""
    return folder / f".{name}"


def _replace_private(folder: Path, *names: str) -> None:
    """Let files take their places, and destroy the private key that was there before."""
    with contextlib.ExitStack() as stack:
        old = None
        with contextlib.suppress(FileNotFoundError):  # it may have been lost
            old = stack.enter_context((folder / PRIVATE).open("r+b"))
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # whoever loads the key may have completed the rotation
                _next(folder, name).replace(folder / name)
        _sync(folder)
        if old is not None:
            _overwrite(old)


def _finish_rotation(folder: Path) -> None:
    """Complete a rotation that was killed between the private key and the public one; the list is mended later."""
    if _next(folder, PUBLIC).exists() and not _next(folder, PRIVATE).exists():
        _next(folder, PUBLIC).replace(folder / PUBLIC)


def _clear(folder: Path) -> None:
    """Complete a rotation that was killed between its renames, and forget one that was killed before them."""
    _finish_rotation(folder)
    for name in (PUBLIC, PRIVATE):  # in this order: a public key alone looks like a rotation to be completed
        _next(folder, name).unlink(missing_ok=True)


def _overwrite(file: BinaryIO) -> None:
    """Overwrite what a file holds, as far as the file system writes in place, and close it."""
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        file.write(bytes(size))
        file.flush()
        sync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def rewrap(folder: Path, ask: AskPassphrase = nobody_to_ask) -> PublicKey:
    """Encrypt the private key anew with the same passphrase and `ITERATIONS`.

    Args:
        folder: Where the key's files are.
        ask: Asks a person for the passphrase where the environment has none.

    Returns:
        Its public key.

    Raises:
        ConfigError: There is no key, it is not encrypted, or the passphrase is wrong.
    """
    try:
        private = folder / PRIVATE
        if not private.exists():
            raise ConfigError(f"{folder} holds no key; `disavow keygen` makes one")
        _clear(folder)
        data, public = private.read_bytes(), read_public(folder / PUBLIC)
        if not _is_encrypted(data):
            raise ConfigError(f"{private} is not encrypted; `disavow keygen --rotate` makes a key that is")
        passphrase = _passphrase_of(private, ask)
        key = _unlock(data, str(private), passphrase)
        _write(_next(folder, PRIVATE), _pem(Signer(public.name, key), passphrase), mode=0o600, replace=True)
        _replace_private(folder, PRIVATE)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for keys: {error.strerror}") from None
    return public


def revoke(folder: Path, key_id: str, *, at: str) -> PublicKey:
    """Mark a replaced key as revoked in the list: nothing that it signed is accepted any more.

    Args:
        folder: Where the list of keys is.
        key_id: The key's id, or as much of its beginning as tells it from the others.
        at: The moment of the revocation; an earlier one that is listed stays.

    Returns:
        The key that was revoked.

    Raises:
        ConfigError: No key, or more than one, has this id, or the key is in use.
    """
    known = read_list(folder / LIST)
    found = {each.key.id: each.key for each in known if each.key.id.startswith(key_id.lower())}
    if len(key_id) < _SHORTEST_ID or len(found) != 1:
        ids = ", ".join(dict.fromkeys(each.key.id[:16] for each in known))
        raise ConfigError(f"--revoke is {key_id!a}; allowed: an id of the list, by at least 8 of its digits: {ids}")
    [key] = found.values()
    if (folder / PUBLIC).exists() and read_public(folder / PUBLIC).raw == key.raw:
        raise ConfigError(f"key {key.id[:16]} is in use: replace it with `disavow keygen --rotate`, then revoke it")
    marked = [replace(each, revoked=each.revoked or at) if each.key.raw == key.raw else each for each in known]
    try:
        _write_list(folder, marked)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for keys: {error.strerror}") from None
    return key


def _with_new(folder: Path, key: PublicKey, at: str) -> list[TrustedKey]:
    """The list with a key that is in use from a moment on; whatever was in use until then no longer is."""
    known = read_list(folder / LIST) if (folder / LIST).exists() else []
    return [*(replace(each, until=each.until or at) for each in known), TrustedKey(key, at, None)]


def _write_list(folder: Path, keys: Iterable[TrustedKey]) -> None:
    _write(_next(folder, LIST), _list(keys), mode=0o644, replace=True)
    _next(folder, LIST).replace(folder / LIST)


def _mend_list(folder: Path, key: PublicKey) -> None:
    """Make sure that the list has the key in use: it may have been lost, or a rotation cut off before it."""
    known = read_list(folder / LIST) if (folder / LIST).exists() else []
    if not known or known[-1].key != key:
        made = datetime.fromtimestamp((folder / PUBLIC).stat().st_mtime, UTC)
        _write_list(folder, _with_new(folder, key, made.isoformat(timespec="microseconds")))


def _pem(signer: Signer, passphrase: str | None) -> bytes:
    if passphrase:
        return encrypt(signer.private, passphrase.encode())
    return signer.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, *, mode: int, replace: bool = False) -> None:
    how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    with os.fdopen(os.open(path, how, mode), "wb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())


def write_private(path: Path, private: Ed25519PrivateKey, passphrase: str | None) -> None:
    """Write a private key, readable by its owner alone. A file that is there is never overwritten.

    Args:
        path: Where to.
        private: The key.
        passphrase: What it is encrypted with; None leaves it plain.

    Raises:
        ConfigError: The file is there, or cannot be written.

    """
    try:
        _write(path, _pem(Signer(DEFAULT_NAME, private), passphrase), mode=0o600)
    except FileExistsError:
        raise ConfigError(f"{path} is there and is never overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def read_private(path: Path, ask: AskPassphrase = nobody_to_ask) -> Ed25519PrivateKey:
    """Read what `write_private` wrote.

    Args:
        path: The file.
        ask: Asks a person for the passphrase where the environment has none.

    Raises:
        ConfigError: There is none, others can read it, or it cannot be opened.

    """
    try:
        data, mode = path.read_bytes(), path.stat().st_mode & 0o077
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if mode:
        raise ConfigError(f"{path} can be read by others; `chmod 600 {path}` first")
    return _unlock(data, str(path), _passphrase_of(path, ask) if _is_encrypted(data) else None)


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Make the environment of a process that this one starts: without signing key and passphrase, and with `more`.

    Workers, compilers and peers of a benchmark sign nothing, and whoever may look at them should learn nothing.
    """
    kept = {name: value for name, value in os.environ.items() if name not in (KEY_VARIABLE, PASSPHRASE_VARIABLE)}
    return {**kept, **(more or {})}


def load_signer(folder: Path, ask: AskPassphrase = nobody_to_ask) -> Signer | None:
    """Load the signing key from the environment, or else from the folder.

    Args:
        folder: Where the key's files are.
        ask: Asks a person for the passphrase where the environment has none.

    Returns:
        The key, or None where there is none.

    Raises:
        ConfigError: The key cannot be opened, can be read by others, or was revoked.
        Unreadable: Its public key or its name cannot be read.
    """
    given = os.environ.get(KEY_VARIABLE)
    if given:
        name = check_name(os.environ.get(NAME_VARIABLE) or DEFAULT_NAME)
        signer = Signer(name, _unlock(given.encode(), KEY_VARIABLE, os.environ.get(PASSPHRASE_VARIABLE)))
        if _is_revoked(folder, signer.public):
            raise ConfigError(f"{KEY_VARIABLE} holds a key that was revoked: nothing that it signs is accepted")
        return signer
    path = folder / PRIVATE
    with contextlib.suppress(OSError):  # the folder may be read-only
        _finish_rotation(folder)
    try:
        if not path.exists():
            return None
        data, mode = path.read_bytes(), path.stat().st_mode & 0o077
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if mode:
        raise ConfigError(f"{path} can be read by others; `chmod 600 {path}` first")
    public = read_public(folder / PUBLIC)
    if _is_revoked(folder, public):
        raise ConfigError(f"{path} was revoked: nothing that it signs is accepted; `disavow keygen --rotate`")
    passphrase = _passphrase_of(path, ask) if _is_encrypted(data) else None
    signer = Signer(public.name, _unlock(data, str(path), passphrase))
    if signer.public != public:
        raise ConfigError(f"{path} and {PUBLIC} beside it are not of one key: restore them from a backup")
    if (iterations_of(data) or ITERATIONS) < ITERATIONS:
        _logger.warning(
            "%s is encrypted as older versions did, which is easier to guess: "
            "`disavow keygen --rewrap` encrypts it anew",
            path,
        )
    with contextlib.suppress(OSError):  # the folder may be read-only
        _mend_list(folder, public)
    return signer


def _is_revoked(folder: Path, key: PublicKey) -> bool:
    known = read_list(folder / LIST) if (folder / LIST).exists() else []
    return any(each.revoked is not None and each.key.raw == key.raw for each in known)


def _is_encrypted(data: bytes) -> bool:
    return b"ENCRYPTED" in data


def _passphrase_of(path: Path, ask: AskPassphrase) -> str:
    """The passphrase of an encrypted key, from the environment or from a person."""
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    if passphrase is None:
        passphrase = ask(path)
    if passphrase is None:
        raise ConfigError(f"{path} is locked; set {PASSPHRASE_VARIABLE} to its passphrase")
    return passphrase


def _unlock(data: bytes, where: str, passphrase: str | None) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, passphrase.encode() if passphrase and _is_encrypted(data) else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} cannot be opened: a wrong passphrase, or not a private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{where} is not an Ed25519 key")
    return key


def read_public(path: Path) -> PublicKey:
    """Read a public key from its file."""
    return _public(_read(path), str(path))


def _public(data: bytes, where: str) -> PublicKey:
    return PublicKey.parse(data.strip(_SPACE).decode("utf-8", "replace"), where)


def public_file(folder: Path) -> Path | None:
    """Find the public keys in a folder, as `disavow verify --key` takes them: the list, or else the one key.

    Args:
        folder: Where the key's files are.

    """
    return next((path for path in (folder / LIST, folder / PUBLIC) if path.is_file()), None)


def read_list(path: Path) -> list[TrustedKey]:
    """Read all keys of a list, with their dates."""
    return _keys(_read(path), str(path))


@dataclass(frozen=True, kw_only=True)
class _FirstEntry(Record):
    key: Text
    since: Annotated[Moment, Key("from")]
    until: Moment | None


@dataclass(frozen=True, kw_only=True)
class _Entry(_FirstEntry):
    revoked: Moment | None


@dataclass(frozen=True, kw_only=True)
class _FirstKeyList(Record):
    type: Annotated[str, constant(_FIRST_LIST_TYPE)] = _FIRST_LIST_TYPE
    keys: Annotated[tuple[_FirstEntry, ...], AtMost(_MOST_KEYS)]


@dataclass(frozen=True, kw_only=True)
class _KeyList(Record):
    type: Annotated[str, constant(_LIST_TYPE)] = _LIST_TYPE
    keys: Annotated[tuple[_Entry, ...], AtMost(_MOST_KEYS)]


def _keys(data: bytes, where: str) -> list[TrustedKey]:
    value = canonical.decode_any(data, what=where, most=_LARGEST)
    if isinstance(value, dict) and value.get("type") == _FIRST_LIST_TYPE:
        first = _FirstKeyList.parse(value, where).keys
        return [TrustedKey(PublicKey.parse(each.key, where), each.since, each.until) for each in first]
    return [
        TrustedKey(PublicKey.parse(each.key, where), each.since, each.until, each.revoked)
        for each in _KeyList.parse(value, where).keys
    ]


def trusted_keys(path: Path) -> list[TrustedKey]:
    """Read the keys in a file that a verifier was given: one public key, or a list with dates.

    The file is read once: it may be a pipe.
    """
    return keys_in(_read(path), str(path))


def keys_in(data: bytes, where: str) -> list[TrustedKey]:
    """Read the keys that a verifier was given: one public key, or a list with dates.

    Args:
        data: Anything.
        where: What it is called where it is refused.

    """
    if len(data) > _LARGEST:
        raise Unreadable(f"{where} is too large to be a key")
    return _keys(data, where) if data.lstrip(_SPACE)[:1] == b"{" else [TrustedKey(_public(data, where))]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise Unreadable(f"{path} is too large to be a key")
    return data


def _list(keys: Iterable[TrustedKey]) -> bytes:
    entries = [
        _Entry(key=str(each.key), since=each.since or "", until=each.until, revoked=each.revoked) for each in keys
    ]
    return _KeyList(keys=tuple(entries)).encode() + b"\n"
