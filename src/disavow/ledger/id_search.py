"""Is an id really gone? Look for it in every byte of every file or object of a run, free pages and log included.

Looked into are also what base64 hides (proofs are envelopes of it) and files that zstandard, gzip, bzip2 or xz has
compressed; not archives, and not what is compressed inside something else.
"""

from __future__ import annotations

import binascii
import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from disavow.ledger import database
from disavow.ledger.blobs import Blobs
from disavow.ledger.files import kind_of

_CHUNK = 1 << 24

SHORTEST_DECODED = 4
"""Bytes of an id that is looked for in decoded contents: shorter ones turn up by chance where bytes are many."""

_DEEP = 3
"""How often base64 within base64 is decoded."""

_MAGIC = {zstandard.FRAME_HEADER: "zstandard", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
"""How a compressed file begins."""

_DAMAGED = (zstandard.ZstdError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def files_with(directory: Path, client: str, others: Iterable[str] = ()) -> list[Path]:
    """The files that contain the whole id: in their bytes, in their decoded contents, or in their names.

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


def blobs_with(blobs: Blobs, client: str, others: Iterable[str] = ()) -> list[str]:
    """The names of the models or updates that contain the whole id, in the same way; also where they are objects.

    Args:
        blobs: Where they lie.
        client: The id.
        others: The ids of clients still in.

    """
    wanted = client.encode()
    longer = [other.encode() for other in others if client in other and other != client]
    return [
        name
        for name in sorted([*blobs.names(), *blobs.others()])
        if _whole(name.encode(), wanted, longer) or _blob_contains(blobs, name, wanted, longer)
    ]


def _blob_contains(blobs: Blobs, name: str, wanted: bytes, longer: list[bytes]) -> bool:
    try:
        return _in_file(io.BytesIO(blobs.read(name)), wanted, longer)
    except FileNotFoundError:
        return False


def tables_with(directory: Path, client: str, others: Iterable[str] = ()) -> list[str]:
    """The tables of a run that contain the whole id, where they are in no file of its directory; see `files_with`.

    What a database server has kept of earlier rows, on its own disk, is not looked at.
    """
    wanted = client.encode()
    longer = [other.encode() for other in others if client in other and other != client]
    return [name for name, rows in database.of(directory).contents() if any(_found(rows, wanted, longer))]


def _contains(path: Path, wanted: bytes, longer: list[bytes]) -> bool:
    try:
        if kind_of(path) != "a file":
            return False
        with path.open("rb") as file:
            return _in_file(file, wanted, longer)
    except FileNotFoundError:
        return False  # a run at work deletes files of its own


def _in_file(file: BinaryIO, wanted: bytes, longer: list[bytes]) -> bool:
    """Whether the id is in an open file, or in what it unpacks to."""
    if any(_found(file, wanted, longer)):
        return True
    file.seek(0)
    start = file.read(max(map(len, _MAGIC)))
    file.seek(0)
    packed = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)
    return packed is not None and len(wanted) >= SHORTEST_DECODED and _unpacked(file, packed, wanted, longer)


def _unpacked(file: BinaryIO, packed: str, wanted: bytes, longer: list[bytes]) -> bool:
    """Whether the id is in what a file unpacks to."""
    try:
        with _reader(file, packed) as unpacked:
            return any(_found(unpacked, wanted, longer))
    except _DAMAGED:
        return False  # what is damaged is said by fsck
    except OSError as error:
        if error.errno is None:
            return False  # so says bz2 of what is damaged
        raise


def _reader(file: BinaryIO, packed: str) -> BinaryIO:
    match packed:
        case "gzip":
            return io.BufferedReader(gzip.open(file))
        case "bzip2":
            return io.BufferedReader(bz2.open(file))
        case "xz":
            return io.BufferedReader(lzma.open(file))
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)


def _found(file: BinaryIO, wanted: bytes, longer: list[bytes]) -> Iterator[bool]:
    """Whether the id starts in each piece of a file, as it is or encoded.

    A margin on both sides shows what stands around it: the longer ids, and the rest of what is encoded.
    """
    margin = 2 * max(map(len, [wanted, *longer])) + 4
    before, piece = b"", file.read(_CHUNK)
    while piece:
        following = file.read(_CHUNK)
        data = before + piece + following[:margin]
        yield _whole(data, wanted, longer, range(len(before), len(before) + len(piece)))
        if len(wanted) >= SHORTEST_DECODED:
            yield any(_whole(decoded, wanted, longer) for decoded in _decoded(data, len(wanted)))
        before, piece = (before + piece)[-margin:], following


def _decoded(data: bytes, length: int, deep: int = _DEEP) -> Iterator[bytes]:
    """What any base64 in the data stands for that is long enough for so many bytes, wherever it begins and ends."""
    encoded = re.compile(rb"[A-Za-z0-9+/_-]{%d,}" % (-(-8 * length // 6)))
    for match in encoded.finditer(data.translate(None, b"\r\n")):
        text = match.group().translate(_FROM_URL_SAFE)
        for start in range(4):
            content = binascii.a2b_base64(text[start:] + b"A" * (-(len(text) - start) % 4))
            yield content
            if deep > 1:
                yield from _decoded(content, length, deep - 1)


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
