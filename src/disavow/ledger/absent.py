"""Is an id really gone? Look for it in every byte of every file of a run, free pages and log included."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path


def files_with(directory: Path, client: str, others: Iterable[str] = ()) -> list[Path]:
    """The files that contain the whole id, in their bytes or their names.

    `others` are the ids of clients still in. Where one of them contains this id (client-1 in client-10), its
    occurrences do not count; every other occurrence does.
    """
    wanted = client.encode()
    longer = [other.encode() for other in others if client in other and other != client]
    return [
        path
        for path in sorted(directory.rglob("*"))
        if _whole(str(path.relative_to(directory)).encode(), wanted, longer) or _contains(path, wanted, longer)
    ]


def _contains(path: Path, wanted: bytes, longer: list[bytes]) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _whole(data, wanted, longer)


def _whole(data: bytes | mmap.mmap, wanted: bytes, longer: list[bytes]) -> bool:
    """Whether the id occurs other than as a part of a longer one."""
    return any(
        not any(_covers(data, other, wanted, position) for other in longer) for position in _all(data, wanted)
    )


def _all(data: bytes | mmap.mmap, wanted: bytes) -> Iterator[int]:
    position = data.find(wanted)
    while position >= 0:
        yield position
        position = data.find(wanted, position + 1)


def _covers(data: bytes | mmap.mmap, other: bytes, wanted: bytes, position: int) -> bool:
    """Whether a longer id stands in the data so that this occurrence is a part of it."""
    return any(
        position >= offset and data[position - offset : position - offset + len(other)] == other
        for offset in _all(other, wanted)
    )
