"""What a run directory holds, and that each of it is a file or a folder of the run's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from disavow.ledger import database, lock
from disavow.ledger.creation import CONFIG, MODELS
from disavow.ledger.files import kind_of, unsafe
from disavow.ledger.proofs import PROOFS
from disavow.ledger.updates import UPDATES


def refuse_unsafe(directory: Path) -> None:
    """Refuse a run that holds a link or a special file; the directory itself may be reached through links."""
    for path, kind in unsafe_in(directory):
        raise unsafe(path, kind)


def unsafe_in(directory: Path) -> Iterator[tuple[Path, str]]:
    """Whatever of a run is not the file or the folder that it should be, and what it is instead."""
    yield from database.unsafe_files(directory / database.NAME)
    for names, due in (((CONFIG, lock.NAME), "a file"), ((MODELS, UPDATES, PROOFS), "a folder")):
        for path in (directory / name for name in names):
            kind = kind_of(path)
            if kind not in (None, due):
                yield path, kind
