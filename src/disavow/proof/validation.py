"""Reading values that may be hostile: every field is asked for by name and kind, and no other is accepted."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from itertools import islice
from typing import Any, TypeVar

from disavow.errors import Unreadable
from disavow.proof.merkle import HASH_BYTES

T = TypeVar("T")
Reader = Callable[[Any, str], T]
"""Takes a value and where it stands, and gives what was meant; or raises `Unreadable`."""

MOST = 2**32 - 1
"""No number of ours is larger: it fits into four bytes."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST = 1 << 12
_SHOWN = 40
_DAY_LENGTH = len("2026-01-31")
_RUN = re.compile(r"[A-Za-z0-9._-]{1,64}")


def fields(value: Any, where: str, readers: dict[str, Reader[Any]]) -> dict[str, Any]:
    """An object with exactly these fields."""
    if not isinstance(value, dict):
        raise Unreadable(f"{where} is not an object")
    if value.keys() != readers.keys():
        odd = sorted(islice(value.keys() ^ readers.keys(), 8))
        # escaped: what a hostile file is called by must not reach the terminal as it is
        raise Unreadable(f"{where} has missing or unknown fields: {', '.join(map(ascii, odd))[:120]}")
    return {name: read(value[name], f"{where}.{name}") for name, read in readers.items()}


def list_of(read: Reader[T], *, most: int) -> Reader[list[T]]:
    """A reader of lists."""

    def reader(value: Any, where: str) -> list[T]:
        if not isinstance(value, list) or len(value) > most:
            raise Unreadable(f"{where} is not a list of at most {most:,}")
        return [read(item, f"{where}[{i}]") for i, item in enumerate(value)]

    return reader


def optional(read: Reader[T]) -> Reader[T | None]:
    """A reader that also accepts null."""
    return lambda value, where: None if value is None else read(value, where)


def exactly(expected: Any) -> Reader[Any]:
    """A reader of one value only."""

    def reader(value: Any, where: str) -> Any:
        if type(value) is not type(expected) or value != expected:
            raise Unreadable(f"{where} is not {expected!r}")
        return value

    return reader


def one_of(*allowed: str, also: Callable[[str], bool] | None = None) -> Reader[str]:
    """A reader of one of a few words, or of another one that an installed package registered."""

    def reader(value: Any, where: str) -> str:
        if isinstance(value, str) and (value in allowed or (also is not None and also(value))):
            return value
        message = f"{where} is none of {', '.join(allowed)}"
        if also is not None and isinstance(value, str):
            # escaped and cut: it may be hostile
            shown = ascii(value[:_SHOWN]) + "..." * (len(value) > _SHOWN)
            message += (
                f", but {shown}: a package that registers it may have to be installed here (docs/extending.md)"
            )
        raise Unreadable(message)

    return reader


def text(value: Any, where: str) -> str:
    """A text of reasonable length."""
    if not isinstance(value, str) or len(value) > _LONGEST or _SURROGATE.search(value):
        raise Unreadable(f"{where} is not a proper text of at most {_LONGEST:,} characters")
    return value


def run_id(value: Any, where: str) -> str:
    """The id of a run."""
    if not isinstance(value, str) or not _RUN.fullmatch(value):
        raise Unreadable(f"{where} is not 1 to 64 letters, digits, dots, hyphens or underscores")
    return value


def boolean(value: Any, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Unreadable(f"{where} is not true or false")
    return value


def whole(value: Any, where: str) -> int:
    """A whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise Unreadable(f"{where} is not a whole number from 0 to {MOST:,}")
    return value


def positive(value: Any, where: str) -> int:
    """A whole number from 1 on."""
    number = whole(value, where)
    if number == 0:
        raise Unreadable(f"{where} is 0")
    return number


def decimal(value: Any, where: str) -> float:
    """A finite number from 0 on, written as Python writes a float: the shortest text that reads back as it."""
    number = _float(value, where)
    if repr(number) != value:
        raise Unreadable(f"{where} is not the shortest way to write its number")
    return number


def figure(value: Any, where: str) -> str:
    """A number from 0 on, rounded to six digits, as text; compared as text."""
    if write_figure(_float(value, where)) != value:
        raise Unreadable(f"{where} is not a number of six digits")
    return str(value)


def _float(value: Any, where: str) -> float:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9][0-9.e+-]{0,30}", value, re.ASCII):
        raise Unreadable(f"{where} is not a decimal number in quotes")
    try:
        number = float(value)
    except ValueError:
        raise Unreadable(f"{where} is not a decimal number in quotes") from None
    if not math.isfinite(number):
        raise Unreadable(f"{where} is not finite")
    return number


def write_decimal(number: float) -> str:
    """What `decimal` reads."""
    return repr(float(number))


def write_figure(number: float) -> str:
    """What `figure` reads."""
    return f"{number:.6g}"


def digest(value: Any, where: str) -> str:
    """A SHA-256 digest in hexadecimal: the name of a model."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise Unreadable(f"{where} is not a SHA-256 digest in hexadecimal")
    return value


def moment(value: Any, where: str) -> str:
    """A moment in UTC, to the microsecond, as text."""
    try:
        if isinstance(value, str) and _TIME.fullmatch(value) and datetime.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise Unreadable(f"{where} is not a time like 2026-01-31T12:00:00.000000+00:00")


def day(value: Any, where: str) -> str:
    """A day in UTC, as text."""
    try:
        if isinstance(value, str) and _DAY.fullmatch(value) and date.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise Unreadable(f"{where} is not a day like 2026-01-31")


def day_of(time: str) -> str:
    """The day of a moment, or of a day."""
    return time[:_DAY_LENGTH]


def hashed(value: Any, where: str) -> bytes:
    """32 bytes in base64: a hash, a salt, a commitment."""
    data = from_base64(value, where)
    if len(data) != HASH_BYTES:
        raise Unreadable(f"{where} does not have {HASH_BYTES} bytes")
    return data


def from_base64(value: Any, where: str) -> bytes:
    """Bytes in base64, with padding, written in the one way there is."""
    if not isinstance(value, str):
        raise Unreadable(f"{where} is not base64")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable(f"{where} is not base64") from None
    if to_base64(data) != value:
        raise Unreadable(f"{where} is not base64 in canonical form")
    return data


def to_base64(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")
