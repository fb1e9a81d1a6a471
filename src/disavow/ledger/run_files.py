"""What a run directory holds: files and folders of the run's own, for its owner's eyes only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from disavow.ledger import database, files, lock
from disavow.ledger.blobs import LOCATION
from disavow.ledger.creation import CONFIG
from disavow.ledger.files import kind_of, open_folder, unsafe
from disavow.ledger.models import MODELS
from disavow.ledger.proofs import PROOFS
from disavow.ledger.updates import UPDATES

_FOLDERS = (MODELS, UPDATES, PROOFS)
_FILES = (CONFIG, LOCATION, lock.NAME, *database.FILES)


def refuse_unsafe(directory: Path) -> None:
    """Refuse a run that holds a link or a special file; the directory itself may be reached through links."""
    for path, kind in unsafe_in(directory):
        raise unsafe(path, kind)


def unsafe_in(directory: Path) -> Iterator[tuple[Path, str]]:
    """Whatever of a run is not the file or the folder that it should be, and what it is instead."""
    yield from database.unsafe_files(directory)
    for names, due in (((CONFIG, LOCATION, lock.NAME), "a file"), (_FOLDERS, "a folder")):
        for path in (directory / name for name in names):
            kind = kind_of(path)
            if kind not in (None, due):
                yield path, kind


def exposed_in(directory: Path) -> list[str]:
    """What of a run others than its owner may read or write: "." is the directory itself."""
    return [
        str(folder.relative_to(directory) / name)
        for folder, descriptor, names in _opened(directory)
        for name in names
        if files.is_exposed(name, descriptor)
    ]


def make_private(directory: Path) -> None:
    """Take a run away from everybody but its owner, where that is us."""
    for _, descriptor, names in _opened(directory):
        for name in names:
            if files.is_exposed(name, descriptor):
                with suppress(OSError):  # fsck notes what stays as it is
                    files.make_private(name, descriptor)


def _opened(directory: Path) -> Iterator[tuple[Path, int, list[str]]]:
    """The directory and its folders, each with a descriptor and the names of what is private in it."""
    with open_folder(directory, follow=True) as descriptor:
        yield directory, descriptor, [".", *_FILES, *_FOLDERS]
    for name in _FOLDERS:
        folder = directory / name
        with suppress(FileNotFoundError), open_folder(folder) as descriptor, os.scandir(descriptor) as entries:
            yield folder, descriptor, [entry.name for entry in entries]
