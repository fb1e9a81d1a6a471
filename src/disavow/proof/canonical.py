"""One text for one value: JSON with sorted keys, no spaces, ASCII only, whole numbers only.

What is signed or hashed is written in this form, and whoever reads it refuses any other, so that no two texts mean
the same and no text means two things.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from disavow.errors import Unreadable

DEEPEST = 16
"""Levels of nesting; ours need seven."""

_MOST_TOKENS = 1_500_000
"""Strings, keys included, and brackets outside them; a proof of the largest size that is read has fewer."""

_MOST_KEYS = 64
_DIGITS = 15
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""A string, whether or not it ends, or a bracket outside strings; never goes back over what it has read."""


def encode(value: Any) -> bytes:
    """Write a value as the one text that it has.

    Args:
        value: Of JSON, without fractions.

    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(data: bytes, *, what: str, most: int) -> Any:
    """Read a value from its one text.

    Args:
        data: The text.
        what: What it is, for the error.
        most: How many bytes are read.

    Raises:
        Unreadable: It is too large, too deep, not JSON, or not the value's one text.

    """
    value = decode_any(data, what=what, most=most)
    try:
        canonical = encode(value)
    except (ValueError, TypeError, UnicodeError, RecursionError):
        raise Unreadable(f"{what} holds text that cannot be written") from None
    if canonical != data:
        raise Unreadable(f"{what} is not in canonical form")
    return value


def decode_any(data: bytes, *, what: str, most: int) -> Any:
    """Read a value in whatever spacing and order; but no key twice, no fractions, no endless numbers.

    Args:
        data: The text.
        what: What it is, for the error.
        most: How many bytes are read.

    Raises:
        Unreadable: It is too large, too deep, or not JSON that is accepted.

    """
    if len(data) > most:
        raise Unreadable(f"{what} has {len(data):,} bytes; at most {most:,} are read")
    try:
        text = data.decode("utf-8")
        _refuse_deep(text, what)
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_int=_integer,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{what} is not JSON that is accepted here: {_short(error)}") from None


def _refuse_deep(text: str, what: str) -> None:
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text), start=1):
        if count > _MOST_TOKENS:
            raise Unreadable(f"{what} has more than {_MOST_TOKENS:,} strings and brackets")
        first = token.group()[0]
        depth += (first in "[{") - (first in "]}")
        if depth > DEEPEST:
            raise Unreadable(f"{what} is nested deeper than {DEEPEST} levels")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise ValueError(f"an object has more than {_MOST_KEYS} keys")
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("a number is too long")
    return int(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not a whole number")


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
