"""The folders of keyrings: their owner's alone, and locked while one is being made."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from disavow.ledger.files import PRIVATE_FOLDER
from disavow.ledger.keyring.store import FOLDER

_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.new")


def unfinished_in(keys: Path) -> list[Path]:
    """Find keyrings that were being made by processes that are no more. No run goes by them.

    Args:
        keys: The folder of the operator's keys.

    """
    found = []
    for path in sorted((keys / FOLDER).glob(".*.new")):
        if _UNFINISHED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            lock = try_lock(path)
            if lock is not None:
                os.close(lock)
                found.append(path)
    return found


def try_lock(folder: Path) -> int | None:
    """Lock a folder for this process; None where another one holds it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Lock a folder, once whoever else holds it is done."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_private_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing: their owner's alone."""
    for each in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            each.mkdir(mode=PRIVATE_FOLDER)
