"""The operator's keys, which lie outside every run directory.

The key of the tombstones is one of them. A tombstone is a keyed hash of a leaver's id; without the key it says
nothing about who left, with it the operator can refuse the leaver's return and answer a second request. The key of
each run that decides which clients take part in which round derives from it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from disavow.errors import ConfigError, LedgerError
from disavow.ledger.files import write_durably

ENVIRONMENT = "DISAVOW_KEYS"
TOMBSTONE_KEY = "tombstone.key"
_KEY_BYTES = 32


def default_folder() -> Path:
    """Where the operator's keys lie: `DISAVOW_KEYS`, or .disavow/keys in the home directory."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".disavow" / "keys")


def has_tombstone_key(folder: Path) -> bool:
    """Whether the key has been made."""
    return (folder / TOMBSTONE_KEY).exists()


def tombstone_key(folder: Path, *, run: Path) -> bytes:
    """Read the key of the tombstones, or make it on first use.

    Args:
        folder: Where the operator's keys lie.
        run: The run directory, inside which the key never lies.

    Returns:
        The key.

    Raises:
        ConfigError: The folder lies inside the run or cannot be used, or the key is damaged.
    """
    if folder.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{ENVIRONMENT} is {folder}; allowed: a folder outside the run directory {run}")
    path = folder / TOMBSTONE_KEY
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(path, secrets.token_bytes(_KEY_BYTES), mode=0o600, replace=False)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{ENVIRONMENT} is {folder}, which cannot be used: {error.strerror}; allowed: a folder for keys"
        ) from None
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path} has {len(key)} bytes; it must have {_KEY_BYTES}: restore it from a backup")
    return key


def fingerprint(key: bytes) -> str:
    """What the ledger remembers of the key, to notice another one."""
    return hashlib.sha256(b"disavow/tombstone-key/v1\x00" + key).hexdigest()[:32]


def participation_key(key: bytes, run_id: str) -> bytes:
    """Derive the key by which the clients of a run are ranked where fewer than all take part in a round.

    A proof lists the rounds of a leaver who is not named; whoever could work out the schedules would know the name.

    Args:
        key: The key of the tombstones.
        run_id: The run.
    """
    return hmac.digest(key, b"disavow/participation/v1\x00" + run_id.encode(), "sha256")


def tombstone(key: bytes, run_id: str, client: str) -> bytes:
    """Compute the keyed hash that stands for a leaver of a run.

    Args:
        key: The key of the tombstones.
        run_id: The run.
        client: The leaver's id.
    """
    return hmac.digest(key, b"disavow/tombstone/v1\x00" + run_id.encode() + b"\x00" + client.encode(), "sha256")


def another_key() -> LedgerError:
    """What to do where a run goes by another key than the one at hand."""
    return LedgerError(
        "the tombstones of this run, or who takes part in its rounds, were made with another key: "
        "point DISAVOW_KEYS to the folder that holds it"
    )
