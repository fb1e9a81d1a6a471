"""Read, write and remove files without following links, and make what was written durable.

A run directory may come from somebody else, and a link in it could lead to any file of whoever opens it. So nothing
of a run is reached through one: its folders are opened by descriptor (`O_NOFOLLOW`), their files relative to that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from disavow.durable_files import sync, write_into
from disavow.errors import RunUnsafe

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""What a run's files and folders are: its owner's alone. They name clients, or hold what was made of their data."""

_IS_LINK = {errno.ELOOP, errno.ENOTDIR}
"""What the system answers where `O_NOFOLLOW` or `O_DIRECTORY` meets something else."""


class Folder:
    """A folder of a run, all of whose files have names of one pattern. It need not be there."""

    def __init__(self, path: Path, names: str) -> None:
        self.path = path
        self._ours = re.compile(f"{names}|{_temporary(names)}")

    def names(self, *, beyond: Collection[str] = ()) -> list[str]:
        """The names of the files here that are ours, half-written ones too; links and folders never are.

        Those in `beyond` are left out, and not looked at: there may be many.
        """
        found = self._entries(beyond)
        return [name for name, is_file in found if is_file and self._ours.fullmatch(name)]

    def others(self) -> list[str]:
        """The names of whatever else is here; it is left alone."""
        return [name for name, is_file in self._entries() if not (is_file and self._ours.fullmatch(name))]

    def _entries(self, beyond: Collection[str] = ()) -> list[tuple[str, bool]]:
        try:
            with open_folder(self.path) as folder, os.scandir(folder) as entries:
                rest = (entry for entry in entries if entry.name not in beyond)
                return sorted((entry.name, entry.is_file(follow_symlinks=False)) for entry in rest)
        except FileNotFoundError:
            return []

    def make(self) -> None:
        """Make the folder, durably, if it is not there."""
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(mode=PRIVATE_FOLDER)
            sync_folder(self.path.parent)

    def size(self, name: str) -> int | None:
        """The bytes that a file takes; None where there is none."""
        try:
            with open_folder(self.path) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        _refuse_no_file(self.path / name, found)
        return found.st_size

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        with open_folder(self.path) as folder:
            descriptor = open_file(self.path / name, os.O_RDONLY, folder)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Write a file durably; see `write_durably`."""
        with open_folder(self.path) as folder:
            write_into(folder, name, data, mode=PRIVATE_FILE, replace=True)

    def sync(self) -> None:
        """Make renames and deletions in the folder durable."""
        with open_folder(self.path) as folder:
            sync(folder)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files of ours durably; no other name is ever deleted."""
        ours = [name for name in names if self._ours.fullmatch(name)]
        if not ours:
            return
        with open_folder(self.path) as folder:
            for name in ours:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            sync(folder)


def open_file(path: Path, flags: int, folder: int) -> int:
    """Open a file of this name in an open folder; refuse a link and whatever else is no file.

    `path` is what the file is called in errors.
    """
    with contextlib.suppress(FileNotFoundError):
        _refuse_no_file(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
    try:
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE_FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _IS_LINK:
            raise unsafe(path, "a symbolic link") from None
        raise
    try:
        _refuse_no_file(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_exposed(name: str, folder: int) -> bool:
    """Whether others than its owner may use a file or folder in an open folder; a link does not count."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return bool(found.st_mode & 0o077) and not stat.S_ISLNK(found.st_mode)


def make_private(name: str, folder: int) -> None:
    """Take a file or folder in an open folder away from everybody but its owner, if that is us."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if found.st_uid != os.geteuid():
        return
    mode = stat.S_IMODE(found.st_mode) & 0o700
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    # O_PATH, because closing any other descriptor of SQLite's file drops the locks that this process holds on it
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if os.path.samestat(found, os.fstat(descriptor)):
            Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def kind_of(path: Path) -> str | None:
    """What lies at a path, a link not followed: "a file", "a folder", or what else; None where there is nothing."""
    try:
        return _kind(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def bytes_in(folder: Path, *, without: tuple[str, ...] = ()) -> int:
    """Add up the sizes of the files in a folder and in its folders, links not followed.

    Args:
        folder: Where to look.
        without: Ends of the names of files that do not count.

    """
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # whoever holds the run may remove files meanwhile
                if entry.is_dir(follow_symlinks=False):
                    total += bytes_in(Path(entry.path), without=without)
                elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(without):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


FileIdentity = tuple[int, int]
"""Device and inode: what tells a file from another one that has taken its place."""


def identity_of(path: Path) -> FileIdentity | None:
    """Tell a file from another one of the same name, a link not followed; None where there is nothing."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def unsafe(path: Path, kind: str) -> RunUnsafe:
    """The error about something in a run that is not what a run has there."""
    return RunUnsafe(f"{path} is {kind}, which a run never holds there; remove it, or do not use this run")


def _refuse_no_file(path: Path, found: os.stat_result) -> None:
    if (kind := _kind(found)) != "a file":
        raise unsafe(path, kind)


def _kind(found: os.stat_result) -> str:
    if stat.S_ISREG(found.st_mode):
        return "a file"
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    return "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a special file"


@contextlib.contextmanager
def open_folder(path: Path, *, follow: bool = False) -> Iterator[int]:
    """A descriptor of a folder; a link to one is refused unless `follow` says otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in _IS_LINK and not follow:
            raise unsafe(path, "not a folder") from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_durably(target: Path, data: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Write a file so that after a crash it is there whole or not at all.

    Without `replace`, a file that is there already stays as it is.
    """
    with open_folder(target.parent, follow=True) as folder:
        write_into(folder, target.name, data, mode=mode, replace=replace)


def remove_temporaries(folder: Path, names: str) -> None:
    """Delete what a killed process left of files of such names that it was writing durably into a folder."""
    ours = re.compile(_temporary(names))
    nowhere = contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError)
    with nowhere, open_folder(folder, follow=True) as descriptor:
        with os.scandir(descriptor) as entries:
            stale = [e.name for e in entries if ours.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
        for name in stale:
            os.unlink(name, dir_fd=descriptor)
        if stale:
            sync(descriptor)


def _temporary(names: str) -> str:
    """What files of such names are called until they are whole, as a pattern."""
    return rf"\.(?:{names})\.[0-9a-f]{{8}}"


def sync_folder(folder: Path) -> None:
    """Make renames and deletions inside a folder durable."""
    with open_folder(folder, follow=True) as descriptor:
        sync(descriptor)


def sync_file(path: Path) -> None:
    """Make what was written to a file durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
