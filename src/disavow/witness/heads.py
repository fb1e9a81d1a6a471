"""The heads that a witness has cosigned: a file for each log, in a folder that one process holds at a time.

A file is the last checkpoint of its log with the witness's cosignature, and is replaced as a whole. It is durable
before the cosignature is given to anybody: killed at any instant, the witness knows every head that it cosigned.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from pathlib import Path

from disavow.durable_files import sync
from disavow.errors import ConfigError, Unreadable, WitnessInUse
from disavow.proof.notes import Checkpoint, read_note

MOST_LOGS = 10_000
"""Logs of which heads are kept: whoever holds the key of a server can begin as many as it wants."""

_LOCK = "lock"
_NAME = re.compile(r"[0-9a-f]{64}\.txt")
_TEMPORARY = ".next"


class SeenHeads:
    """The last head of each log that was cosigned. One thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, which is made where it is not there.

        Args:
            folder: Where the heads are kept.

        Raises:
            WitnessInUse: Another process holds it.
            ConfigError: It cannot be used, or a file in it is damaged.

        """
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            self._lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self._folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used for the state of a witness: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise WitnessInUse(
                f"another process holds {folder}: two witnesses with one state could cosign two histories"
            ) from None
        try:
            self._heads = self._read(folder)
        except BaseException:
            self.close()
            raise

    def _read(self, folder: Path) -> dict[str, Checkpoint]:
        with contextlib.suppress(FileNotFoundError):  # what a killed process was writing
            os.unlink(_TEMPORARY, dir_fd=self._folder)
        found = {}
        for path in sorted(folder.iterdir()):
            if not _NAME.fullmatch(path.name):
                continue
            try:
                head = read_note(path.read_text(encoding="utf-8"), str(path), cosigned=True).head
            except (Unreadable, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"{path} is damaged, and the witness does not start without it: {error}"
                ) from None
            if _name_of(head.origin) != path.name:
                raise ConfigError(f"{path} holds the head of another log: the witness does not start with it")
            found[head.origin] = head
        return found

    def __len__(self) -> int:
        return len(self._heads)

    def of(self, origin: str) -> Checkpoint | None:
        """Return the last head of a log; None where it has none.

        Args:
            origin: The log.

        """
        return self._heads.get(origin)

    def keep(self, head: Checkpoint, note: str) -> None:
        """Keep a head in the place of the one before. It is durable when this returns.

        Args:
            head: The head.
            note: Its checkpoint, with the cosignature that is about to be given.

        Raises:
            OSError: It could not be written; the one before is kept.

        """
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(_TEMPORARY, how, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(note.encode())
            file.flush()
            sync(file.fileno())
        os.replace(_TEMPORARY, _name_of(head.origin), src_dir_fd=self._folder, dst_dir_fd=self._folder)
        sync(self._folder)
        self._heads[head.origin] = head

    def close(self) -> None:
        """Let another process have the folder."""
        for descriptor in (self._lock, self._folder):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _name_of(origin: str) -> str:
    return f"{hashlib.sha256(origin.encode()).hexdigest()}.txt"
