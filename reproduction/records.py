"""Files of one JSON document a line, which several processes may add to and any of them may die over.

A record is a frozen dataclass that pydantic checks, with a field `format` that names kind and version. A record is
added in one write, under a lock, and is on disk before the call returns. Whoever dies in the middle leaves the
beginning of a line at the end of the file: readers pass over it, the next writer takes it out, and both say so.
Damage anywhere else is nobody's crash and is refused by name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from disavow.errors import ConfigError, StorageFull

CHECKED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""How the dataclasses of a record are checked: nothing unknown, nothing converted, no NaN."""

Record = TypeVar("Record")
OnNote = Callable[[str], None]


def read(path: Path, kind: type[Record], on_note: OnNote = lambda note: None) -> list[Record]:
    """Every record of a file, in the order in which they were added; none when there is no such file.

    A last line that was cut off is left out, and `on_note` is told. Anything else that cannot be read is an error.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"the results file {path} cannot be read ({error.strerror})") from None
    *lines, last = content.split(b"\n")
    found = [_record(path, number, line, kind) for number, line in enumerate(lines, 1)]
    if _whole(last):
        found.append(_record(path, len(lines) + 1, last, kind))
    elif last:
        on_note(f"{path}: line {len(lines) + 1} was cut off and is passed over; those before it are whole")
    return found


def append(path: Path, record: object, on_note: OnNote = lambda note: None) -> None:
    """Add a record at the end, whole or not at all, and wait until it is on disk.

    What a writer that died left of its last line is taken out first, and `on_note` is told.
    """
    line = dump(record) + b"\n"
    with _opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        start, last = _last_line(descriptor, size)
        if _whole(last):  # only its end of line is missing
            line = b"\n" + line
        elif last:
            os.ftruncate(descriptor, start)
            size = start
            on_note(f"{path}: the last line was cut off and has been taken out; everything before it is kept")
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise StorageFull(
                f"the results file {path} cannot be added to ({error.strerror}); everything before is kept: make "
                "room, then run the same command again"
            ) from None


def dump(record: object) -> bytes:
    """A record as one line of JSON, without its end."""
    return TypeAdapter(type(record)).dump_json(record)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The file, made with its folder where need be, for this process alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise ConfigError(f"the results file {path} cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_size == 0:
            _sync_folder(path.parent)  # a new file's name, too, must outlive a crash
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_line(descriptor: int, size: int) -> tuple[int, bytes]:
    """Where the last line starts, and what it holds; nothing where the file ends with an end of line."""
    if size == 0:
        return 0, b""
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as view:
        start = view.rfind(b"\n") + 1
        return start, view[start:]


def _whole(line: bytes) -> bool:
    """Whether this is a JSON document: the beginning of an object never is."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _record(path: Path, number: int, line: bytes, kind: type[Record]) -> Record:
    place = f"{path}, line {number}"
    try:
        value = json.loads(line)
    except ValueError:
        raise ConfigError(
            f"{place} is damaged: it is no JSON; take the line out, and what it held will be run again"
        ) from None
    expected = vars(kind)["format"]  # the default of a dataclass's field, and the only value it may have
    written: Any = value.get("format") if isinstance(value, dict) else None
    if written != expected:
        raise ConfigError(
            f"{place} has the format {json.dumps(written)}, this version of disavow reads {json.dumps(expected)}; "
            "use the version that wrote it, or another results file"
        )
    try:
        return TypeAdapter(kind).validate_json(line)
    except ValidationError as error:
        raise ConfigError(
            f"{place} does not hold what it should: {first_fault(error)}; take the line out, and what it held "
            "will be run again"
        ) from None


def first_fault(error: ValidationError) -> str:
    """The first thing wrong with a record, in one line.

    >>> from pydantic import TypeAdapter
    >>> try:
    ...     TypeAdapter(dict[str, int]).validate_python({"k": "four"})
    ... except ValidationError as error:
    ...     first_fault(error)
    'k: Input should be a valid integer, unable to parse string as an integer'
    """
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = "an unknown field" if first["type"] == "unexpected_keyword_argument" else first["msg"]
    return ": ".join(part for part in (where, what.removeprefix("Value error, ")) if part)
