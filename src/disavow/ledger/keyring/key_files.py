"""The files of a keyring that hold keys: 32 bytes at each place, overwritten where they lie.

    keys.1      the first 32 bytes are the keyring's secret; then one place after the other
    keys.2 ...  the same after a rotation, without a secret

A place that nobody has holds zeros. Deleting a row of SQLite, even with `secure_delete`, leaves copies of it in
pages that were split before; so keys are never in a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from disavow.durable_files import sync
from disavow.ledger.files import PRIVATE_FILE
from disavow.ledger.pseudonyms import KEY_BYTES

NO_KEY = bytes(KEY_BYTES)
SECRET = 0
"""The place of the keyring's secret, in the first file."""


class KeyFiles:
    """The files of keys in a folder, one for each epoch; epochs count from 1.

    Args:
        folder: The keyring's folder.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, epoch: int) -> Path:
        """Name the file of an epoch."""
        return self.folder / f"keys.{epoch}"

    def holds(self, epoch: int, capacity: int) -> bool:
        """Say whether the file of an epoch has so many places behind the first one: a shorter one was cut."""
        try:
            return self.path(epoch).stat().st_size >= (capacity + 1) * KEY_BYTES
        except FileNotFoundError:
            return False

    def read(self, epoch: int, positions: Iterable[int]) -> list[bytes]:
        """Read keys at places, in their order."""
        with self.path(epoch).open("rb") as file:
            return [
                os.pread(file.fileno(), KEY_BYTES, place * KEY_BYTES).ljust(KEY_BYTES, b"\0") for place in positions
            ]

    def read_all(self, epoch: int, capacity: int) -> list[bytes]:
        """Read the keys at the first one and so many places behind it."""
        data = self.path(epoch).read_bytes().ljust((capacity + 1) * KEY_BYTES, b"\0")
        return [data[at : at + KEY_BYTES] for at in range(0, (capacity + 1) * KEY_BYTES, KEY_BYTES)]

    def write(self, epoch: int, keys: Mapping[int, bytes], *, capacity: int, new: bool = False) -> None:
        """Write keys to their places, durably: what was there is overwritten where it lies.

        Args:
            epoch: Which file; it is made where there is none.
            keys: The keys, by place.
            capacity: How many places the file has at least, behind the first one.
            new: Whether what is left of an interrupted rotation in it is thrown away.

        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if new else 0)
        descriptor = os.open(self.path(epoch), flags, PRIVATE_FILE)
        try:
            if os.fstat(descriptor).st_size < (capacity + 1) * KEY_BYTES:
                os.ftruncate(descriptor, (capacity + 1) * KEY_BYTES)
            for place, key in sorted(keys.items()):
                written = os.pwrite(descriptor, key, place * KEY_BYTES)
                if written != len(key):
                    raise OSError(f"only {written} of {len(key)} bytes of a key were written")
            sync(descriptor)
        finally:
            os.close(descriptor)
