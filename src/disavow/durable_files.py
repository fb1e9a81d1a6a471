"""Write files that a power cut leaves whole: the standard library alone, for every part that keeps something."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets

_NOT_THERE = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}
"""What the system answers where a file system cannot flush the drive's cache."""


def sync(descriptor: int) -> None:
    """Make what was written durable. On macOS `fsync` leaves it in the drive's cache, which a power cut empties.

    Args:
        descriptor: Of an open file or folder.

    """
    os.fsync(descriptor)
    flush_drive = getattr(fcntl, "F_FULLFSYNC", None)
    if flush_drive is not None:
        try:
            fcntl.fcntl(descriptor, flush_drive)
        except OSError as error:
            if error.errno not in _NOT_THERE:  # not every file system has it
                raise


def write_into(folder: int, name: str, data: bytes, *, mode: int, replace: bool = True) -> None:
    """Write a file so that after a crash it is there whole or not at all.

    Args:
        folder: The descriptor of an open folder.
        name: Of the file in it.
        data: What it is to hold.
        mode: Who may read and write it.
        replace: Whether a file that is there already makes way; otherwise it stays as it is.

    """
    temporary = f".{name}.{secrets.token_hex(4)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync(descriptor)
        if replace:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.unlink(temporary, dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    sync(folder)
