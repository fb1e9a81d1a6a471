"""Where models and kept updates lie: in folders of the run directory, or under a URL that the run remembers.

Both are named by what is in them and never change, so one small interface serves both: `Blobs`. Whatever implements
it writes a blob whole or not at all, and has it durable when `write` returns; only then does a row name it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from disavow.errors import ConfigError, LedgerError
from disavow.ledger.bucket import Bucket, Location
from disavow.ledger.files import PRIVATE_FILE, Folder, open_file, open_folder, write_durably

LOCATION = "models.url"
"""The file of a run that says where its models are, if not in the run: one line, without credentials."""

_LONGEST = 2_048


class Blobs(Protocol):
    """A place for immutable files, all of whose names have one pattern."""

    def names(self, *, beyond: Collection[str] = ()) -> list[str]:
        """The names of the files here that are ours, half-written ones too, less those in `beyond`."""

    def others(self) -> list[str]:
        """The names of whatever else is here; it is left alone."""

    def make(self) -> None:
        """Make the place, durably, if it is not there."""

    def size(self, name: str) -> int | None:
        """The bytes that a file takes; None where there is none."""

    def read(self, name: str) -> bytes:
        """The bytes of a file; FileNotFoundError where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all, durably."""

    def sync(self) -> None:
        """Make what was written and deleted before durable."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete files of ours durably; no other name is ever deleted."""


def check_location(url: str) -> None:
    """Refuse a place for models that cannot be used: another kind of URL, no bucket, no access to it.

    Raises:
        ConfigError: It is no URL of a bucket.
        MissingExtra: What reaches a bucket is not installed.
        BucketRefused: There is no such bucket, or no access to it.
        BucketUnreachable: The endpoint does not answer.

    """
    Bucket(Location.parse(url), ".*").check()


def keep_location(directory: Path, location: Location) -> None:
    """Write down where the models of a run are."""
    write_durably(directory / LOCATION, f"{location}\n".encode(), mode=PRIVATE_FILE)


def location_of(directory: Path) -> Location | None:
    """Where the models of a run are; None where they are in its directory.

    Raises:
        LedgerError: The run's note of it is damaged.

    """
    try:
        with open_folder(directory, follow=True) as folder:
            descriptor = open_file(directory / LOCATION, os.O_RDONLY, folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        line = file.read(_LONGEST)
    try:
        return Location.parse(line.decode().strip())
    except (ConfigError, UnicodeDecodeError) as error:
        raise LedgerError(f"{directory / LOCATION} does not say where the models are: {error}") from None


def blobs_of(directory: Path, run_id: str, kind: str, names: str) -> Blobs:
    """The place where a run has its models, or its updates.

    Args:
        directory: The run.
        run_id: Its id, with which a URL ends: what lies under another one is another run's, and never touched.
        kind: The name of the folder.
        names: The pattern of the names in it.

    Raises:
        LedgerError: The run's note of where they are is damaged, or names another run's.

    """
    location = location_of(directory)
    if location is None:
        return Folder(directory / kind, names)
    if location.run_id != run_id:
        raise LedgerError(f"{directory / LOCATION} is {location}, which does not end with this run's id, {run_id}")
    return Bucket(Location(location.bucket, f"{location.prefix}/{kind}"), names)


def folder_of(blobs: Blobs) -> Path:
    """The folder in which files lie.

    Raises:
        LedgerError: They are objects of a bucket.

    """
    if not isinstance(blobs, Folder):
        raise LedgerError("the models of this run are in a bucket, and no files of its directory")
    return blobs.path
