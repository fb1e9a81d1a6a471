"""Tombstones beside the operator's keys: a run that was restored from a backup has forgotten who left it since.

`KEYS/tombstones/RUN_ID` has one line that names the key, and then one for each leaver: its tombstone in
hexadecimal, never its id. A line is durable before anything of that leaver is deleted from the run.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from disavow.errors import ConfigError, LedgerError
from disavow.ledger.files import sync, sync_folder
from disavow.ledger.keys import ENVIRONMENT, another_key, fingerprint, has_tombstone_key, tombstone, tombstone_key
from disavow.ledger.schema import clients, requests, run

FOLDER = "tombstones"
RESTORED = "restored from a backup"
"""What is noted of requests that are placed because of a tombstone."""

_HEADER = "disavow tombstones v1, key "
_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Restored:
    """What a run has forgotten and its tombstones have not: it was restored from a backup.

    `clients` left it and are in it again; `strangers` so many others left it, whom it has never known. Without the
    key, nobody is recognised: then all of them are `strangers`.
    """

    clients: tuple[str, ...] = ()
    strangers: int = 0

    def __str__(self) -> str:
        again, more = len(self.clients), self.strangers
        told = []
        if again:
            told.append(f"{again} who left {'is' if again == 1 else 'are'} in it again")
        if more:
            told.append(f"{more} who left {'is' if more == 1 else 'are'} unknown to it")
        return f"older than its tombstones, as if restored from a backup: {', '.join(told)}" if told else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell whoever has opened the run for writing."""
        if not str(self):
            return ()
        first = "; whoever is in it again is withdrawn first" if self.clients else ""
        return (f"this run is {self}{first} (docs/backup.md)",)


def listed(keys: Path, run_id: str) -> tuple[str, tuple[bytes, ...]]:
    """Read the tombstones of a run that are listed beside the keys.

    Args:
        keys: Where the operator's keys lie.
        run_id: The run.

    Returns:
        The fingerprint of the key that they were made with, and the tombstones in order.

    Raises:
        ConfigError: The list cannot be read, or is damaged.
        LedgerError: The run's id is not one.
    """
    path = _path(keys, run_id)
    try:
        return _parse(path, path.read_bytes())
    except FileNotFoundError:
        return "", ()
    except OSError as error:
        raise _unusable(path, error) from None


def remember(keys: Path, run_id: str, key: str, stones: Sequence[bytes]) -> None:
    """List tombstones durably; what is listed already stays where it is.

    Args:
        keys: Where the operator's keys lie.
        run_id: The run.
        key: The fingerprint of the key that the tombstones were made with.
        stones: The tombstones.

    Raises:
        ConfigError: The list cannot be written, or is damaged.
        LedgerError: The list was made with another key, or the run's id is not one.
    """
    path = _path(keys, run_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two copies of a run may be at work at once
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            file.truncate(len(whole))  # a line that a crash cut off: nobody was deleted because of it
            made_with, known = _parse(path, whole)
            if made_with not in ("", key):
                raise another_key()
            new = [stone.hex() for stone in dict.fromkeys(stones) if stone not in set(known)]
            lines = new if whole else [f"{_HEADER}{key}", *new]
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            sync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, error) from None


def restored(connection: sa.Connection, keys: Path, *, directory: Path, write: bool = False) -> Restored:
    """Whom a run has forgotten. Linear in its clients, and only where there is somebody.

    To `write` to it, the list must be readable and its key be there; then those who wait already are left out.
    """
    run_id: str = connection.execute(sa.select(run.c.run_id)).scalar_one()
    if not write and not os.access(keys, os.R_OK | os.X_OK):
        return Restored()  # somebody else's keys
    made_with, stones = listed(keys, run_id)
    # a tombstone is listed once there is a verdict: a request that only waits is from before, or was placed again
    again = requests.c.cancelled_at.is_(None) if write else requests.c.erasure.is_not(None)
    asked = set(connection.execute(sa.select(requests.c.tombstone).where(again)).scalars())
    missing = [stone for stone in stones if stone not in asked]
    if not missing:
        return Restored()
    if not has_tombstone_key(keys):
        if write:
            raise another_key()
        return Restored(strangers=len(missing))
    key = tombstone_key(keys, run=directory)
    if fingerprint(key) != made_with:
        if write:
            raise another_key()
        return Restored(strangers=len(missing))
    ids = connection.execute(sa.select(clients.c.id)).scalars()
    known = {tombstone(key, run_id, client): client for client in ids}
    back = tuple(known[stone] for stone in missing if stone in known)
    return Restored(back, len(missing) - len(back))


def _path(keys: Path, run_id: str) -> Path:
    if not _RUN_ID.fullmatch(run_id):
        raise LedgerError("the ledger is damaged: the id of the run is not 32 hexadecimal digits")
    return keys / FOLDER / run_id


def _parse(path: Path, data: bytes) -> tuple[str, tuple[bytes, ...]]:
    """What the lines say; the last one may have been cut off, any other must be whole."""
    try:
        header, *lines = data[: data.rfind(b"\n") + 1].decode("ascii").splitlines() or [""]
        if header and not header.startswith(_HEADER):
            raise ValueError(header)
        return header.removeprefix(_HEADER), tuple(_stone(line) for line in lines)
    except ValueError:
        raise ConfigError(f"{path} is damaged: restore it from a backup of your keys") from None


def _stone(line: str) -> bytes:
    if not re.fullmatch(r"[0-9a-f]{64}", line):
        raise ValueError(line)
    return bytes.fromhex(line)


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be used: {error.strerror}; {ENVIRONMENT} names a folder that can be written")
