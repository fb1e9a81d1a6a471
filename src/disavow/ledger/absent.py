"""Is an id really gone? Look for it in every byte of every file of a run, free pages and log included."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from disavow.ledger.files import kind_of

_CHUNK = 1 << 24


def files_with(directory: Path, client: str, others: Iterable[str] = ()) -> list[Path]:
    """The files that contain the whole id, in their bytes or their names.

    `others` are the ids of clients still in. Where one of them contains this id (client-1 in client-10), its
    occurrences do not count; every other occurrence does.

    Never call it in a process that has the run open: closing a file drops all locks that a process holds on
    it, SQLite's too.
    """
    wanted = client.encode()
    longer = [other.encode() for other in others if client in other and other != client]
    return [
        path
        for path in sorted(directory.rglob("*"))
        if _whole(str(path.relative_to(directory)).encode(), wanted, longer) or _contains(path, wanted, longer)
    ]


def _contains(path: Path, wanted: bytes, longer: list[bytes]) -> bool:
    try:
        if kind_of(path) != "a file":
            return False
        with path.open("rb") as file:
            return any(_pieces(file.fileno(), wanted, longer))
    except FileNotFoundError:
        return False  # a run at work deletes files of its own


def _pieces(descriptor: int, wanted: bytes, longer: list[bytes]) -> Iterator[bool]:
    """Whether the id starts in each piece of a file; a margin on both sides shows the longer ids around it."""
    margin = max(map(len, [wanted, *longer]))
    for start in range(0, os.fstat(descriptor).st_size, _CHUNK):
        before = min(margin, start)
        data = os.pread(descriptor, before + _CHUNK + margin, start - before)
        yield _whole(data, wanted, longer, range(before, before + _CHUNK))


def _whole(data: bytes, wanted: bytes, longer: list[bytes], within: range | None = None) -> bool:
    """Whether the id occurs other than as a part of a longer one, starting `within` the data."""
    return any(
        not any(_covers(data, other, wanted, position) for other in longer)
        for position in _all(data, wanted)
        if within is None or position in within
    )


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    position = data.find(wanted)
    while position >= 0:
        yield position
        position = data.find(wanted, position + 1)


def _covers(data: bytes, other: bytes, wanted: bytes, position: int) -> bool:
    """Whether a longer id stands in the data so that this occurrence is a part of it."""
    return any(
        position >= offset and data[position - offset : position - offset + len(other)] == other
        for offset in _all(other, wanted)
    )
