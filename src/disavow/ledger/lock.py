"""One writer at a time, and a name for whoever holds the run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from disavow.errors import RunInUse
from disavow.ledger.files import open_file, open_folder, unsafe

if TYPE_CHECKING:
    import sqlalchemy as sa

NAME = "lock"


def _command() -> str:
    """What this process was called with, without its arguments: they may hold client ids."""
    program, *arguments = sys.argv or ["python"]
    path = Path(program)
    if path.name != "disavow" and path.parts[-2:] != ("disavow", "__main__.py"):
        return f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
    return " ".join(["disavow", *(word for word in arguments[:1] if word.isalpha())])


class Lock:
    """Exclusive use of a run directory, given back when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        with open_folder(directory, follow=True) as folder:
            self._descriptor = open_file(directory / NAME, os.O_RDWR | os.O_CREAT, folder)
        if os.fstat(self._descriptor).st_nlink > 1:  # it is written over: it must be nobody else's
            os.close(self._descriptor)
            raise unsafe(directory / NAME, "a hard link")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._descriptor)
            os.close(self._descriptor)
            raise RunInUse(f"{directory} is in use by {holder}; wait for it, or stop it, then try again") from None
        self._sign()

    @staticmethod
    def this_process() -> dict[str, int | str]:
        """Describe this process to others: its id, its command and since when it holds the lock."""
        return {
            "pid": os.getpid(),
            "command": _command(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _sign(self) -> None:
        holder = self.this_process()
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, only without a name
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)

    def refuse_lost(self, connection: sa.Connection) -> None:
        """Refuse to write once the lock is lost. A file's lock lasts as long as its process.

        Args:
            connection: A transaction that is about to write.

        Raises:
            RunInUse: Another process has the lock.

        """

    def release(self) -> None:
        """Let others in. Releasing twice is releasing once."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def refuse_in_use(directory: Path) -> None:
    """Refuse a run that another process writes to, without taking the lock or leaving a trace in it.

    A run whose rows are in a database server has its lock there, and is not refused here.

    Args:
        directory: The run.

    Raises:
        RunInUse: Another process holds it.

    """
    try:
        with open_folder(directory, follow=True) as folder:
            descriptor = open_file(directory / NAME, os.O_RDONLY, folder)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(descriptor)
        raise RunInUse(f"{directory} is in use by {holder}; wait for it, or stop it, then try again") from None
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Who wrote its name into a lock's file."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} ({holder['command']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
