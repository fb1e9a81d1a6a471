"""Decoded once: images and labels as .npy files, memory-mapped from then on.

One folder a data set and source, named after the digest of what it was made from. It is furnished beside its place
and moved there, so that what is there is whole; a lock lets one process decode while others wait for it. What was
damaged since is noticed by its checksums and made again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import logging
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from disavow.data.catalogue import SPLITS, Spec
from disavow.data.decode import Pixels, blocks
from disavow.data.progress import OnProgress
from disavow.data.rows import Rows, refuse_other_schema
from disavow.errors import ConfigError, StorageFull
from disavow.ledger.files import sync_folder, write_durably

VARIABLE = "DISAVOW_CACHE"
"""The environment variable that names another folder for the cache."""

_FORMAT = 1
"""A new number when what is in the folder changes."""

_CONTENTS = "contents.json"
_BLOCK = 1 << 24
"""Bytes that are checked at a time."""

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Where rows come from: a folder, or the hub."""

    @property
    def digest(self) -> str:
        """What is in them, as SHA-256."""

    @property
    def described(self) -> str:
        """In words."""

    def rows(self, split: str) -> Rows:
        """Open a split.

        Args:
            split: `train` or `test`.

        Returns:
            Its rows.
        """


@dataclass(frozen=True, eq=False)
class Decoded:
    """A data set in the cache, mapped for reading. `at_hand` counts all rows of the source, used or not."""

    folder: Path
    digest: str
    arrays: Mapping[str, Pixels]
    at_hand: tuple[int, int]


def root(environment: Mapping[str, str] = os.environ) -> Path:
    """Find the folder of the cache.

    Args:
        environment: Where `DISAVOW_CACHE` may be set.

    Returns:
        The folder, which need not exist.
    """
    return Path(environment.get(VARIABLE) or "~/.cache/disavow/data").expanduser()


def decoded(spec: Spec, source: Source, on_progress: OnProgress, *, kind: str = "") -> Decoded:
    """Open a data set in the cache; decode it first, if need be.

    Args:
        spec: Which data set.
        source: Where its rows come from.
        on_progress: Called with how far it is.
        kind: A part of the folder's name.

    Returns:
        The arrays, mapped.

    Raises:
        ConfigError: The rows or the cache cannot be used.
        StorageFull: There is no room.
    """
    folder = root() / f"{spec.name}-{kind}{source.digest[:16]}"
    if found := _opened(folder, source.digest):
        return found
    with _room(spec, folder), _alone(folder, spec, on_progress):
        # somebody else may have been at it while this process waited
        if found := _opened(folder, source.digest):
            return found
        _make(folder, spec, source, on_progress)
    found = _opened(folder, source.digest)
    if found is None:
        raise ConfigError(
            f"{folder}: what was just written cannot be read back; set {VARIABLE} to a folder on another disk"
        )
    return found


def from_hub(spec: Spec, digest: str | None) -> Decoded | None:
    """Open what was decoded from the hub before: the revision asked for, or else the latest decoded.

    So nobody needs the hub twice. Removing the folder makes the next run take what the hub holds then.

    Args:
        spec: Which data set.
        digest: The revision; None for any.

    Returns:
        The arrays, or None.
    """
    made = sorted(root().glob(f"{spec.name}-{HUB}*"), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    for folder in made:
        found = _opened(folder, digest)
        if found is not None:
            return found
    return None


HUB = "hub-"
"""The kind of folders that were decoded from the hub."""


# -- reading -------------------------------------------------------------------------------------------------------


def _opened(folder: Path, digest: str | None) -> Decoded | None:
    """What is in the folder, if it is whole and of that digest (any, where that is None)."""
    try:
        contents = json.loads((folder / _CONTENTS).read_bytes())
        if contents["format"] != _FORMAT or digest not in (None, contents["digest"]):
            return None
        arrays = {name: _mapped(folder / f"{name}.npy", summary) for name, summary in contents["arrays"].items()}
        train, test = contents["at_hand"]
        return Decoded(folder, contents["digest"], arrays, (train, test))
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.info("%s is damaged and will be made again: %s", folder, error)
        return None


def _mapped(path: Path, summary: Mapping[str, Any]) -> Pixels:
    array: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != np.uint8 or list(array.shape) != summary["shape"]:
        raise ValueError(f"{path.name} has another shape")
    found, flat = 0, array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        found = zlib.crc32(flat[start : start + _BLOCK].data, found)
    if found != summary["crc32"]:
        raise ValueError(f"{path.name} has another checksum")
    return array


# -- writing -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _room(spec: Spec, folder: Path) -> Iterator[None]:
    """Say what to do where the cache cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"{folder.parent} has no room for the decoded images of {spec.name}; make room, or set {VARIABLE} "
                "to a folder with more"
            ) from None
        raise ConfigError(
            f"{VARIABLE} is {folder.parent}, which cannot be written: {error.strerror}; allowed: a folder that can "
            "be written"
        ) from None


@contextlib.contextmanager
def _alone(folder: Path, spec: Spec, on_progress: OnProgress) -> Iterator[None]:
    """Exclusive use of a place in the cache, given back when the process ends, however it ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress(f"waiting for another process that decodes {spec.name}", 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, spec: Spec, source: Source, on_progress: OnProgress) -> None:
    """Fill a folder beside its final path and move it there. The caller is alone."""
    for stale in folder.parent.glob(f"{glob.escape(f'.{folder.name}.')}*-*"):
        shutil.rmtree(stale, ignore_errors=True)  # of a process that was killed
    rows = {split: source.rows(split) for split in SPLITS}
    for each in rows.values():
        refuse_other_schema(each, spec)
    scratch = folder.with_name(f".{folder.name}.new-{secrets.token_hex(4)}")
    try:
        scratch.mkdir()
        contents = {
            "format": _FORMAT,
            "digest": source.digest,
            "source": source.described,
            "at_hand": [rows[split].count for split in SPLITS],
            "arrays": _write_arrays(scratch, spec, rows, on_progress),
        }
        write_durably(scratch / _CONTENTS, json.dumps(contents, indent=2).encode())
        sync_folder(scratch)
        if folder.exists():  # and damaged, or nobody would be here
            folder.rename(folder.with_name(f".{folder.name}.old-{secrets.token_hex(4)}"))
        scratch.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for old in folder.parent.glob(f"{glob.escape(f'.{folder.name}.old-')}*"):
            shutil.rmtree(old, ignore_errors=True)


def _write_arrays(scratch: Path, spec: Spec, rows: Mapping[str, Rows], on_progress: OnProgress) -> dict[str, Any]:
    """Write all arrays; their shapes and checksums."""
    counts = {split: min(rows[split].count, most) for split, most in zip(SPLITS, spec.most, strict=True)}
    total, done, what = sum(counts.values()), 0, f"decoding {spec.name}"
    arrays: dict[str, Any] = {}
    on_progress(what, done, total)
    for split in SPLITS:
        count = counts[split]
        with (
            _Array(scratch / f"{split}-images.npy", (count, *spec.shape)) as images,
            _Array(scratch / f"{split}-labels.npy", (count, *[spec.classes] * spec.attributes)) as labels,
        ):
            for block in blocks(rows[split], spec, count):
                images.add(block[0])
                labels.add(block[1])
                done += len(block[0])
                on_progress(what, done, total)
        arrays[f"{split}-images"], arrays[f"{split}-labels"] = images.summary, labels.summary
    return arrays


class _Array:
    """A .npy file written block by block: into a map of it, a full disk would be a fatal signal, not an error."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._shape, self._crc32 = shape, 0
        self._file: IO[bytes] = path.open("xb")
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    @property
    def summary(self) -> dict[str, Any]:
        return {"shape": list(self._shape), "crc32": self._crc32}

    def add(self, block: Pixels) -> None:
        block = np.ascontiguousarray(block)
        self._crc32 = zlib.crc32(block.data, self._crc32)
        self._file.write(block.data)

    def __enter__(self) -> _Array:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
